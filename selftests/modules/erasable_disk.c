// SPDX-License-Identifier: GPL-2.0
/*
 * A disk in memory that can discard and erase securely: no virtual machine has
 * one, and the tests need one. Erased sectors read as 0xe5 and discarded ones
 * as zeroes, so that the two are told apart; "erased" counts sectors.
 */

#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#define ERASED_BYTE	0xe5

static unsigned int size_mib = 16;
module_param(size_mib, uint, 0444);
MODULE_PARM_DESC(size_mib, "size of the disk in MiB");

static unsigned int max_erase_sectors = 2048;
module_param(max_erase_sectors, uint, 0444);
MODULE_PARM_DESC(max_erase_sectors, "sectors that one request may erase or discard");

static unsigned long erased;
module_param(erased, ulong, 0444);
MODULE_PARM_DESC(erased, "sectors erased so far");

static DEFINE_SPINLOCK(erased_lock);
static struct gendisk *disk;
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

static const struct block_device_operations erasable_ops = {
	.owner = THIS_MODULE,
	.submit_bio = erasable_submit,
};

static int __init erasable_init(void)
{
	struct queue_limits limits = {
		.max_secure_erase_sectors = max_erase_sectors,
		.max_hw_discard_sectors = max_erase_sectors,
		.discard_granularity = SECTOR_SIZE,
	};
	int err;

	if (!size_mib || size_mib > 256)
		return -EINVAL;
	memory = vzalloc((size_t)size_mib << 20);
	if (!memory)
		return -ENOMEM;
	disk = blk_alloc_disk(&limits, NUMA_NO_NODE);
	if (IS_ERR(disk)) {
		err = PTR_ERR(disk);
		goto free;
	}
	strscpy(disk->disk_name, "erasable", DISK_NAME_LEN);
	disk->fops = &erasable_ops;
	set_capacity(disk, (sector_t)size_mib << (20 - SECTOR_SHIFT));
	err = add_disk(disk);
	if (err)
		goto put;
	return 0;
put:
	put_disk(disk);
free:
	vfree(memory);
	return err;
}

static void __exit erasable_exit(void)
{
	del_gendisk(disk);
	put_disk(disk);
	vfree(memory);
}

module_init(erasable_init);
module_exit(erasable_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Disk in memory that can erase securely, for tests");
