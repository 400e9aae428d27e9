// SPDX-License-Identifier: GPL-2.0

//! Disks that this machine offers, with blk-mq. Would extend `kernel::block::mq`.

pub mod expired;
pub mod gen_disk;
pub mod limits;
pub mod operations;
pub mod request;
pub mod request_table;
pub mod reservation;
mod reservation_table;
mod set_data;
pub mod tag_set;
pub mod timed_requests;
