// SPDX-License-Identifier: GPL-2.0

//! Which way data goes.
//!
//! Would extend: `rust/kernel/dma.rs`.

use crate::bindings;

/// How a device accesses memory that is mapped for it (C: `enum dma_data_direction`).
///
/// Unlike that of the kernel crate it always is one that memory can be mapped with: for `DMA_NONE`
/// the DMA API stops the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Direction {
    /// It reads and writes.
    Bidirectional = bindings::dma_data_direction::DMA_BIDIRECTIONAL.0,
    /// It reads.
    ToDevice = bindings::dma_data_direction::DMA_TO_DEVICE.0,
    /// It writes.
    FromDevice = bindings::dma_data_direction::DMA_FROM_DEVICE.0,
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
        Self(direction as i32)
    }
}
