// SPDX-License-Identifier: GPL-2.0

//! Asking servers which disks this client could map (`/dev/rnbd-discover`). An extension.
//!
//! User space writes a line that names a session, with the options of `map_device`, and reads lines
//! with a disk each ([`FoundDisk::write_line`]). Each open file is a question of its own, which has
//! one page of the server's response at a time.

use core::marker::PhantomData;
use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    ModuleMetadata, //
};
use kernel_ext::{
    device::misc::OpenFile,
    prelude::*, //
};
use proto::{
    map_options,
    rnbd::{
        Discover,
        DiscoverRsp,
        FoundDisk, //
    }, //
};
use rtrs_core::error::from_errno;

use crate::client::{
    Client,
    SessionUser, //
};

/// The most disks of a server that are told; a hostile server could go on for ever.
const MAX_DISKS: u32 = 100_000;
/// The most responses without a disk, one after the other.
const MAX_EMPTY: u32 = 600;

/// An open file, which keeps the module `M` loaded.
#[pin_data]
pub(crate) struct Discovery<M> {
    client: Arc<Client>,
    _module: PhantomData<fn() -> M>,
    #[pin]
    state: Mutex<State>,
}

enum State {
    /// Nothing was written yet.
    New,
    /// The server is being asked.
    Asking(Asking),
    /// All was read, or the server's responses have ended with an error.
    Ended,
}

/// What is known of a server's disks.
///
/// # Invariants
///
/// `page` is what [`DiscoverRsp::parse`] has taken as the response to `request`, or all zeroes
/// while nothing is known.
struct Asking {
    user: SessionUser,
    page: KVec<u8>,
    request: Discover,
    /// The disks of this page that were read.
    read: usize,
    /// What to ask next; nothing at the end.
    next: Option<Discover>,
    /// The disks of the pages before.
    told: u32,
}

impl<M: ModuleMetadata + 'static> OpenFile for Discovery<M> {
    type Context = Client;
    type Module = M;

    fn open(client: &Arc<Client>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                client: client.clone(),
                _module: PhantomData,
                state <- new_mutex!(State::New, "Discovery::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Connects to the server, and asks it for its first disks. Sleeps.
    ///
    /// `EBUSY` if a line was written before, `EINVAL` for a line or a response that makes no sense,
    /// `ENXIO` for an unknown session without a path to open it by, `EOPNOTSUPP` if the server
    /// knows no discovery, `EHOSTDOWN` if it is draining, and what the transport and the server
    /// say.
    fn write(&self, line: &[u8]) -> Result {
        let mut state = self.state.lock();
        if !matches!(*state, State::New) {
            return Err(EBUSY);
        }
        let mut asking = Asking::new(&self.client, line)?;
        asking.ask()?;
        *state = State::Asking(asking);
        Ok(())
    }

    /// Whole lines, as many as there is room for and the page has. Sleeps.
    ///
    /// `EINVAL` if nothing was written, if there is not room for each possible line, and for a
    /// response that makes no sense; `EFBIG` for a server that has too many disks, `ETIMEDOUT` for
    /// a server that does not get on; and as [`Self::write`].
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        if out.len() < FoundDisk::MAX_LINE {
            return Err(EINVAL);
        }
        let mut state = self.state.lock();
        let result = match &mut *state {
            State::New => return Err(EINVAL),
            State::Ended => return Ok(0),
            State::Asking(asking) => asking.read(out),
        };
        // A task that was killed gives up; other errors do not pass either.
        if !matches!(result, Ok(1..)) {
            // This may close the session.
            *state = State::Ended;
        }
        result
    }
}

impl Asking {
    /// Opens the session, or finds it.
    fn new(client: &Arc<Client>, line: &[u8]) -> Result<Self> {
        let options = map_options::parse_session(line).map_err(|error| {
            pr_err!("discover: {}\n", error.message().as_str());
            from_errno(error.errno())
        })?;
        let user = client.use_session(&options)?;
        user.session()?.check_away()?;
        // INVARIANT: Nothing is known.
        Ok(Self {
            user,
            page: KVec::from_elem(0u8, DiscoverRsp::MAX_SIZE, GFP_KERNEL)?,
            request: Discover { after: None },
            read: 0,
            next: Some(Discover { after: None }),
            told: 0,
        })
    }

    /// Asks for the next page, if there is one that has disks.
    fn ask(&mut self) -> Result {
        for _ in 0..MAX_EMPTY {
            let Some(request) = self.next.take() else {
                return Ok(());
            };
            // INVARIANT: Not while it is asked.
            self.read = 0;
            self.request = request;
            let session = self.user.session()?;
            let response = session.server.discover(&request, &mut self.page)?;
            self.next = response.rest(&request);
            if !response.is_empty() {
                return Ok(());
            }
        }
        pr_err!("discover: the server goes on without telling of disks\n");
        Err(ETIMEDOUT)
    }

    /// The disks of the page that were not read yet.
    fn unread(&self) -> impl Iterator<Item = FoundDisk<'_>> {
        let response = DiscoverRsp::parse(&self.page, &self.request).ok();
        let disks = response.into_iter().flat_map(|response| response.disks());
        disks.skip(self.read)
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.unread().next().is_none() {
            self.ask()?;
        }
        let (mut len, mut count) = (0usize, 0usize);
        for disk in self.unread() {
            let place = out.get_mut(len..).unwrap_or(&mut []);
            let Some(line) = disk.write_line(place) else {
                break;
            };
            // Within `out`, and at most as many as a page has.
            len = len.wrapping_add(line);
            count = count.wrapping_add(1);
        }
        self.read = self.read.checked_add(count).ok_or(EOVERFLOW)?;
        self.told = self.told.checked_add(u32::try_from(count)?).ok_or(EFBIG)?;
        if self.told > MAX_DISKS {
            pr_err!("discover: the server has more than {} disks\n", MAX_DISKS);
            return Err(EFBIG);
        }
        Ok(len)
    }
}
