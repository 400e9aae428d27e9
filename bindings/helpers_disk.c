// SPDX-License-Identifier: GPL-2.0
/*
 * Disks of ours, with attributes in their own directory, and changes of their limits; see
 * helpers.h.
 */

#include <linux/backing-dev.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/pagemap.h>
#include <linux/mutex.h>
#include <linux/sysfs.h>

#include "helpers.h"

static size_t wwid_of(struct device *dev, char *wwid)
{
	struct gendisk *disk = dev_to_disk(dev);

	return container_of_const(disk->fops, struct rnbd_disk_operations, block)->wwid(disk, wwid);
}

static ssize_t wwid_show(struct device *dev, struct device_attribute *attr, char *page)
{
	char wwid[RNBD_WWID_LEN];

	return sysfs_emit(page, "%.*s\n", (int)wwid_of(dev, wwid), wwid);
}
static DEVICE_ATTR_RO(wwid);

static umode_t is_visible(struct kobject *kobj, struct attribute *attr, int index)
{
	char wwid[RNBD_WWID_LEN];

	return wwid_of(kobj_to_dev(kobj), wwid) ? attr->mode : 0;
}

static struct attribute *attributes[] = { &dev_attr_wwid.attr, NULL };

static const struct attribute_group group = {
	.attrs = attributes,
	.is_visible = is_visible,
};

static const struct attribute_group *groups[] = { &group, NULL };

/* Adds a disk whose operations are those of a struct rnbd_disk_operations. */
int rnbd_helper_add_disk(struct gendisk *disk)
{
	return device_add_disk(NULL, disk, groups);
}
EXPORT_SYMBOL_GPL(rnbd_helper_add_disk);

/*
 * A change of limits in steps, as queue_limits_commit_update_frozen() does it at once, so that the
 * wait for requests can be given up. The caller allocates without IO from the first step on.
 *
 * Takes `limits_lock`, so that no other task changes limits, lets no new request in, and copies the
 * present limits. If another task has the lock, sleeps for `ms` and returns false: that task may be
 * waiting for requests.
 */
bool rnbd_helper_limits_begin(struct request_queue *q, struct queue_limits *limits, unsigned int ms)
{
	if (!mutex_trylock(&q->limits_lock)) {
		msleep(ms);
		return false;
	}
	*limits = q->limits;
	blk_freeze_queue_start(q);
	return true;
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_begin);

/* Waits for the requests that were let in before; whether all have ended. */
bool rnbd_helper_limits_wait(struct request_queue *q, unsigned int ms)
{
	return blk_mq_freeze_queue_wait_timeout(q, msecs_to_jiffies(ms)) > 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_wait);

/*
 * Ends the change with these limits, when all requests have ended.
 *
 * The block layer raises the read-ahead to what is usual with each commit. The administrator's value
 * is put back. That is done after the unfreeze: the order of locks is `limits_lock` before a freeze.
 */
int rnbd_helper_limits_commit(struct request_queue *q, struct queue_limits *limits)
{
	struct backing_dev_info *bdi = q->disk->bdi;
	/* queue/read_ahead_kb is written under limits_lock, which the first step has taken. */
	unsigned long ra_pages = bdi->ra_pages;
	int error = queue_limits_commit_update(q, limits);
	/* What blk_apply_bdi_limits() makes of it. */
	unsigned long raised = max3(ra_pages, (unsigned long)((u64)limits->io_opt * 2 >> PAGE_SHIFT),
				    VM_READAHEAD_PAGES);

	blk_mq_unfreeze_queue_nomemrestore(q);
	if (error)
		return error;
	mutex_lock(&q->limits_lock);
	/* The administrator may have written another value by now. */
	if (bdi->ra_pages == raised)
		WRITE_ONCE(bdi->ra_pages, ra_pages);
	mutex_unlock(&q->limits_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_commit);

/* Ends the change without one. */
void rnbd_helper_limits_cancel(struct request_queue *q)
{
	queue_limits_cancel_update(q);
	blk_mq_unfreeze_queue_nomemrestore(q);
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_cancel);

/* Of block/blk-stat.h, which is not among the headers for modules. */
void blk_stat_enable_accounting(struct request_queue *q);
void blk_stat_disable_accounting(struct request_queue *q);

/*
 * Has the block layer note for each request when it began to wait for its tag, and when the driver
 * got it. Returns whether this has set the flag for the first of the two, which has one user at a
 * time; the cost controller of control groups (io.cost) may be that user.
 */
bool rnbd_helper_times_begin(struct request_queue *q)
{
	blk_stat_enable_accounting(q);
#ifdef CONFIG_BLK_RQ_ALLOC_TIME
	return !test_and_set_bit(QUEUE_FLAG_RQ_ALLOC_TIME, &q->queue_flags);
#else
	return false;
#endif
}
EXPORT_SYMBOL_GPL(rnbd_helper_times_begin);

/* Ends that; with what it returned. */
void rnbd_helper_times_end(struct request_queue *q, bool was_set)
{
#ifdef CONFIG_BLK_RQ_ALLOC_TIME
	if (was_set)
		blk_queue_flag_clear(QUEUE_FLAG_RQ_ALLOC_TIME, q);
#endif
	blk_stat_disable_accounting(q);
}
EXPORT_SYMBOL_GPL(rnbd_helper_times_end);
