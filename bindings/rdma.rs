// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs and the RDMA connection manager.
//!
//! Would be: `rust/kernel/rdma.rs`.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)
//!
//! Lifetimes follow from ownership. A [`QueuePair`] owns its [`cm::Id`] and holds its
//! [`CompletionQueue`] and its [`ProtectionDomain`], which hold the [`Device`]. Buffers and memory
//! regions belong to a protection domain and are released with it at the earliest, see
//! [`pd::Retained`]. A work request names only memory of the domain of its queue pair. The memory
//! of a [`ScatterTable`](crate::scatterlist::ScatterTable) goes back to its user sooner: a
//! [`MemoryRegion`] knows when no request and no key reaches the memory any more, see [`mr`].

pub mod access;
pub mod batch;
pub mod chunk;
pub mod client;
pub mod cm;
pub mod cq;
pub mod device;
mod drain;
pub mod message_buffers;
pub mod mr;
pub mod pd;
mod poller;
mod posting;
pub mod qp;
mod receive;
pub mod send_pages;
#[cfg(RNBD_KUNIT)]
#[path = "kunit/rdma.rs"]
mod tests;
pub(crate) mod verbs;
pub mod wc;
pub mod wr;

pub use crate::dma::Direction;
pub use access::Access;
pub use batch::{
    SendBatch,
    SendRoom,
    Unposted, //
};
pub use cq::{
    CompletionQueue,
    PollContext, //
};
pub use device::{
    Device,
    DeviceHandle, //
};
pub use mr::MemoryRegion;
pub(crate) use mr::REGION_PAGE_SIZE;
pub use pd::ProtectionDomain;
pub use qp::{
    Capabilities,
    Handler,
    QueuePair,
    QueuePairRef,
    Receive, //
};
pub use wc::{
    Opcode,
    Status,
    WorkCompletion, //
};
pub use wr::{
    RemoteMemory,
    Sge,
    WrId, //
};
