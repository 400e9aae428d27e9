// SPDX-License-Identifier: GPL-2.0

//! Mirrors: the kernel's md RAID1 over disks of two or more servers. A mirror survives the loss of
//! a server.
//!
//! - [`names`]: the names of mirrors and of their legs.
//! - [`superblock`]: reads md's superblock of a leg.
//! - [`record`]: this machine's record of each mirror.
//! - [`array`]: reads the state of a running mirror from the kernel's files.
//! - [`start`]: decides whether a mirror may be started, and from which legs; pure functions.
//! - [`tend`]: decides what a leg of a running mirror needs; pure functions.
//! - [`view`]: the record, the array and the legs of a mirror at one moment.
//! - [`tool`]: runs `mdadm`, `blkpr`, `blkid` and `modprobe`.
//! - [`reserve`]: reserves a leg for this machine.
//! - [`create`]: creates mirrors.
//! - [`replace`]: replaces legs by other disks.
//! - [`grow`]: grows mirrors whose legs have grown.
//! - [`act`]: starts mirrors.
//! - [`stop`]: stops and removes mirrors.
//! - [`repair`]: tends mirrors: starts them, brings legs back.

pub mod act;
pub mod array;
pub mod create;
pub mod grow;
pub mod names;
pub mod record;
pub mod repair;
pub mod replace;
pub mod reserve;
pub mod start;
pub mod stop;
pub mod superblock;
pub mod tend;
pub mod tool;
pub mod view;

pub use names::LegName;
pub use names::MirrorName;
pub use record::Record;
pub use view::View;
