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

/// The most disks of a server that are told: a hostile server could go on for ever.
const MAX_DISKS: u32 = 100_000;
/// The most consecutive responses without a disk.
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

/// The state of asking a server for its disks.
///
/// # Invariants
///
/// Outside of [`Asking::ask`], and unless `ask` has failed: `page` is a response to `request` that
/// [`DiscoverRsp::parse`] has accepted, or is all zeroes while no disk is known.
struct Asking {
    user: SessionUser,
    page: KVec<u8>,
    request: Discover,
    /// The number of disks of this page that were read.
    read: usize,
    /// The next question; `None` at the end.
    next: Option<Discover>,
    /// The number of disks that were read so far, of all pages.
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
    /// `EBUSY` if a line was written before, `EINVAL` for an invalid line or response, `ENXIO` for
    /// an unknown session without a path to open it by, `EOPNOTSUPP` if the server does not know of
    /// discovery, `EHOSTDOWN` if the server is draining, and errors of the transport and of the
    /// server.
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

    /// Writes whole lines to `out`, as many as fit and the page has. Sleeps.
    ///
    /// `EINVAL` if nothing was written, if `out` is shorter than the longest line, and for an
    /// invalid response; `EFBIG` for a server that has too many disks, `ETIMEDOUT` for a server
    /// that does not get on; and errors of [`Self::write`].
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
        // Each error ends the question: a killed task gives up, and other errors do not pass.
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
        // INVARIANT: No disk is known.
        Ok(Self {
            user,
            page: KVec::from_elem(0u8, DiscoverRsp::MAX_SIZE, GFP_KERNEL)?,
            request: Discover { after: None },
            read: 0,
            next: Some(Discover { after: None }),
            told: 0,
        })
    }

    /// Asks for the next page that has disks, if there is one.
    fn ask(&mut self) -> Result {
        for _ in 0..MAX_EMPTY {
            let Some(request) = self.next.take() else {
                return Ok(());
            };
            // INVARIANT: The invariant is about `self` outside of this function. After an error
            // `self` is not used again.
            self.read = 0;
            self.request = request;
            let session = self.user.session()?;
            let response = session.server.discover(&request, &mut self.page)?;
            self.next = response.rest(&request);
            if !response.is_empty() {
                return Ok(());
            }
        }
        pr_err!(
            "discover: session {}: {} responses of the server in a row name no disk, and the \
             client asks no more: see dev_search_path of the server\n",
            self.user.session()?.server.session.as_cstr(),
            MAX_EMPTY
        );
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
            // Within `out`, and at most the number of disks that a page has.
            len = len.wrapping_add(line);
            count = count.wrapping_add(1);
        }
        self.read = self.read.checked_add(count).ok_or(EOVERFLOW)?;
        self.told = self.told.checked_add(u32::try_from(count)?).ok_or(EFBIG)?;
        if self.told > MAX_DISKS {
            pr_err!(
                "discover: session {}: the server names more than {} disks, and the client takes \
                 no more\n",
                self.user.session()?.server.session.as_cstr(),
                MAX_DISKS
            );
            return Err(EFBIG);
        }
        Ok(len)
    }
}
