// SPDX-License-Identifier: GPL-2.0

//! Numbers of CPUs.
//!
//! Would extend: `rust/kernel/cpu.rs`.
//!
//! C header: [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h)

use crate::bindings;

pub use kernel::cpu::nr_cpu_ids;

/// The number of CPUs that are running now.
pub fn online_cpus() -> u32 {
    // SAFETY: The function has no requirements.
    unsafe { bindings::rnbd_helper_num_online_cpus() }
}

/// The CPU on which the caller runs; less than [`nr_cpu_ids`].
///
/// Unless preemption is off, the caller may be on another CPU by the time it uses the number.
#[inline]
pub fn current_cpu() -> u32 {
    kernel::cpu::CpuId::current().as_u32()
}

/// The CPUs that this machine can have, in ascending order (`for_each_possible_cpu`).
pub fn possible_cpus() -> impl Iterator<Item = u32> {
    let next = |start: u32| {
        // SAFETY: The function has no requirements.
        let cpu = unsafe { bindings::rnbd_helper_next_possible_cpu(start) };
        (cpu < nr_cpu_ids()).then_some(cpu)
    };
    core::iter::successors(next(0), move |cpu| next(cpu + 1))
}
