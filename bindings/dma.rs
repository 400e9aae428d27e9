// SPDX-License-Identifier: GPL-2.0

//! The direction of DMA.
//!
//! Would extend: `rust/kernel/dma.rs`.

use crate::{
    bindings,
    compat::dma_data_direction, //
};

/// How a device accesses memory that is mapped for it (C: `enum dma_data_direction`).
///
/// Memory can be mapped with each of these directions. The kernel crate's type also has `DMA_NONE`,
/// for which the DMA API stops the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Direction {
    /// The device reads and writes.
    Bidirectional = dma_data_direction::BIDIRECTIONAL,
    /// The device reads.
    ToDevice = dma_data_direction::TO_DEVICE,
    /// The device writes.
    FromDevice = dma_data_direction::FROM_DEVICE,
}

impl Direction {
    /// Whether memory that may be accessed in direction `self` may be accessed in direction
    /// `other`.
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
