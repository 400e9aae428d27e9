// SPDX-License-Identifier: GPL-2.0
/*
 * Disks of ours, with attributes in their own directory; see helpers.h.
 */

#include <linux/blkdev.h>
#include <linux/device.h>
#include <linux/export.h>
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
