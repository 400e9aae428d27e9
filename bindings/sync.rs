// SPDX-License-Identifier: GPL-2.0

//! Synchronisation. Would extend `kernel::sync`.

pub mod atomic;
pub mod box_slot;
pub mod completion;
pub mod gate;
mod lock_class;
pub mod noted_slot;
pub mod rcu;
pub mod set_once;
pub(crate) mod shared_memory;
pub mod spinlock_irq;
pub mod state_cell;
