// SPDX-License-Identifier: GPL-2.0
/*
 * A disk in memory with properties that no disk of a virtual machine has. It can
 * discard and erase securely: erased sectors read as 0xe5 and discarded ones as
 * zeroes, so that the two are told apart; "erased" counts sectors. It may have two
 * devices, as a disk with two ports has. And its identifier can be changed, or
 * be unreadable, as that of a multipath disk without a path.
 */

#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#define ERASED_BYTE	0xe5
#define MAX_DEVICES	2

static unsigned int size_mib = 16;
module_param(size_mib, uint, 0444);
MODULE_PARM_DESC(size_mib, "size of the disk in MiB");

static unsigned int max_erase_sectors = 2048;
module_param(max_erase_sectors, uint, 0444);
MODULE_PARM_DESC(max_erase_sectors, "sectors that one request may erase or discard");

static unsigned long erased;
module_param(erased, ulong, 0444);
MODULE_PARM_DESC(erased, "sectors erased so far");

static unsigned int devices = 1;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "devices of the disk: 1 or 2");

static unsigned long long id;
module_param(id, ullong, 0644);
MODULE_PARM_DESC(id, "EUI-64 of the disk; 0: it has none");

static int id_error;
module_param(id_error, int, 0644);
MODULE_PARM_DESC(id_error, "what is returned in place of the EUI-64, a negative errno; 0: nothing");

static DEFINE_SPINLOCK(erased_lock);
static struct gendisk *disks[MAX_DEVICES];
static u8 *memory;

static void transfer(struct bio *bio)
{
	size_t at = (size_t)bio->bi_iter.bi_sector << SECTOR_SHIFT;
	struct bvec_iter iter;
	struct bio_vec piece;

	bio_for_each_segment(piece, bio, iter) {
		if (bio_op(bio) == REQ_OP_WRITE)
			memcpy_from_bvec(memory + at, &piece);
		else
			memcpy_to_bvec(&piece, memory + at);
		at += piece.bv_len;
	}
}

static void fill(struct bio *bio, u8 byte)
{
	size_t at = (size_t)bio->bi_iter.bi_sector << SECTOR_SHIFT;

	memset(memory + at, byte, bio->bi_iter.bi_size);
}

static void count_erased(struct bio *bio)
{
	spin_lock(&erased_lock);
	erased += bio_sectors(bio);
	spin_unlock(&erased_lock);
}

static void erasable_submit(struct bio *bio)
{
	switch (bio_op(bio)) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		transfer(bio);
		break;
	case REQ_OP_SECURE_ERASE:
		fill(bio, ERASED_BYTE);
		count_erased(bio);
		break;
	case REQ_OP_DISCARD:
		fill(bio, 0);
		break;
	case REQ_OP_FLUSH:
		break;
	default:
		bio->bi_status = BLK_STS_NOTSUPP;
	}
	bio_endio(bio);
}

static int erasable_unique_id(struct gendisk *disk, u8 bytes[16], enum blk_unique_id type)
{
	__be64 now = cpu_to_be64(READ_ONCE(id));
	int err = READ_ONCE(id_error);

	if (err)
		return err;
	if (!now || type != BLK_UID_EUI64)
		return -EINVAL;
	memcpy(bytes, &now, sizeof(now));
	return sizeof(now);
}

static const struct block_device_operations erasable_ops = {
	.owner = THIS_MODULE,
	.submit_bio = erasable_submit,
	.get_unique_id = erasable_unique_id,
};

static struct gendisk *add_device(unsigned int number)
{
	struct queue_limits limits = {
		.max_secure_erase_sectors = max_erase_sectors,
		.max_hw_discard_sectors = max_erase_sectors,
		.discard_granularity = SECTOR_SIZE,
	};
	struct gendisk *disk = blk_alloc_disk(&limits, NUMA_NO_NODE);
	int err;

	if (IS_ERR(disk))
		return disk;
	if (number)
		snprintf(disk->disk_name, DISK_NAME_LEN, "erasable%u", number);
	else
		strscpy(disk->disk_name, "erasable", DISK_NAME_LEN);
	disk->fops = &erasable_ops;
	set_capacity(disk, (sector_t)size_mib << (20 - SECTOR_SHIFT));
	err = add_disk(disk);
	if (err) {
		put_disk(disk);
		return ERR_PTR(err);
	}
	return disk;
}

static void remove_devices(void)
{
	unsigned int i;

	for (i = 0; i < MAX_DEVICES && disks[i]; i++) {
		del_gendisk(disks[i]);
		put_disk(disks[i]);
	}
	vfree(memory);
}

static int __init erasable_init(void)
{
	struct gendisk *disk;
	unsigned int i;

	if (!size_mib || size_mib > 256 || !devices || devices > MAX_DEVICES)
		return -EINVAL;
	memory = vzalloc((size_t)size_mib << 20);
	if (!memory)
		return -ENOMEM;
	for (i = 0; i < devices; i++) {
		disk = add_device(i);
		if (IS_ERR(disk)) {
			remove_devices();
			return PTR_ERR(disk);
		}
		disks[i] = disk;
	}
	return 0;
}

static void __exit erasable_exit(void)
{
	remove_devices();
}

module_init(erasable_init);
module_exit(erasable_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Disk in memory that can erase securely, and whose identifier changes, for tests");
