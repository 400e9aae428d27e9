// SPDX-License-Identifier: GPL-2.0

//! Requests whose completions are polled for instead of raising interrupts.

use kernel::sync::rcu;

use crate::session::Session;

/// The most completions that are processed by one poll of a connection.
const POLL_BUDGET: u32 = 64;

impl Session {
    /// Processes completions of polled queue `queue`, counted from the first polled queue. Returns
    /// how many were processed. Any context that may poll.
    pub fn poll(&self, queue: u32) -> u32 {
        let first = usize::from(self.num_irq_queues()).wrapping_add(1);
        let cid = first.wrapping_add(queue as usize);
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return 0;
        };
        let sets = paths.iter().filter_map(|path| path.connections(&guard));
        let polled = sets.filter_map(|set| set.get(cid));
        polled.fold(0, |found, connection| {
            let queue = connection.queue_pair().completion_queue();
            found.wrapping_add(queue.process_direct(POLL_BUDGET))
        })
    }
}
