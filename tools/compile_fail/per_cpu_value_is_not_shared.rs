// SPDX-License-Identifier: GPL-2.0

//! A value that several CPUs must not use at once is one of each CPU, whose task may move.

use core::cell::Cell;
use kernel_ext::percpu::PerCpu;

/// The mistake.
pub fn count(counters: &PerCpu<Cell<u64>>) {
    //~^ E0277
    let _ = counters;
}
