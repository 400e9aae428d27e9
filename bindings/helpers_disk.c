// SPDX-License-Identifier: GPL-2.0
/*
 * Disks of ours, with attributes in their own directory, and changes of their limits; see
 * helpers.h.
 */

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/export.h>
#include <linux/jiffies.h>
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
 * Begins: nobody else changes limits, and no new request is let in. `limits` become the present ones.
 */
void rnbd_helper_limits_begin(struct request_queue *q, struct queue_limits *limits)
{
	*limits = queue_limits_start_update(q);
	blk_freeze_queue_start(q);
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_begin);

/* Waits for the requests that were let in before; whether all have ended. */
bool rnbd_helper_limits_wait(struct request_queue *q, unsigned int ms)
{
	return blk_mq_freeze_queue_wait_timeout(q, msecs_to_jiffies(ms)) > 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_wait);

/* Ends the change with these limits, when all requests have ended. */
int rnbd_helper_limits_commit(struct request_queue *q, struct queue_limits *limits)
{
	int error = queue_limits_commit_update(q, limits);

	blk_mq_unfreeze_queue_nomemrestore(q);
	return error;
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_commit);

/* Ends the change without one. */
void rnbd_helper_limits_cancel(struct request_queue *q)
{
	queue_limits_cancel_update(q);
	blk_mq_unfreeze_queue_nomemrestore(q);
}
EXPORT_SYMBOL_GPL(rnbd_helper_limits_cancel);
