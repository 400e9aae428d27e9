// SPDX-License-Identifier: GPL-2.0

//! A group for tasks that wait for their requests.

use core::ops::Deref;
use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    cpu,
    module::ModuleReference,
    page::buffer::PageBuffer,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        set_once::SetOnce, //
    }, //
};
use proto::group::{
    reads::ReadPolicy,
    Members, //
};
use rtrs_client::Outcome;

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
/// It chooses the tags, and copies the data, once for all members. Dropping it closes the sessions,
/// and sleeps.
pub struct SyncGroup {
    group: Group,
    tags: Arc<Tags>,
}

/// How a write has ended that at least one member has confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The number of the write; 0 if it was to a single member.
    pub number: u64,
    /// The members that have confirmed it.
    pub confirmed: Members,
    /// The members that it was sent to, and that have not confirmed it.
    pub failed: Members,
}

/// The tags of a group.
///
/// # Invariants
///
/// A tag is in `free`, or a task has it; `free` has room for all tags. `turns` is signalled once
/// for each tag in `free`, but for those that a task is just about to take out.
#[pin_data]
struct Tags {
    places: SetOnce<KVVec<Place>>,
    #[pin]
    free: Mutex<KVVec<u32>>,
    #[pin]
    turns: Completion,
}

/// How the request of a tag has ended.
struct Place {
    outcome: Pin<KBox<Outcome>>,
    number: Atomic<u64>,
    confirmed: Atomic<u32>,
    failed: Atomic<u32>,
}

/// A tag that a task has, until this is dropped.
struct Tag<'a> {
    number: u32,
    tags: &'a Tags,
}

impl SyncGroup {
    /// Makes a group as [`Group::new`] does, with its errors. Sleeps.
    pub fn open(members: KVec<Member>, policy: ReadPolicy) -> Result<Arc<Self>> {
        let tags = Tags::new()?;
        let group = Group::new(members, policy, tags.clone())?;
        tags.make(group.queue_depth())?;
        Ok(Arc::new(Self { group, tags }, GFP_KERNEL)?)
    }

    /// Sends a write with `header` and `bytes` to all members that take writes, and waits until
    /// each has confirmed it or has failed. Without bytes there is only the header. Sleeps.
    ///
    /// The error of the member that failed first if none has confirmed it, and those of
    /// [`Permit::write`]; `EINTR` if the task is killed while it waits for a free tag.
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
        let len = self.length(bytes)?;
        let tag = self.tags.take()?;
        // The tag's last request has ended, so its permit is there.
        let mut permit = self.group.permit(tag.number).ok_or(EBUSY)?;
        if len != 0 {
            let mut buffer = PageBuffer::with_len(bytes.len())?;
            buffer.write(0, bytes)?;
            permit.fill(|table| table.set_buffer(buffer, len))?;
        }
        // The responses then come to this CPU.
        send(permit, cpu::current_cpu())?;
        tag.wait()
    }

    /// Sends a read with `header` to one member, and waits for its response, which goes to `bytes`.
    /// If a member does not respond, or says that it has failed, another one is asked. Sleeps.
    ///
    /// The server need not fill all of the bytes. The last member's error if all have failed; those
    /// of [`Permit::read`]; `EINTR` as of [`Self::write`].
    pub fn read(&self, header: &[u8], bytes: &mut [u8]) -> Result {
        let len = self.length(bytes)?;
        let (mut except, mut last) = (Members::NONE, Err(ECONNABORTED));
        loop {
            let tag = self.tags.take()?;
            let permit = self.group.permit(tag.number).ok_or(EBUSY)?;
            let buffer = PageBuffer::with_len(bytes.len())?;
            let sent = permit.read(cpu::current_cpu(), header, except, |table| match len {
                0 => {
                    table.clear();
                    Ok(())
                }
                _ => table.set_buffer(buffer, len),
            });
            let member = match sent {
                Ok(member) => member,
                // All have been asked.
                Err(error) if error == ECONNABORTED && !except.is_empty() => return last,
                Err(error) => return Err(error),
            };
            last = tag.wait().map(drop);
            // Of a read that failed, too: the tag would keep it otherwise.
            let permit = self.group.permit(tag.number).ok_or(EBUSY)?;
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

    /// The length of `bytes`, if one request can have as many.
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

impl Tags {
    /// No tags yet.
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                places: SetOnce::new(),
                free <- new_mutex!(KVVec::new(), "rtrs_group::SyncGroup::free"),
                turns <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes `count` tags, which are free. Sleeps.
    fn make(&self, count: u32) -> Result {
        let mut places = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        let mut free = self.free.lock();
        free.reserve(usize::try_from(count)?, GFP_KERNEL)?;
        for number in 0..count {
            let place = Place {
                outcome: KBox::pin_init(Outcome::new(), GFP_KERNEL)?,
                number: Atomic::new(0),
                confirmed: Atomic::new(0),
                failed: Atomic::new(0),
            };
            places.push(place, GFP_KERNEL)?;
            // INVARIANT: It is signalled for, too.
            free.push(number, GFP_KERNEL)?;
            self.turns.complete();
        }
        drop(free);
        self.places.populate(places);
        Ok(())
    }

    /// Waits for a free tag, and takes it. `EINTR` if the task is killed before.
    fn take(&self) -> Result<Tag<'_>> {
        self.turns.wait_killable().map_err(|_| EINTR)?;
        // By the type invariant there is one for each signal.
        let number = self.free.lock().pop().ok_or(EBUSY)?;
        Ok(Tag { number, tags: self })
    }

    fn place(&self, tag: u32) -> Option<&Place> {
        self.places.as_ref()?.get(tag as usize)
    }
}

impl Tag<'_> {
    /// Waits for the end of the tag's request, which was sent.
    fn wait(&self) -> Result<Written> {
        let place = self.tags.place(self.number).ok_or(EIO)?;
        place.outcome.wait()?;
        Ok(Written {
            number: place.number.load(ordering::Relaxed),
            confirmed: Members::from_bits(place.confirmed.load(ordering::Relaxed)),
            failed: Members::from_bits(place.failed.load(ordering::Relaxed)),
        })
    }
}

impl Drop for Tag<'_> {
    fn drop(&mut self) {
        // INVARIANT: It is free from here on, and signalled for. There is room: it was there.
        let _ = self.tags.free.lock().push_within_capacity(self.number);
        self.tags.turns.complete();
    }
}

impl GroupEvents for Tags {
    fn ended(&self, ended: &Ended) {
        let Some(place) = self.place(ended.tag) else {
            return;
        };
        // The task that waits sees these when it is woken up.
        let (confirmed, failed) = (ended.confirmed.to_bits(), ended.failed.to_bits());
        place.number.store(ended.number, ordering::Relaxed);
        place.confirmed.store(confirmed, ordering::Relaxed);
        place.failed.store(failed, ordering::Relaxed);
        place.outcome.ended(ended.result);
    }

    /// This module's: the code that lets go of a `Self` is part of it.
    fn module(&self) -> Result<ModuleReference> {
        this::module()
    }
}
