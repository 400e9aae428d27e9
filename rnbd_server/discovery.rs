// SPDX-License-Identifier: GPL-2.0

//! Telling clients which disks they could open. An extension.
//!
//! The questions of all sessions are served one after the other, on a workqueue of their own: one
//! question of each session in turn. So nothing else waits for the file systems and disks that are
//! looked at.

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    block::{
        bdev::BlockDevice,
        disk::Mode, //
    },
    fs::file::{
        Found,
        Kind,
        RegularFile, //
    },
    pr_err_ratelimited,
    prelude::*,
    time::Deadline,
    workqueue, //
};
use proto::{
    file_disk::Blocks,
    name::Name,
    rnbd::{
        Discover,
        DiscoverRsp,
        DiscoverRspWriter,
        FoundDisk,
        IoMode,
        Modes,
        Wwid, //
    },
    search_path,
    PATH_MAX, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Direction,
    Operation, //
};

use crate::{
    disk::{
        Disk,
        LocalId, //
    },
    file::facts_of,
    params::{
        DEV_SEARCH_PATH,
        DISCOVERY,
        FILE_IO_MODE, //
    },
    session::Session,
    walk::Walk, //
};

/// For how long disks are looked at for one response, in ms, and how many paths at most.
const PAGE_MS: u32 = 200;
const PAGE_PATHS: usize = 512;

/// The questions of a session.
#[pin_data]
pub(crate) struct Discovery {
    session: Arc<Session>,
    /// The questions without a response yet, at most one for each chunk of the session.
    #[pin]
    list: Mutex<KVec<Question>>,
    /// Where the last response has ended; used by the work item alone.
    #[pin]
    progress: Mutex<Option<Progress>>,
    #[pin]
    work: Work<Discovery>,
}

struct Question {
    op: Operation,
    request: Discover,
}

/// A walk that is interrupted, so that the next question need not begin it anew.
struct Progress {
    /// The question for which the walk goes on.
    next: Discover,
    walk: Walk,
    /// The walk is at a disk of which the client was not told yet.
    is_pending: bool,
}

impl_has_work! {
    impl HasWork<Self> for Discovery { self.work }
}

impl WorkItem for Discovery {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let question = {
            let mut list = this.list.lock();
            if list.is_empty() {
                return;
            }
            list.remove(0)
        };
        if let Ok(Question { op, request }) = question {
            let server = this.session.server();
            let result = server.kept_loaded(|| this.answer(&op, &request));
            op.respond(result.inspect_err(|error| {
                pr_err_ratelimited!(
                    "session {:?}: listing the disks for the client failed: {:?}\n",
                    this.session.name().as_cstr(),
                    error
                );
            }));
        }
        // Further questions wait: the work is queued behind that of other sessions.
        if !this.list.lock().is_empty() {
            this.queue();
        }
    }
}

impl Discovery {
    /// Makes the work item, without questions. Sleeps.
    pub(crate) fn new(session: Arc<Session>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session,
                list <- new_mutex!(KVec::new(), "Discovery::list"),
                progress <- new_mutex!(None, "Discovery::progress"),
                work <- new_work!("Discovery::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a question responded to, later. Sleeps, but does not wait for disks.
    pub(crate) fn enqueue(self: &Arc<Self>, op: Operation, request: Discover) {
        // Without memory the question is dropped, and its operation responded to.
        let question = Question { op, request };
        if self.list.lock().push(question, GFP_KERNEL).is_ok() {
            self.queue();
        }
    }

    fn queue(self: &Arc<Self>) {
        // If the work is queued already, it finds all questions.
        let queue = self.session.server().discovery_queue();
        let _ = queue.enqueue::<Self, 0>(self.clone());
    }

    /// Ends the work item, when the session has no operations any more. Sleeps.
    pub(crate) fn stop(self: &Arc<Self>) {
        workqueue::cancel_sync::<Self, 0>(self);
        *self.progress.lock() = None;
    }

    /// Writes the response to a question; returns its length in bytes. Sleeps.
    ///
    /// `EOPNOTSUPP` if discovery is switched off, `EHOSTDOWN` while the server drains, `EMSGSIZE`
    /// if the client left no room for a disk, `ENOMEM`, and `EINVAL` for a search path that is too
    /// long.
    fn answer(&self, op: &Operation, request: &Discover) -> Result<u32> {
        let session = &*self.session;
        if !*DISCOVERY.get() {
            return Err(EOPNOTSUPP);
        }
        session.server().drain().admits()?;
        let room = match op.direction() {
            Direction::Read => (op.data_len() as usize).min(DiscoverRsp::MAX_SIZE),
            Direction::Write => 0,
        };
        let mut bytes = KVec::from_elem(0u8, room, GFP_KERNEL)?;
        let mut writer = DiscoverRspWriter::new(&mut bytes).ok_or(EMSGSIZE)?;
        let mut place = self.progress.lock();
        let mut progress = match place.take() {
            Some(progress) if progress.next == *request => progress,
            _ => begin(session, request)?,
        };
        let more = fill(session, &mut writer, &mut progress)?;
        let len = writer.finish(more);
        if more {
            *place = Some(progress);
        }
        let response = bytes.get(..len).ok_or(EINVAL)?;
        op.write_response(response)?;
        Ok(u32::try_from(len)?)
    }
}

/// Begins the walk that a question asks for.
fn begin(session: &Session, request: &Discover) -> Result<Progress> {
    let mut buffer = KVec::from_elem(0u8, PATH_MAX, GFP_KERNEL)?;
    let buffer = buffer.as_mut_slice().try_into().map_err(|_| EINVAL)?;
    let folder = search_path::folder(DEV_SEARCH_PATH.get().as_bytes(), session.name(), buffer)
        .map_err(|refused| from_errno(refused.errno()))?;
    Ok(Progress {
        next: *request,
        walk: Walk::new(folder, gives_file(session, folder), request.after.as_ref())?,
        is_pending: false,
    })
}

/// Whether a regular file with this path, or the files in the folder with this path, can be opened.
fn gives_file(session: &Session, path: &CStr) -> bool {
    let has_policy = session.server().policy().is_loaded();
    search_path::gives_file(
        DEV_SEARCH_PATH.get().as_bytes(),
        has_policy,
        path.to_bytes(),
    )
}

/// Fills a response. Returns whether there may be more disks.
fn fill(
    session: &Session,
    writer: &mut DiscoverRspWriter<'_>,
    progress: &mut Progress,
) -> Result<bool> {
    let deadline = Deadline::after(PAGE_MS);
    for _ in 0..PAGE_PATHS {
        if !core::mem::take(&mut progress.is_pending) && !progress.walk.next()? {
            return Ok(false);
        }
        let walk = &progress.walk;
        if let Some(disk) = look(session, walk.path()?, walk.name()) {
            if !writer.push(&disk) {
                progress.is_pending = true;
                return Ok(true);
            }
            progress.next.after = Name::new(walk.name()).ok();
        }
        if deadline.left() == 0 {
            break;
        }
    }
    Ok(true)
}

/// What a client is told of a disk, and the disk's number.
struct Facts {
    local_id: LocalId,
    wwid: Wwid,
    nsectors: u64,
    logical_block_size: u32,
    is_file: bool,
    is_used: bool,
    is_read_only: bool,
}

/// Looks at the disk with this path. `None` if there is no disk that this client could open. Sleeps
/// as long as it takes to open the disk.
fn look<'a>(session: &Session, path: &CStr, name: &'a [u8]) -> Option<FoundDisk<'a>> {
    // The policy comes before the look-up, so that a client learns nothing of a path that it may
    // not open.
    let mut allowed = Modes::NONE;
    for mode in Modes::ALL {
        let policy = session.server().policy();
        if policy.allows(session.subject(), &session.clients().lock(), path, mode) {
            allowed = allowed.with(mode);
        }
    }
    if allowed.is_empty() {
        return None;
    }
    let found = Found::look_up(path).ok()?;
    let facts = match found.kind() {
        Kind::BlockDevice => facts_of_device(path)?,
        Kind::Regular if gives_file(session, path) => facts_of_file(session, &found)?,
        Kind::Regular | Kind::Other => return None,
    };
    let (writers, opens) = session.server().exports().use_of(facts.local_id);
    let mut modes = Modes::NONE;
    for mode in Modes::ALL {
        let is_possible = mode.is_read_only() || !facts.is_read_only;
        if allowed.has(mode) && is_possible && writers.opened(mode).is_ok() {
            modes = modes.with(mode);
        }
    }
    let own = Name::new(name).ok()?;
    Some(FoundDisk {
        path: name,
        wwid: facts.wwid,
        nsectors: facts.nsectors,
        logical_block_size: facts.logical_block_size,
        sessions: u16::try_from(opens).unwrap_or(u16::MAX),
        modes,
        is_file: facts.is_file,
        is_own: session.devices().find_by_name(&own).is_some(),
        is_used: facts.is_used,
    })
}

/// The facts of a block device. `None` if it cannot be opened, or is empty, as a drive without a
/// medium is.
fn facts_of_device(path: &CStr) -> Option<Facts> {
    let device = BlockDevice::open(path, Mode::Read).ok()?;
    let disk = Disk::BlockDevice(&device);
    let nsectors = device.nr_sectors();
    (nsectors > 0).then(|| Facts {
        local_id: disk.local_id(),
        wwid: disk.wwid().unwrap_or(Wwid::NONE),
        nsectors,
        logical_block_size: device.logical_block_size(),
        is_file: false,
        is_used: device.is_held(),
        is_read_only: device.is_read_only(),
    })
}

/// The facts of a file. `None` if it cannot be a disk.
fn facts_of_file(session: &Session, found: &Found) -> Option<Facts> {
    let file = RegularFile::open(found, Mode::Read, false).ok()?;
    let disk = Disk::File(&file);
    let local_id = disk.local_id();
    let used: Option<IoMode> = session.server().exports().io_mode_of(local_id);
    let io_mode = used.unwrap_or(FILE_IO_MODE.get().0);
    let facts = facts_of(file.facts());
    let blocks = Blocks::of(&facts, io_mode).ok()?;
    Some(Facts {
        local_id,
        wwid: disk.wwid().unwrap_or(Wwid::NONE),
        nsectors: blocks.nr_sectors(facts.size),
        logical_block_size: blocks.logical,
        is_file: true,
        is_used: false,
        is_read_only: found.is_read_only(),
    })
}
