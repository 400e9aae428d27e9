// SPDX-License-Identifier: GPL-2.0

//! A session for tasks that wait for their requests.

use core::ops::Deref;
use kernel::sync::Arc;
use kernel_ext::{
    module::ModuleReference,
    page::buffer::PageBuffer,
    prelude::*, //
};

use crate::{
    events::{
        SessionEvents,
        SubmitError, //
    },
    globals::globals,
    owned_session::OwnedSession,
    requests::request::Kind,
    session::OpenParams,
    session_core::SessionCore,
    task_tags::TaskTags, //
};

/// A session for tasks that wait for their requests: [`Self::write`] and [`Self::read`] return when
/// the server has responded. Dropping the last reference closes the session, and sleeps.
///
/// Any number of tasks may use the session at the same time. The session chooses the tags, and
/// copies the data. Users for which that is too slow use a [`Session`](crate::Session) itself.
///
/// # Examples
///
/// ```ignore
/// let session = SyncSession::open(&params)?;
/// session.write(b"colour", b"blue")?;
/// ```
pub struct SyncSession {
    session: OwnedSession,
    tags: Arc<TaskTags>,
}

/// The session's events, passed on to the tasks.
struct Events {
    tags: Arc<TaskTags>,
}

impl SyncSession {
    /// Opens a session as [`Session::open`](crate::Session::open) does, with its errors. Sleeps.
    pub fn open(params: &OpenParams<'_>) -> Result<Arc<Self>> {
        let tags = TaskTags::new()?;
        let events = Events { tags: tags.clone() };
        let session = OwnedSession::open(params, Arc::new(events, GFP_KERNEL)?)?;
        tags.make(session.queue_depth())?;
        Ok(Arc::new(Self { session, tags }, GFP_KERNEL)?)
    }

    /// Sends a write with `header` and `bytes`, and waits for the server's response. Without bytes
    /// there is only the header. Sleeps.
    ///
    /// Returns the server's error. `ECONNABORTED` if no path is up, or if the paths were lost
    /// before the server responded; then the server may have carried the request out or not.
    /// `EMSGSIZE` for a header or data that are too long
    /// ([`MAX_USER_HEADER`](crate::MAX_USER_HEADER),
    /// [`max_io_size`](crate::SessionCore::max_io_size)). `EAGAIN` if some resource is short for
    /// the moment. `EINTR` if the task is killed while it waits for a free tag. A task that has
    /// sent its request waits for the end of the request.
    pub fn write(&self, header: &[u8], bytes: &[u8]) -> Result {
        let len = self.length(bytes)?;
        if len == 0 {
            return self.request(Kind::HeaderOnly, header, None).map(drop);
        }
        let mut buffer = PageBuffer::with_len(bytes.len())?;
        buffer.write(0, bytes)?;
        let data = Some((buffer, len));
        self.request(Kind::Write, header, data).map(drop)
    }

    /// Sends a read with `header`, and waits for the server's response, which goes to `bytes`.
    /// Sleeps. The errors are those of [`Self::write`].
    ///
    /// The server need not fill all of `bytes`, and does not say how many it has filled. The data
    /// itself has to say so; otherwise the rest is undefined.
    pub fn read(&self, header: &[u8], bytes: &mut [u8]) -> Result {
        let len = self.length(bytes)?;
        if len == 0 {
            return self.request(Kind::Read, header, None).map(drop);
        }
        let data = Some((PageBuffer::with_len(bytes.len())?, len));
        let buffer = self.request(Kind::Read, header, data)?;
        buffer.ok_or(EIO)?.read(0, bytes)
    }

    /// The length of `bytes`. `EMSGSIZE` if one request cannot have that many.
    fn length(&self, bytes: &[u8]) -> Result<u32> {
        let len = u32::try_from(bytes.len()).map_err(|_| EMSGSIZE)?;
        if len > self.session.max_io_size() {
            return Err(EMSGSIZE);
        }
        Ok(len)
    }

    /// Sends a request with the data of a buffer, if any, and waits for its end. Gives the buffer
    /// back. Sleeps.
    fn request(
        &self,
        kind: Kind,
        header: &[u8],
        data: Option<(PageBuffer, u32)>,
    ) -> Result<Option<PageBuffer>> {
        let tag = self.tags.take()?;
        // The tag's last request has ended, so its permit is there.
        let mut permit = self.session.permit(tag.number()).ok_or(EBUSY)?;
        if let Some((buffer, len)) = data {
            permit.scatter().ok_or(EBUSY)?.set_buffer(buffer, len)?;
        }
        let queue = self.session.queue_of_current_cpu();
        let sent = self.session.send(permit, kind, queue, header);
        let result = match sent {
            Ok(()) => tag.wait(),
            Err(error) => Err(error.to_error()),
        };
        // Also after an error: otherwise the tag would keep the buffer.
        let permit = self.session.permit(tag.number());
        let buffer = permit.and_then(|mut permit| permit.scatter()?.take_buffer());
        result.map(|()| buffer)
    }
}

/// The limits of the session.
impl Deref for SyncSession {
    type Target = SessionCore;

    fn deref(&self) -> &SessionCore {
        &self.session
    }
}

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        self.tags.ended(tag, result);
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        self.tags.ended(tag, Err(error.to_error()));
    }

    /// A reference to this module, which has the code that drops a `Self`.
    fn module(&self) -> Result<ModuleReference> {
        (globals()?.module)()
    }
}
