// SPDX-License-Identifier: GPL-2.0

//! Which way data goes.
//!
//! Would extend: `rust/kernel/dma.rs`.

use crate::{
    bindings,
    compat::dma_data_direction, //
};

/// How a device accesses memory that is mapped for it (C: `enum dma_data_direction`).
///
/// Unlike that of the kernel crate it always is one that memory can be mapped with: for `DMA_NONE`
/// the DMA API stops the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Direction {
    /// It reads and writes.
    Bidirectional = dma_data_direction::BIDIRECTIONAL,
    /// It reads.
    ToDevice = dma_data_direction::TO_DEVICE,
    /// It writes.
    FromDevice = dma_data_direction::FROM_DEVICE,
}

impl Direction {
    /// Whether memory that may be accessed in this way may be accessed as `other` says.
    #[inline(always)]
    pub(crate) fn permits(self, other: Self) -> bool {
        self == Self::Bidirectional || self == other
    }
}

impl From<Direction> for bindings::dma_data_direction {
    #[inline(always)]
    fn from(direction: Direction) -> Self {
        dma_data_direction::from(direction as i32)
    }
}
