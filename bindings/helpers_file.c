// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of inline functions and macros for files; see helpers.h.
 */

#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/export.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/mempool.h>
#include <linux/namei.h>
#include <linux/stat.h>
#include <linux/uio.h>

#include "compat.h"
#include "helpers.h"

/* Looks the path up from init's root: kernel threads have none of their own. */
int rnbd_helper_kern_path(const char *name, struct path *path)
{
	int err = -ENOENT;

	scoped_with_init_fs()
		err = kern_path(name, LOOKUP_FOLLOW, path);
	return err;
}
EXPORT_SYMBOL_GPL(rnbd_helper_kern_path);

/* The type and permissions of what the path leads to. */
unsigned int rnbd_helper_path_mode(const struct path *path)
{
	return d_backing_inode(path->dentry)->i_mode;
}
EXPORT_SYMBOL_GPL(rnbd_helper_path_mode);

/* Which file the path leads to, as rnbd_helper_file_facts() says of an open one. */
int rnbd_helper_path_id(const struct path *path, u32 *dev, u64 *ino)
{
	struct kstat stat = {};
	int err;

	err = vfs_getattr(path, &stat, STATX_INO, AT_STATX_SYNC_AS_STAT);
	if (err)
		return err;
	*dev = stat.dev;
	*ino = stat.ino;
	return 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_path_id);

/* The number of the device that the path leads to, if it leads to one. */
u32 rnbd_helper_path_rdev(const struct path *path)
{
	return d_backing_inode(path->dentry)->i_rdev;
}
EXPORT_SYMBOL_GPL(rnbd_helper_path_rdev);

/* Whether a file that can be opened with these flags takes no direct IO. */
static bool lacks_direct_io(const struct path *path, int flags)
{
	struct file *file = dentry_open(path, flags, current_cred());
	bool lacks;

	if (IS_ERR(file))
		return false;
	lacks = !(file->f_mode & FMODE_CAN_ODIRECT);
	fput(file);
	return lacks;
}

/*
 * Opens a regular file; -EOPNOTSUPP if it takes no direct IO. may_open(), which
 * dentry_open() does not call, refuses to write to an immutable file or one
 * that can only be appended to. A disk's reads are not noted in its image, as
 * that would be a write for each read.
 */
struct file *rnbd_helper_open_regular(const struct path *path, bool write, bool direct)
{
	struct inode *inode = d_backing_inode(path->dentry);
	int flags = O_LARGEFILE | O_NOATIME;
	struct file *file;

	if (!S_ISREG(inode->i_mode))
		return ERR_PTR(-ENOTBLK);
	/* proc, sysfs and the like; also mounts made in another user namespace. */
	if (inode->i_sb->s_iflags & SB_I_NODEV)
		return ERR_PTR(-ENOTBLK);
	if (IS_SWAPFILE(inode))
		return ERR_PTR(-ETXTBSY);
	if (write && (IS_IMMUTABLE(inode) || IS_APPEND(inode)))
		return ERR_PTR(-EPERM);
	flags |= write ? O_RDWR : O_RDONLY;
	file = dentry_open(path, flags | (direct ? O_DIRECT : 0), current_cred());
	if (direct && file == ERR_PTR(-EINVAL) && lacks_direct_io(path, flags))
		return ERR_PTR(-EOPNOTSUPP);
	return file;
}
EXPORT_SYMBOL_GPL(rnbd_helper_open_regular);

/*
 * Whether a file that is open can be read and written by kiocbs. A file that
 * cannot be mapped is an interface to something (configfs, efivarfs), no data.
 */
bool rnbd_helper_file_has_data(struct file *file)
{
	return can_mmap_file(file) && file->f_op->read_iter &&
	       (!(file->f_mode & FMODE_WRITE) || file->f_op->write_iter);
}
EXPORT_SYMBOL_GPL(rnbd_helper_file_has_data);

/*
 * Whether UUID, inode number and generation name a file of this file system for
 * good. FAT has a UUID of four bytes, and numbers that it makes up. A subvolume
 * (btrfs, with a device number of its own) has the numbers of the subvolume that
 * it is a snapshot of. overlayfs has no generations.
 */
static bool names_files(struct file *file, const struct kstat *stat)
{
	const struct super_block *sb = file_inode(file)->i_sb;

	return sb->s_uuid_len == sizeof(sb->s_uuid) && stat->dev == sb->s_dev &&
	       file_inode(file)->i_generation;
}

int rnbd_helper_file_facts(struct file *file, struct rnbd_file_facts *facts)
{
	struct kstat stat = {};
	int err;

	err = vfs_getattr(&file->f_path, &stat, STATX_BASIC_STATS | STATX_DIOALIGN,
			  AT_STATX_SYNC_AS_STAT);
	if (err)
		return err;
	facts->dev = stat.dev;
	facts->ino = stat.ino;
	facts->generation = file_inode(file)->i_generation;
	if (names_files(file, &stat))
		export_uuid(facts->fs_uuid, &file_inode(file)->i_sb->s_uuid);
	facts->size = i_size_read(file_inode(file));
	facts->block_size = i_blocksize(file_inode(file));
	facts->says_alignment = stat.result_mask & STATX_DIOALIGN;
	facts->offset_alignment = stat.dio_offset_align;
	facts->memory_alignment = stat.dio_mem_align;
	facts->has_fallocate = file->f_op->fallocate;
	facts->has_fsync = file->f_op->fsync;
	return 0;
}
EXPORT_SYMBOL_GPL(rnbd_helper_file_facts);

u64 rnbd_helper_file_size(const struct file *file)
{
	return i_size_read(file_inode(file));
}
EXPORT_SYMBOL_GPL(rnbd_helper_file_size);

/* The path of a file as init sees it; NULL if there is no room. */
char *rnbd_helper_file_path(struct file *file, char *buf, int size)
{
	char *path = NULL;

	scoped_with_init_fs()
		path = d_path(&file->f_path, buf, size);
	return IS_ERR(path) ? NULL : path;
}
EXPORT_SYMBOL_GPL(rnbd_helper_file_path);

/*
 * Reads or writes; `skip` bytes of the vectors are done already. A write has
 * to be followed by rnbd_helper_kiocb_end_write() when it has ended.
 */
ssize_t rnbd_helper_call_iter(struct kiocb *iocb, const struct bio_vec *vecs,
			      unsigned long nr_vecs, size_t len, size_t skip, bool write)
{
	const struct file_operations *op = iocb->ki_filp->f_op;
	struct iov_iter iter;

	iov_iter_bvec(&iter, write ? ITER_SOURCE : ITER_DEST, vecs, nr_vecs, len);
	iov_iter_advance(&iter, skip);
	if (!write)
		return op->read_iter(iocb, &iter);
	/* Of a block device the file system is that of all block devices. */
	if (S_ISREG(file_inode(iocb->ki_filp)->i_mode))
		kiocb_start_write(iocb);
	return op->write_iter(iocb, &iter);
}
EXPORT_SYMBOL_GPL(rnbd_helper_call_iter);

void rnbd_helper_kiocb_end_write(struct kiocb *iocb)
{
	if (S_ISREG(file_inode(iocb->ki_filp)->i_mode))
		kiocb_end_write(iocb);
}
EXPORT_SYMBOL_GPL(rnbd_helper_kiocb_end_write);

/* The flags that the kiocbs of an open file begin with. */
int rnbd_helper_file_iocb_flags(const struct file *file)
{
	return file->f_iocb_flags;
}
EXPORT_SYMBOL_GPL(rnbd_helper_file_iocb_flags);

struct mempool *rnbd_helper_mempool_create_kmalloc_pool(int min_nr, size_t size)
{
	return mempool_create_kmalloc_pool(min_nr, size);
}
EXPORT_SYMBOL_GPL(rnbd_helper_mempool_create_kmalloc_pool);
