// SPDX-License-Identifier: GPL-2.0

//! A group for tasks that wait for their requests.

use core::ops::Deref;
use kernel::sync::Arc;
use kernel_ext::{
    module::ModuleReference,
    page::buffer::PageBuffer,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    }, //
};
use proto::group::{
    reads::ReadPolicy,
    Members, //
};
use rtrs_client::{
    TaskTag,
    TaskTags, //
};

use crate::{
    events::{
        Ended,
        GroupEvents, //
    },
    group::{
        Group,
        Permit, //
    },
    member::Member,
    this, //
};

/// A group for tasks that wait for their requests. Any number of tasks may use it at the same time.
/// The group chooses the tags, and copies the data, once for all members. Dropping it closes the
/// sessions, and sleeps.
pub struct SyncGroup {
    group: Group,
    events: Arc<Events>,
}

/// The result of a write that at least one member has confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The number of the write; 0 for a write to a single member.
    pub number: u64,
    /// The members that have confirmed the write.
    pub confirmed: Members,
    /// The members that the write was sent to, and that have not confirmed it.
    pub failed: Members,
}

/// The group's events, passed on to the tasks.
struct Events {
    tags: Arc<TaskTags>,
    /// By tag. Made when the members are known.
    ends: SetOnce<KVVec<WriteEnd>>,
}

/// The result of a tag's write.
struct WriteEnd {
    number: Atomic<u64>,
    confirmed: Atomic<u32>,
    failed: Atomic<u32>,
}

impl SyncGroup {
    /// Makes a group as [`Group::new`] does, with its errors. Sleeps.
    pub fn open(members: KVec<Member>, policy: ReadPolicy) -> Result<Arc<Self>> {
        let events = Events::new()?;
        let group = Group::new(members, policy, events.clone())?;
        events.make(group.queue_depth())?;
        Ok(Arc::new(Self { group, events }, GFP_KERNEL)?)
    }

    /// Sends a write with `header` and `bytes` to all members that take writes, and waits until
    /// each has confirmed it or has failed. If `bytes` are empty there is only the header. Sleeps.
    ///
    /// If no member has confirmed the write, returns the error of the member that failed first.
    /// Otherwise errors are those of [`Permit::write`], and `EINTR` if the task is killed while it
    /// waits for a free tag.
    pub fn write(&self, header: &[u8], bytes: &[u8]) -> Result<Written> {
        self.written(bytes, |permit, queue| permit.write(queue, header).map(drop))
    }

    /// As [`Self::write`], to one member: see [`Permit::write_to`].
    pub fn write_to(&self, member: usize, header: &[u8], bytes: &[u8]) -> Result<Written> {
        self.written(bytes, |permit, queue| {
            permit.write_to(member, queue, header)
        })
    }

    fn written(
        &self,
        bytes: &[u8],
        send: impl FnOnce(Permit<'_>, u32) -> Result,
    ) -> Result<Written> {
        self.length(bytes)?;
        let tag = self.events.tags.take()?;
        // The tag's last request has ended, so its permit is there.
        let mut permit = self.group.permit(tag.number()).ok_or(EBUSY)?;
        permit.copy(bytes)?;
        send(permit, self.group.queue_of_current_cpu())?;
        self.events.wait(&tag)
    }

    /// Sends a read with `header` to one member, and waits for the response, which goes to `bytes`.
    /// If a member does not respond, or responds with an error, another member is asked. Sleeps.
    ///
    /// The server need not fill all of `bytes`. If all members have failed, returns the error of
    /// the last one. Otherwise errors are those of [`Permit::read`], and `EINTR` as for
    /// [`Self::write`].
    pub fn read(&self, header: &[u8], bytes: &mut [u8]) -> Result {
        let len = self.length(bytes)?;
        let (mut except, mut last) = (Members::NONE, Err(ECONNABORTED));
        loop {
            let tag = self.events.tags.take()?;
            let permit = self.group.permit(tag.number()).ok_or(EBUSY)?;
            let buffer = PageBuffer::with_len(bytes.len())?;
            let sent =
                permit.read(
                    self.group.queue_of_current_cpu(),
                    header,
                    except,
                    |table| match len {
                        0 => {
                            table.clear();
                            Ok(())
                        }
                        _ => table.set_buffer(buffer, len),
                    },
                );
            let member = match sent {
                Ok(member) => member,
                // All members have been asked.
                Err(error) if error == ECONNABORTED && !except.is_empty() => return last,
                Err(error) => return Err(error),
            };
            last = tag.wait();
            // Also after an error: otherwise the tag would keep the buffer.
            let permit = self.group.permit(tag.number()).ok_or(EBUSY)?;
            let buffer = self.group.take_buffer(&permit, member);
            if last.is_err() {
                except = except.with(member);
                continue;
            }
            return match len {
                0 => Ok(()),
                _ => buffer.ok_or(EIO)?.read(0, bytes),
            };
        }
    }

    /// The length of `bytes`. `EMSGSIZE` if one request cannot have that many.
    fn length(&self, bytes: &[u8]) -> Result<u32> {
        let len = u32::try_from(bytes.len()).map_err(|_| EMSGSIZE)?;
        if len > self.group.max_io_size() {
            return Err(EMSGSIZE);
        }
        Ok(len)
    }
}

/// The group, for its limits, and the states of its members.
impl Deref for SyncGroup {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl Events {
    /// Makes the events of a group that is about to be made.
    fn new() -> Result<Arc<Self>> {
        let (tags, ends) = (TaskTags::new()?, SetOnce::new());
        Ok(Arc::new(Self { tags, ends }, GFP_KERNEL)?)
    }

    /// Makes `count` tags, which are free. Sleeps.
    fn make(&self, count: u32) -> Result {
        let mut ends = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        for _ in 0..count {
            let none = WriteEnd {
                number: Atomic::new(0),
                confirmed: Atomic::new(0),
                failed: Atomic::new(0),
            };
            ends.push(none, GFP_KERNEL)?;
        }
        self.ends.populate(ends);
        self.tags.make(count)
    }

    fn end(&self, tag: u32) -> Option<&WriteEnd> {
        self.ends.as_ref()?.get(tag as usize)
    }

    /// Waits for the end of the write of `tag`, which was sent.
    fn wait(&self, tag: &TaskTag<'_>) -> Result<Written> {
        tag.wait()?;
        let end = self.end(tag.number()).ok_or(EIO)?;
        Ok(Written {
            number: end.number.load(ordering::Relaxed),
            confirmed: Members::from_bits(end.confirmed.load(ordering::Relaxed)),
            failed: Members::from_bits(end.failed.load(ordering::Relaxed)),
        })
    }
}

impl GroupEvents for Events {
    fn ended(&self, ended: &Ended) {
        // The waiting task sees these values when it is woken.
        if let Some(end) = self.end(ended.tag) {
            let (confirmed, failed) = (ended.confirmed.to_bits(), ended.failed.to_bits());
            end.number.store(ended.number, ordering::Relaxed);
            end.confirmed.store(confirmed, ordering::Relaxed);
            end.failed.store(failed, ordering::Relaxed);
        }
        self.tags.ended(ended.tag, ended.result);
    }

    /// A reference to this module, which has the code that drops a `Self`.
    fn module(&self) -> Result<ModuleReference> {
        this::module()
    }
}
