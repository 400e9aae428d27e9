// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions of the block layer's users; see helpers.h.
 */

#include <linux/blk-integrity.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/export.h>
#include <linux/fs_struct.h>
#include <linux/kernel.h>

#include "compat.h"
#include "helpers.h"

/* Looks the path up from init's root: kernel threads have none of their own. */
struct file *rnbd_helper_bdev_file_open_by_path(const char *path, bool write)
{
	blk_mode_t mode = BLK_OPEN_READ | (write ? BLK_OPEN_WRITE : 0);
	struct file *file = NULL;

	scoped_with_init_fs()
		file = bdev_file_open_by_path(path, mode, NULL, NULL);
	return file;
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_file_open_by_path);

/*
 * bdev_discard_alignment() for any time: that one divides by the granularity,
 * which becomes 0 if the disk's discards are turned off meanwhile.
 */
static unsigned int discard_alignment(struct block_device *bdev)
{
	const struct queue_limits *lim = &bdev_get_queue(bdev)->limits;
	unsigned int granularity, alignment, offset;
	sector_t start = bdev->bd_start_sect;

	alignment = READ_ONCE(lim->discard_alignment);
	if (!bdev_is_partition(bdev))
		return alignment;
	granularity = READ_ONCE(lim->discard_granularity) >> SECTOR_SHIFT;
	if (!READ_ONCE(lim->max_discard_sectors) || !granularity)
		return 0;
	alignment >>= SECTOR_SHIFT;
	offset = sector_div(start, granularity);
	offset = (granularity + alignment - offset) % granularity;
	return offset << SECTOR_SHIFT;
}

/*
 * Whether the disk was removed. __blk_mark_disk_dead() marks the disk, with a
 * full barrier, before its size becomes 0; this looks in the opposite order.
 */
bool rnbd_helper_bdev_is_gone(struct block_device *bdev)
{
	smp_rmb();
	return test_bit(GD_DEAD, &bdev->bd_disk->state);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_is_gone);

/*
 * The identifier of the whole disk: its length, at most 16, or an error. A
 * device mapper's disk gives that of the first disk below it, which other
 * disks of the device mapper give, too.
 */
int rnbd_helper_bdev_unique_id(struct block_device *bdev, u8 id[16], int type)
{
	struct gendisk *disk = bdev->bd_disk;

	if (!disk->fops->get_unique_id || str_has_prefix(disk->disk_name, "dm-"))
		return -EOPNOTSUPP;
	return disk->fops->get_unique_id(disk, id, type);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_unique_id);

/*
 * Whether somebody has the device, or a partition of it, for himself: it is
 * mounted, or a part of another disk.
 */
bool rnbd_helper_bdev_is_held(const struct block_device *bdev)
{
	return READ_ONCE(bdev->bd_holder);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_is_held);

u32 rnbd_helper_bdev_partno(const struct block_device *bdev)
{
	return bdev_partno(bdev);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_partno);

/* Another number whenever there is another disk, or another medium in it. */
u64 rnbd_helper_bdev_diskseq(const struct block_device *bdev)
{
	return READ_ONCE(bdev->bd_disk->diskseq);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_diskseq);

/* Takes no lock and waits for nothing. */
void rnbd_helper_bdev_limits(struct block_device *bdev,
			     struct rnbd_bdev_limits *limits)
{
	limits->logical_block_size = bdev_logical_block_size(bdev);
	limits->physical_block_size = bdev_physical_block_size(bdev);
	limits->max_segments = bdev_max_segments(bdev);
	limits->max_sectors = queue_max_sectors(bdev_get_queue(bdev));
	limits->max_hw_sectors = queue_max_hw_sectors(bdev_get_queue(bdev));
	limits->max_write_zeroes_sectors = bdev_write_zeroes_sectors(bdev);
	limits->max_discard_sectors = bdev_max_discard_sectors(bdev);
	limits->max_secure_erase_sectors = bdev_max_secure_erase_sectors(bdev);
	limits->discard_granularity = bdev_discard_granularity(bdev);
	limits->discard_alignment = discard_alignment(bdev);
	limits->write_cache = bdev_write_cache(bdev);
	limits->fua = bdev_fua(bdev);
	limits->rotational = bdev_rot(bdev);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_limits);

/* The kernel's name of the device or partition, such as "vda1". */
int rnbd_helper_bdev_name(struct block_device *bdev, char *buf, size_t size)
{
	return snprintf(buf, size, "%pg", bdev);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_name);

/* The directory of the whole disk in sysfs. */
struct kobject *rnbd_helper_bdev_disk_kobj(struct block_device *bdev)
{
	return &disk_to_dev(bdev->bd_disk)->kobj;
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_disk_kobj);

/*
 * Whether submitting to the device may sleep whatever the bio's flags say: its
 * driver does, or memory for integrity data is waited for.
 */
bool rnbd_helper_bdev_may_sleep(struct block_device *bdev)
{
	struct request_queue *q = bdev_get_queue(bdev);

	return (queue_is_mq(q) && q->tag_set->flags & BLK_MQ_F_BLOCKING) ||
	       blk_integrity_queue_supports_integrity(q);
}
EXPORT_SYMBOL_GPL(rnbd_helper_bdev_may_sleep);
