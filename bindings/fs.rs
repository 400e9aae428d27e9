// SPDX-License-Identifier: GPL-2.0

//! Files that are used as disks, and small files of a module ([`directory`]). Would extend:
//! `rust/kernel/fs.rs`, which has files of processes and the `kiocb` of a driver's own file, but
//! neither opens files nor submits requests.
//!
//! A file is looked up ([`file::Found`]), opened ([`file::RegularFile`]), and used for requests
//! ([`disk::OpenFile`]), with the same access types, completions and memory as a block device
//! ([`bio`](crate::block::bio)). A request is a `kiocb` over the pages of its memory.
//!
//! # Submission without sleeping
//!
//! Every request is carried out by a work item, which may sleep, on a workqueue of the file. A work
//! item carries out its own request and those that have come to the same CPU meanwhile. While
//! requests wait, another work item is queued, so a request that sleeps does not hold them up.
//! `IOCB_NOWAIT` is not used, because requests sleep in spite of it (as the source of 7.2 and
//! 7.3 shows):
//!
//! - `iomap_dio_rw()`, with which XFS, ext4, btrfs and f2fs do direct IO, allocates its own
//!   structure and each bio with `GFP_KERNEL`, and waits for that memory.
//! - `iomap_dio_rw()` never marks a bio `REQ_NOWAIT`. So the submission waits as long as the queue
//!   of the disk is full, frozen or throttled.
//! - Since 7.3 a direct read of XFS and ext4 tries `__iomap_dio_read_simple()` first, which waits
//!   in neither case. But a read of a hole, of preallocated blocks or of two extents goes on with
//!   `iomap_dio_rw()`, and these reads cannot be told beforehand.
//! - A read through the page cache may wait for a page that another task reads.
//! - `fsync` and `fallocate` have no such flag.
//!
//! The work of a request runs on the CPU that submitted it. Requests never wait for requests of
//! another file. Requests of the same file wait for each other where the file system makes them
//! wait, and beyond 64 of them on a CPU: while the file system is frozen, 64 writes hold up reads.
//!
//! C header: [`include/linux/fs.h`](srctree/include/linux/fs.h)

pub mod directory;
pub mod disk;
pub mod file;
pub mod listing;

mod backlog;
mod pool;
mod slot;
mod target;
