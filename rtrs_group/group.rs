// SPDX-License-Identifier: GPL-2.0

//! A group of sessions with several servers, which all get the same writes.

use kernel::sync::Arc;
use kernel_ext::{
    page::{
        buffer::PageBuffer,
        send::SendPages, //
    },
    prelude::*,
    scatterlist::ScatterTable, //
};
use proto::group::{
    reads::ReadPolicy,
    Members,
    MAX_MEMBERS, //
};
use rtrs_client::{
    Kind,
    Session,
    SubmitError,
    MAX_USER_HEADER, //
};

use crate::{
    events::GroupEvents,
    group_core::{
        Core,
        Failure,
        Missing, //
    },
    member::{
        Data,
        Member, //
    },
    slots::Slot, //
};

/// The most bytes that are copied to the page of their tag, for all members.
const MAX_COPIED: usize = 4096;

/// The most memory for the pages of all tags, in bytes.
const MAX_PAGES: usize = 8 << 20;

/// A group of sessions with several servers. Dropping it closes the sessions, and sleeps;
/// afterwards no callback runs any more.
///
/// The members stay the same as long as the group exists. Their numbers follow the order in which
/// they were given. A member that has failed can [rejoin](Self::rejoin).
pub struct Group {
    // Dropped first: closing a session ends its requests, and `core` gets these events.
    members: KVec<Member>,
    core: Arc<Core>,
    /// A page for each tag, which the paths of all members have mapped. Nothing if all pages would
    /// take too much memory.
    pages: Option<Arc<SendPages>>,
    max_io_size: u32,
    max_segments: u32,
}

/// The right to send one request to a group, under one tag. Dropping the permit gives it back.
///
/// # Invariants
///
/// The tag belongs to this permit as long as `is_used` is false.
pub struct Permit<'a> {
    group: &'a Group,
    slot: &'a Slot,
    tag: u32,
    data: Option<Data<'a>>,
    is_used: bool,
}

impl Group {
    /// Makes a group of `members`, which are taken to have the same contents. Sleeps.
    ///
    /// `EINVAL` for no members, or more than [`MAX_MEMBERS`]. `EEXIST` if a member is in a group
    /// already.
    pub fn new(
        members: KVec<Member>,
        policy: ReadPolicy,
        events: Arc<dyn GroupEvents>,
    ) -> Result<Self> {
        if members.is_empty() || members.len() > MAX_MEMBERS {
            return Err(EINVAL);
        }
        let least = |limit: fn(&Session) -> u32| {
            let limits = members.iter().map(|member| limit(member.session()));
            limits.min().ok_or(EINVAL)
        };
        let tags = least(|session| session.queue_depth())?;
        let max_segments = least(|session| u32::from(session.max_segments()))?;
        let max_io_size = least(|session| session.max_io_size())?;
        let core = Core::new(events, policy)?;
        core.make(members.len(), tags, max_segments)?;
        for (index, member) in members.iter().enumerate() {
            member.join(core.clone(), index)?;
        }
        let pages = pages_of(usize::try_from(tags)?).ok();
        if let Some(pages) = &pages {
            for member in &members {
                member.session().share_pages(pages);
            }
        }
        Ok(Self {
            members,
            core,
            pages,
            max_io_size,
            max_segments,
        })
    }

    /// The number of tags: that of the member with the fewest. Any context.
    pub fn queue_depth(&self) -> u32 {
        self.core.slots.count()
    }

    /// A queue for requests of the current CPU that all members have: see
    /// [`SessionCore::queue_of_current_cpu`](rtrs_client::SessionCore::queue_of_current_cpu). Any
    /// context.
    pub fn queue_of_current_cpu(&self) -> u32 {
        // The least is in the range of each member, also if they differ. A group has members.
        let queues = self.members.iter().map(|member| member.session());
        let queues = queues.map(|session| session.queue_of_current_cpu());
        queues.fold(u32::MAX, u32::min)
    }

    /// The most data of one request, in bytes: that of the member with the least. Any context.
    pub fn max_io_size(&self) -> u32 {
        self.max_io_size
    }

    /// The most segments of the data of one request: that of the member with the fewest. Any
    /// context.
    pub fn max_segments(&self) -> u32 {
        self.max_segments
    }

    /// The members, by their numbers. Any context.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How often the data of writes that were [filled](Permit::fill) was mapped for a device: once
    /// for each write and device, as long as no path fails. Any context; looks at all tags.
    pub fn times_mapped(&self) -> u64 {
        self.core.slots.times_mapped()
    }

    /// How long a member's reads have taken lately, in ns; 0 if that is not known. Any context.
    pub fn read_latency(&self, member: usize) -> u64 {
        self.core.latency(member)
    }

    /// Sets how the member for a read is chosen from now on. Any context.
    pub fn set_read_policy(&self, policy: ReadPolicy) {
        self.core.set_policy(policy);
    }

    /// Takes the permit of `tag`. Nothing if it is taken, or if there is no such tag. Any context.
    pub fn permit(&self, tag: u32) -> Option<Permit<'_>> {
        let slot = self.core.slots.get(tag)?;
        // INVARIANT: The tag was just taken.
        slot.take().then_some(Permit {
            group: self,
            slot,
            tag,
            data: None,
            is_used: false,
        })
    }

    /// The session of a member. `ENODEV` if there is no such member.
    fn session(&self, member: usize) -> Result<&Session> {
        self.members.get(member).map(Member::session).ok_or(ENODEV)
    }

    /// The writes that a member has not confirmed. Sleeps. `ENODEV` if there is no such member.
    pub fn missing(&self, member: usize) -> Result<Missing> {
        self.core.missing(member)
    }

    /// Has a member get no more writes, as if it had failed: each later write is on its list.
    /// Writes that are in flight may still be confirmed. Any context. `ENODEV` if there is no such
    /// member.
    pub fn leave_out(&self, member: usize) -> Result {
        self.core.change(member, |one| {
            one.leave_out();
            Ok(())
        })
    }

    /// Has a member that is behind get all writes from now on. The member is not read before the
    /// user calls [`Self::in_sync`]. Any context.
    ///
    /// No earlier write gets to the member any more: a write without a response was lost with all
    /// paths of the member's session, and the server lets none in before it is done with such
    /// writes. C's servers do not wait for them.
    ///
    /// `ECONNABORTED` if none of the member's paths is up, `EINVAL` if the member is not behind,
    /// `ENODEV` if there is no such member.
    pub fn rejoin(&self, member: usize) -> Result {
        if !self.session(member)?.is_connected() {
            return Err(ECONNABORTED);
        }
        self.core.change(member, |one| one.rejoin())
    }

    /// Takes the writes from `first` to `last` off a member's list: the user says that the member
    /// has the result of these writes. Any context. `ENOSPC` if the list has no place for the
    /// writes that would be left, `ENODEV` if there is no such member.
    pub fn resolved(&self, member: usize, first: u64, last: u64) -> Result {
        self.core.change(member, |one| one.resolved(first, last))
    }

    /// Has a member that has rejoined be read again: the user says that its contents are those of
    /// the other members. Any context. `EBUSY` if there are writes on its list, `EINVAL` if it has
    /// not rejoined, or is behind again, `ENODEV` if there is no such member.
    pub fn in_sync(&self, member: usize) -> Result {
        self.core.change(member, |one| one.in_sync())
    }

    /// Takes the buffer of a read that has ended, which was sent to `member` under the tag of
    /// `permit`. Any context.
    pub fn take_buffer(&self, permit: &Permit<'_>, member: usize) -> Option<PageBuffer> {
        let mut permit = self.session(member).ok()?.permit(permit.tag)?;
        permit.scatter()?.take_buffer()
    }
}

/// Makes a page for each of `tags` tags. Sleeps. `ENOMEM` if the pages take more than
/// [`MAX_PAGES`].
fn pages_of(tags: usize) -> Result<Arc<SendPages>> {
    match tags.checked_mul(SendPages::SIZE) {
        Some(bytes) if bytes <= MAX_PAGES => SendPages::new(tags),
        _ => Err(ENOMEM),
    }
}

impl Permit<'_> {
    /// Copies the data of a write, once for all members. Not for reads. Sleeps.
    ///
    /// `EBUSY` if the permit has data already, `EMSGSIZE` for more than 4 GiB.
    pub fn copy(&mut self, bytes: &[u8]) -> Result {
        let len = u32::try_from(bytes.len()).map_err(|_| EMSGSIZE)?;
        if len == 0 {
            return Ok(());
        }
        let pages = &self.group.pages;
        match pages.as_ref().filter(|_| bytes.len() <= MAX_COPIED) {
            Some(_) if self.data.is_some() => Err(EBUSY),
            Some(pages) => {
                // No member sends from the page any more: the tag's last request has ended.
                pages.copy_in(self.tag as usize, bytes)?;
                self.data = Some(Data::InPage(pages, len));
                Ok(())
            }
            None => {
                let mut buffer = PageBuffer::with_len(bytes.len())?;
                buffer.write(0, bytes)?;
                self.fill(|table| table.set_buffer(buffer, len))
            }
        }
    }

    /// Has `fill` describe the data of a write in the table, which the members share. The data is
    /// sent from where it lies. Not for reads. `EBUSY` if the permit has data already, and the
    /// errors of `fill`.
    pub fn fill(&mut self, fill: impl FnOnce(&mut ScatterTable) -> Result) -> Result {
        if self.data.is_some() {
            return Err(EBUSY);
        }
        self.data = Some(Data::Shared(self.slot.data.fill(fill)?));
        Ok(())
    }

    /// Sends a write to all members that take writes, and returns its number. The write has no data
    /// if the permit has none. `queue` is as for [`Submission::add`](rtrs_client::Submission::add).
    /// Any context; never sleeps.
    ///
    /// [`GroupEvents::ended`] follows, perhaps before this returns. After an error it does not, and
    /// there is no such write: `EMSGSIZE` for a header or data that are too long, `ECONNABORTED` if
    /// all members are behind.
    pub fn write(self, queue: u32, header: &[u8]) -> Result<u64> {
        self.check(header)?;
        self.write_checked(queue, |_| header)
    }

    /// As [`Self::write`], with a header for each member.
    pub fn write_each<'h>(self, queue: u32, header: impl Fn(usize) -> &'h [u8]) -> Result<u64> {
        for member in 0..self.group.members.len() {
            self.check(header(member))?;
        }
        self.write_checked(queue, header)
    }

    /// As [`Self::write_each`], with headers and data that are not too long.
    fn write_checked<'h>(self, queue: u32, header: impl Fn(usize) -> &'h [u8]) -> Result<u64> {
        let (number, members) = self.group.core.begin_write()?;
        self.send_to(members, number, queue, header);
        Ok(number)
    }

    /// As [`Self::write`], to a single member in any state, to bring it a write that it has missed.
    /// The new write has no number, and is on no list. `ENODEV` if there is no such member.
    pub fn write_to(self, member: usize, queue: u32, header: &[u8]) -> Result {
        self.check(header)?;
        self.group.session(member)?;
        self.send_to(Members::only(member), 0, queue, |_| header);
        Ok(())
    }

    fn check(&self, header: &[u8]) -> Result {
        let len = self.data.as_ref().map_or(0, Data::byte_len);
        if header.len() > MAX_USER_HEADER || len > self.group.max_io_size as usize {
            return Err(EMSGSIZE);
        }
        Ok(())
    }

    fn send_to<'h>(
        mut self,
        members: Members,
        number: u64,
        queue: u32,
        header: impl Fn(usize) -> &'h [u8],
    ) {
        let core = &self.group.core;
        // INVARIANT: The request has the tag from here on.
        self.is_used = true;
        // The time of a write with a number is not measured.
        let now = match number {
            0 => core.slots.now(),
            _ => 0,
        };
        self.slot.begin(number, members, now);
        let numbered = self.group.members.iter().enumerate();
        for (index, member) in numbered.filter(|(index, _)| members.has(*index)) {
            let sent = member.send_write(self.tag, queue, header(index), self.data.as_ref());
            if let Err(error) = sent {
                core.member_ended(self.tag, index, Err(Failure::Refused(error)));
            }
        }
        // Dropped before the request can end, so that the tag's next request finds its table free.
        drop(self.data.take());
        core.sender_ended(self.tag, self.slot);
    }

    /// Sends a read to one member that is in sync, connected, and not in `except`. Returns the
    /// member, which the policy has chosen. `fill` describes the memory for the data, in the table
    /// of that member's request. Any context in which `fill` may be called; never sleeps.
    ///
    /// [`GroupEvents::ended`] follows, perhaps before this returns. After an error it does not:
    /// `ECONNABORTED` if there is no such member, `EMSGSIZE` for a header that is too long, the
    /// errors of `fill`, and `EAGAIN` if some resource is short for the moment.
    pub fn read(
        mut self,
        queue: u32,
        header: &[u8],
        except: Members,
        fill: impl FnOnce(&mut ScatterTable) -> Result,
    ) -> Result<usize> {
        let (group, core) = (self.group, &self.group.core);
        let can_be = |member: usize| {
            let session = group.session(member);
            !except.has(member) && session.is_ok_and(Session::is_connected)
        };
        let member = core.choose(can_be).ok_or(ECONNABORTED)?;
        let session = group.session(member)?;
        let mut permit = session.permit(self.tag).ok_or(EBUSY)?;
        fill(permit.scatter().ok_or(EBUSY)?)?;
        let now = core.slots.now();
        self.slot.begin(0, Members::only(member), now);
        let sent = session.send(permit, Kind::Read, queue, header);
        // If the request was not sent, no other party uses the slot.
        sent.map_err(SubmitError::to_error)?;
        // INVARIANT: The request has the tag.
        self.is_used = true;
        core.sender_ended(self.tag, self.slot);
        Ok(member)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            drop(self.data.take());
            self.slot.give_back();
        }
    }
}
