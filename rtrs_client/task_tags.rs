// SPDX-License-Identifier: GPL-2.0

//! The tags of tasks that wait for their requests: [`SyncSession`](crate::SyncSession) has them for
//! a session, and `rtrs_group::SyncGroup` for a group.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        completion::Completion,
        set_once::SetOnce, //
    }, //
};

use crate::outcome::Outcome;

/// The tags of tasks that wait for their requests, and how the request of each tag has ended.
///
/// A user makes this object before it opens the session or the group, since events may come as soon
/// as that is open. The user [makes](Self::make) the tags when their number is known.
///
/// # Invariants
///
/// - Each tag is in `free`, or a task has it. `free` has room for all tags.
/// - `turns` is signalled once for each tag in `free`, except for tags that a task is just about to
///   take out.
#[pin_data]
pub struct TaskTags {
    outcomes: SetOnce<KVVec<Pin<KBox<Outcome>>>>,
    #[pin]
    free: Mutex<KVVec<u32>>,
    #[pin]
    turns: Completion,
}

/// A tag that a task has until this object is dropped.
pub struct TaskTag<'a> {
    number: u32,
    tags: &'a TaskTags,
}

impl TaskTags {
    /// Makes an object without tags. Sleeps.
    // Not inlined into other modules: lockdep knows a lock class by the address of its name.
    #[inline(never)]
    pub fn new() -> Result<Arc<Self>> {
        // INVARIANT: There are no tags.
        Arc::pin_init(
            pin_init!(Self {
                outcomes: SetOnce::new(),
                free <- new_mutex!(KVVec::new(), "rtrs_client::TaskTags::free"),
                turns <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes the tags below `count`, all of them free. Sleeps. `EEXIST` if the tags are made
    /// already.
    pub fn make(&self, count: u32) -> Result {
        let mut outcomes = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        for _ in 0..count {
            outcomes.push(KBox::pin_init(Outcome::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut numbers = KVVec::with_capacity(outcomes.len(), GFP_KERNEL)?;
        for number in 0..count {
            numbers.push(number, GFP_KERNEL)?;
        }
        if !self.outcomes.populate(outcomes) {
            return Err(EEXIST);
        }
        // INVARIANT: Each tag is free, and is signalled for below.
        *self.free.lock() = numbers;
        for _ in 0..count {
            self.turns.complete();
        }
        Ok(())
    }

    /// Waits for a free tag, and takes it. Sleeps. `EINTR` if the task is killed before.
    pub fn take(&self) -> Result<TaskTag<'_>> {
        self.turns.wait_killable().map_err(|_| EINTR)?;
        // By the type invariant `free` has a tag for each signal.
        let number = self.free.lock().pop().ok_or(EBUSY)?;
        Ok(TaskTag { number, tags: self })
    }

    /// Notes that the request of `tag` has ended with `result`, and wakes the task that waits for
    /// it. Any context; never sleeps.
    pub fn ended(&self, tag: u32, result: Result) {
        let outcomes = self.outcomes.as_ref();
        if let Some(outcome) = outcomes.and_then(|outcomes| outcomes.get(tag as usize)) {
            outcome.ended(result);
        }
    }
}

impl TaskTag<'_> {
    /// The number of the tag.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the end of the tag's request, which was sent, and returns its result. Sleeps.
    pub fn wait(&self) -> Result {
        let outcomes = self.tags.outcomes.as_ref().ok_or(EIO)?;
        outcomes.get(self.number as usize).ok_or(EIO)?.wait()
    }
}

impl Drop for TaskTag<'_> {
    fn drop(&mut self) {
        // INVARIANT: The tag is free from here on, and signalled for. `free` has room for all tags.
        let _ = self.tags.free.lock().push_within_capacity(self.number);
        self.tags.turns.complete();
    }
}
