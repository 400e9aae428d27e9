// SPDX-License-Identifier: GPL-2.0

//! The modules' synchronisation, on loom's.

#[path = "atomic.rs"]
pub mod atomic;
#[path = "../../../bindings/sync/box_slot.rs"]
pub mod box_slot;
#[path = "../../../bindings/sync/noted_slot.rs"]
pub mod noted_slot;
#[path = "../../../bindings/sync/set_once.rs"]
pub mod set_once;
#[path = "spinlock_irq.rs"]
pub mod spinlock_irq;
#[path = "../../../bindings/sync/state_cell.rs"]
pub mod state_cell;
