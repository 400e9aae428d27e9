// SPDX-License-Identifier: GPL-2.0

//! Files that are disks, and small files of a module ([`directory`]). Would extend:
//! `rust/kernel/fs.rs`, which has files of processes and the `kiocb` of a driver's own file, but
//! opens none and submits nothing.
//!
//! A file is looked up ([`file::Found`]), opened ([`file::RegularFile`]), and asked for requests
//! ([`disk::OpenFile`]), with the same access types, completions and memory as a block device has
//! ([`bio`](crate::block::bio)). A request is a `kiocb` over the pages of its memory.
//!
//! # Submission without sleeping
//!
//! Every request is carried out by a work item of its own, on a queue that the file has for itself,
//! where it may sleep. `IOCB_NOWAIT` is not used, because requests sleep in spite of it (read in
//! 7.2 and 7.3):
//!
//! - `iomap_dio_rw()`, by which XFS, ext4, btrfs and f2fs do direct IO, allocates its own structure
//!   and each bio with `GFP_KERNEL`, and waits for that memory.
//! - It never marks a bio `REQ_NOWAIT`. A disk with a queue that is full, frozen or throttled
//!   therefore has the submission wait for as long as it takes.
//! - Since 7.3 a direct read of XFS and ext4 tries `__iomap_dio_read_simple()` first, which takes
//!   both into account. But a read of a hole, of preallocated blocks or of two extents goes on by
//!   `iomap_dio_rw()`, and nothing tells beforehand which reads these are.
//! - A read through the page cache may wait for a page that another task reads, and `fsync` and
//!   `fallocate` have no such flag.
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

mod pool;
mod slot;
mod target;
