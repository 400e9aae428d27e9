// SPDX-License-Identifier: GPL-2.0

//! What was read below the RCU read lock is used after the lock is released.

use kernel::sync::rcu;
use kernel_ext::sync::rcu::RcuArc;

/// The mistake.
pub fn late(shared: &RcuArc<u32>) -> u32 {
    let value = {
        let guard = rcu::read_lock();
        shared.load_ref(&guard).copied();
        shared.load_ref(&guard) //~ E0597
    };
    value.copied().unwrap_or(0)
}
