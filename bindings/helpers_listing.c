// SPDX-License-Identifier: GPL-2.0
/*
 * The names in a folder; see helpers.h.
 */

#include <linux/cred.h>
#include <linux/export.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/sched.h>

#include "compat.h"
#include "helpers.h"

struct listing {
	struct dir_context ctx;
	rnbd_take_name_t take;
	void *taker;
	/* How many names it still takes. */
	unsigned int left;
	/* Whether there was a name in this round. */
	bool found;
};

static enum rnbd_entry entry_of(unsigned int type)
{
	switch (type) {
	case DT_DIR:
		return RNBD_ENTRY_FOLDER;
	case DT_LNK:
		return RNBD_ENTRY_LINK;
	case DT_REG:
		return RNBD_ENTRY_FILE;
	case DT_BLK:
		return RNBD_ENTRY_BLOCK_DEVICE;
	case DT_UNKNOWN:
		return RNBD_ENTRY_UNKNOWN;
	default:
		return RNBD_ENTRY_OTHER;
	}
}

static bool take_name(struct dir_context *ctx, const char *name, int len, loff_t pos, u64 ino,
		      unsigned int type)
{
	struct listing *listing = container_of(ctx, struct listing, ctx);

	if (!listing->left)
		return false;
	listing->left--;
	listing->found = true;
	listing->take(listing->taker, name, len, entry_of(type));
	return true;
}

/*
 * Calls take() for each name in the folder, looked up from init's root, with
 * "." and "..". take() must not call the file system, which may hold a lock of
 * the folder. -EFBIG if there are more than max names.
 */
int rnbd_helper_list_folder(const char *name, unsigned int max, rnbd_take_name_t take, void *taker)
{
	CLASS(override_creds, creds)(kernel_cred());
	struct listing listing = {
		.ctx.actor = take_name,
		.take = take,
		.taker = taker,
		.left = max,
	};
	int err = -ENOENT;
	struct file *dir;
	struct path path;

	scoped_with_init_fs()
		err = kern_path(name, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);
	if (err)
		return err;
	dir = dentry_open(&path, O_RDONLY | O_DIRECTORY | O_NOATIME, current_cred());
	path_put(&path);
	if (IS_ERR(dir))
		return PTR_ERR(dir);
	/* One call gives as many names as the file system likes to. */
	do {
		listing.found = false;
		err = iterate_dir(dir, &listing.ctx);
		cond_resched();
	} while (!err && listing.found && listing.left);
	__fput_sync(dir);
	return err ?: listing.left ? 0 : -EFBIG;
}
EXPORT_SYMBOL_GPL(rnbd_helper_list_folder);

/* Whether nothing can be written to what the path leads to. */
bool rnbd_helper_path_is_read_only(const struct path *path)
{
	return __mnt_is_readonly(path->mnt) || IS_IMMUTABLE(d_backing_inode(path->dentry));
}
EXPORT_SYMBOL_GPL(rnbd_helper_path_is_read_only);
