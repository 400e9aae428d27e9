// SPDX-License-Identifier: GPL-2.0
/*
 * Small files of a module in a directory of its own, which are written as a
 * whole; see helpers.h. Names are single components, which the callers check.
 *
 * Files are opened, renamed and removed with the credentials of the kernel:
 * modprobe, workers and the task that writes to sysfs may all have others.
 */

#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/export.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/mount.h>
#include <linux/namei.h>

#include "compat.h"
#include "helpers.h"

/*
 * Follows the path from init's root, as rnbd_helper_kern_path() does. -EINVAL if
 * the file system has nothing to wait for in fsync(), as it is in memory.
 */
struct file *rnbd_helper_directory_open(const char *name)
{
	CLASS(override_creds, creds)(kernel_cred());
	struct file *dir = ERR_PTR(-ENOENT);
	struct path path;
	int err = -ENOENT;

	scoped_with_init_fs()
		err = kern_path(name, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);
	if (err)
		return ERR_PTR(err);
	dir = dentry_open(&path, O_RDONLY | O_DIRECTORY, current_cred());
	path_put(&path);
	if (!IS_ERR(dir) && dir->f_op->fsync == noop_fsync) {
		__fput_sync(dir);
		return ERR_PTR(-EINVAL);
	}
	return dir;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_open);

/*
 * Opens a regular file, to be read or to be written anew. Links are not
 * followed, and a FIFO does not block.
 */
static struct file *open_in(struct file *dir, const char *name, int flags)
{
	CLASS(override_creds, creds)(kernel_cred());
	struct file *file = ERR_PTR(-ENOENT);

	scoped_with_init_fs()
		file = file_open_root(&dir->f_path, name,
				      flags | O_NOFOLLOW | O_NONBLOCK | O_LARGEFILE, 0600);
	if (!IS_ERR(file) && !S_ISREG(file_inode(file)->i_mode)) {
		__fput_sync(file);
		return ERR_PTR(-EINVAL);
	}
	return file;
}

/* Reads a file up to its end or that of the buffer; the number of bytes. */
ssize_t rnbd_helper_directory_read(struct file *dir, const char *name, void *buf, size_t size)
{
	struct file *file = open_in(dir, name, O_RDONLY);
	size_t done = 0;
	loff_t pos = 0;
	ssize_t ret;

	if (IS_ERR(file))
		return PTR_ERR(file);
	do {
		ret = kernel_read(file, buf + done, size - done, &pos);
		if (ret > 0)
			done += ret;
	} while (ret > 0 && done < size);
	__fput_sync(file);
	return ret < 0 ? ret : done;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_read);

/*
 * Writes a new file in the place of whatever has this name, and waits until it
 * is on stable storage. After an error there is no file of this name, so that
 * it does not take the space that the next call needs.
 */
int rnbd_helper_directory_write(struct file *dir, const char *name, const void *buf, size_t size)
{
	struct file *file;
	bool begun = false;
	loff_t pos = 0;
	ssize_t ret;

	/* Not truncated: it could have another owner, or be a link of a file elsewhere. */
	ret = rnbd_helper_directory_remove(dir, name, &begun);
	if (ret && ret != -ENOENT)
		return ret;
	file = open_in(dir, name, O_WRONLY | O_CREAT | O_EXCL);
	if (IS_ERR(file))
		return PTR_ERR(file);
	ret = 0;
	while (pos < size) {
		ret = kernel_write(file, buf + pos, size - pos, &pos);
		if (ret <= 0)
			break;
	}
	if (pos < size)
		ret = ret < 0 ? ret : -EIO;
	else
		ret = vfs_fsync(file, 0);
	__fput_sync(file);
	if (ret)
		rnbd_helper_directory_remove(dir, name, &begun);
	return ret;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_write);

/*
 * Gives a file another name, in the place of the file that had it. *begun says
 * whether the file system was asked to: then an error does not mean that it has
 * not done so (a response of NFS that is lost).
 */
int rnbd_helper_directory_rename(struct file *dir, const char *from, const char *to,
				 bool *begun)
{
	CLASS(override_creds, creds)(kernel_cred());
	struct renamedata renamed = {
		.mnt_idmap = file_mnt_idmap(dir),
		.old_parent = dir->f_path.dentry,
		.new_parent = dir->f_path.dentry,
	};
	struct qstr old = QSTR(from), new = QSTR(to);
	int err;

	err = mnt_want_write_file(dir);
	if (err)
		return err;
	err = start_renaming(&renamed, 0, &old, &new);
	if (!err) {
		*begun = true;
		err = vfs_rename(&renamed);
		end_renaming(&renamed);
	}
	mnt_drop_write_file(dir);
	return err;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_rename);

/* Removes a file; *begun as above. */
int rnbd_helper_directory_remove(struct file *dir, const char *name, bool *begun)
{
	CLASS(override_creds, creds)(kernel_cred());
	struct mnt_idmap *idmap = file_mnt_idmap(dir);
	struct dentry *dentry;
	int err;

	err = mnt_want_write_file(dir);
	if (err)
		return err;
	dentry = start_removing(idmap, dir->f_path.dentry, &QSTR(name));
	err = PTR_ERR_OR_ZERO(dentry);
	if (!err) {
		*begun = true;
		err = vfs_unlink(idmap, file_inode(dir), dentry, NULL);
		end_removing(dentry);
	}
	mnt_drop_write_file(dir);
	return err;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_remove);

/* Whether an open file is in the directory by the name that it was opened by. */
bool rnbd_helper_directory_holds(struct file *dir, struct file *file)
{
	struct dentry *parent = dget_parent(file->f_path.dentry);
	bool holds = d_inode(parent) == file_inode(dir);

	dput(parent);
	return holds;
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_holds);

/* Waits until the names of the files are on stable storage. */
int rnbd_helper_directory_sync(struct file *dir)
{
	return vfs_fsync(dir, 0);
}
EXPORT_SYMBOL_GPL(rnbd_helper_directory_sync);
