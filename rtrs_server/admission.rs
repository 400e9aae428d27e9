// SPDX-License-Identifier: GPL-2.0

//! The resources that the clients of a server have, and whether a peer that asks for more gets
//! more.
//!
//! [`proto::admission`] has the rules. A client is known by the address to which the server's
//! responses go.

use kernel::{
    new_mutex,
    rbtree::RBTree,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::{
    addr::Address,
    admission::{
        self,
        Asks,
        Limits,
        Reached,
        Scope,
        Usage, //
    }, //
};

/// A path that makes room for another one.
pub(crate) trait MakeRoom: Send + Sync + 'static {
    /// Closes the path, in the background.
    fn make_room(self: Arc<Self>);
}

/// A half-open path, as its ticket and the list of half-open paths have it.
struct HalfOpen {
    client: Address,
    /// The peer has confirmed a connection, so the peer is at the address that it names.
    confirmed: Atomic<bool>,
}

/// The resources in use, by address and in all.
///
/// # Invariants
///
/// `clients` has the addresses that use anything, and `all` is the sum of their usage.
struct State {
    all: Usage,
    clients: RBTree<Address, Usage>,
    /// The half-open paths, the oldest first.
    half_open: KVec<(Arc<HalfOpen>, Arc<dyn MakeRoom>)>,
}

impl State {
    fn of(&self, client: &Address) -> Usage {
        self.clients
            .get(client)
            .map_or(Usage::default(), |usage| *usage)
    }

    /// Changes the usage of `client`, and the sum. Sleeps. `change` adds 1 to numbers that are
    /// below `u32::MAX`, or takes back what was added.
    fn change(&mut self, client: &Address, change: fn(&mut Usage)) -> Result {
        let mut usage = self.of(client);
        change(&mut usage);
        if usage == Usage::default() {
            self.clients.remove(client);
        } else if let Some(place) = self.clients.get_mut(client) {
            *place = usage;
        } else {
            self.clients
                .try_create_and_insert(*client, usage, GFP_KERNEL)?;
        }
        // INVARIANT: The sum changes as the usage of the address does.
        change(&mut self.all);
        Ok(())
    }

    /// Does what [`Self::change()`] does, for a change that takes back and so needs no memory.
    fn take_back(&mut self, client: &Address, change: fn(&mut Usage)) {
        // The address is in the tree, so this does not fail.
        let _ = self.change(client, change);
    }

    /// Takes a path out of the list of half-open paths.
    fn take_half_open(&mut self, index: usize) -> Option<Arc<dyn MakeRoom>> {
        let (half_open, path) = self.half_open.remove(index).ok()?;
        self.take_back(&half_open.client, |usage| {
            usage.half_open = usage.half_open.wrapping_sub(1);
        });
        Some(path)
    }

    /// Takes out the oldest half-open path of `scope` that was not confirmed.
    fn take_oldest(&mut self, scope: Scope, client: &Address) -> Option<Arc<dyn MakeRoom>> {
        let index = self.half_open.iter().position(|(other, _)| {
            !other.confirmed.load(ordering::Relaxed)
                && (scope == Scope::All || other.client == *client)
        })?;
        self.take_half_open(index)
    }
}

/// The clients of all listeners.
#[pin_data]
pub(crate) struct Admission {
    limits: Limits,
    /// How often something was refused.
    refused: Atomic<u64>,
    /// How many half-open paths were closed for newer paths.
    closed_for_room: Atomic<u64>,
    /// How often a client has not proved its identity.
    auth_failed: Atomic<u64>,
    #[pin]
    state: Mutex<State>,
}

impl Admission {
    /// No clients yet. Sleeps.
    pub(crate) fn new(limits: Limits) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                limits,
                refused: Atomic::new(0),
                closed_for_room: Atomic::new(0),
                auth_failed: Atomic::new(0),
                state <- new_mutex!(
                    State {
                        all: Usage::default(),
                        clients: RBTree::new(),
                        half_open: KVec::new(),
                    },
                    "rtrs_server::Admission::state"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// The resources of all clients together. Sleeps.
    pub(crate) fn usage(&self) -> Usage {
        self.state.lock().all
    }

    /// The resources of the client at `address`. Sleeps.
    pub(crate) fn usage_of(&self, address: &Address) -> Usage {
        self.state.lock().of(address)
    }

    /// How often something was refused. Any context.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(ordering::Relaxed)
    }

    /// How many half-open paths were closed for newer paths. Any context.
    pub(crate) fn closed_for_room(&self) -> u64 {
        self.closed_for_room.load(ordering::Relaxed)
    }

    /// How often a client has not proved its identity, though it had to. Any context.
    pub(crate) fn auth_failed(&self) -> u64 {
        self.auth_failed.load(ordering::Relaxed)
    }

    /// Counts a client that has not proved its identity. Any context.
    pub(crate) fn count_auth_failure(&self) {
        self.auth_failed.fetch_add(1, ordering::Relaxed);
    }

    /// Takes a place for a path of `client` and its first connection. A half-open path may have to
    /// go for it. Sleeps. `EBUSY` if there is no place.
    pub(crate) fn path(self: &Arc<Self>, client: Address) -> Result<PathTicket> {
        let half_open = HalfOpen {
            client,
            confirmed: Atomic::new(false),
        };
        let half_open = Arc::new(half_open, GFP_KERNEL)?;
        let mut state = self.state.lock();
        let oldest = match self.decide(&state, &client, Asks::Path)? {
            None => None,
            Some(scope) => match state.take_oldest(scope, &client) {
                Some(oldest) => Some(oldest),
                None => return Err(self.refuse(&client, &admission::no_room(&self.limits, scope))),
            },
        };
        let counted = state.change(&client, |usage| {
            usage.paths = usage.paths.wrapping_add(1);
            usage.connections = usage.connections.wrapping_add(1);
        });
        drop(state);
        if let Some(oldest) = oldest {
            self.closed_for_room.fetch_add(1, ordering::Relaxed);
            oldest.make_room();
        }
        counted?;
        Ok(PathTicket {
            admission: self.clone(),
            half_open,
            connections: Atomic::new(1),
        })
    }

    /// Takes a place for a session of `client`. Sleeps. `EBUSY` if there is no place.
    pub(crate) fn session(self: &Arc<Self>, client: Address) -> Result<SessionTicket> {
        let mut state = self.state.lock();
        self.decide(&state, &client, Asks::Session)?;
        state.change(&client, |usage| {
            usage.sessions = usage.sessions.wrapping_add(1);
        })?;
        Ok(SessionTicket {
            admission: self.clone(),
            client,
        })
    }

    fn decide(&self, state: &State, client: &Address, asks: Asks) -> Result<Option<Scope>> {
        admission::decide(&self.limits, &state.of(client), &state.all, asks)
            .map_err(|reached| self.refuse(client, &reached))
    }

    fn refuse(&self, client: &Address, reached: &Reached) -> Error {
        self.refused.fetch_add(1, ordering::Relaxed);
        pr_err_ratelimited!("{}\n", format_args!("{client}: refused: {reached}"));
        EBUSY
    }
}

/// The place of a path; given back when it is dropped, in process context.
pub(crate) struct PathTicket {
    admission: Arc<Admission>,
    half_open: Arc<HalfOpen>,
    /// The connections that were counted.
    connections: Atomic<u32>,
}

impl PathTicket {
    /// The address to which the server's responses on the path go. Any context.
    pub(crate) fn client(&self) -> &Address {
        &self.half_open.client
    }

    /// Lists the path as half open. It may be closed for another path until a connection is
    /// confirmed, or until the path is no longer half open. Sleeps.
    pub(crate) fn begin(&self, path: Arc<dyn MakeRoom>) -> Result {
        let mut state = self.admission.state.lock();
        state.half_open.reserve(1, GFP_KERNEL)?;
        state.change(self.client(), |usage| {
            usage.half_open = usage.half_open.wrapping_add(1);
        })?;
        // There is room.
        let _ = state
            .half_open
            .push_within_capacity((self.half_open.clone(), path));
        Ok(())
    }

    /// The peer has confirmed a connection. Any context.
    pub(crate) fn confirm(&self) {
        self.half_open.confirmed.store(true, ordering::Relaxed);
    }

    /// Ends the time in which the path is half open: it is established or being taken down. Sleeps.
    pub(crate) fn end_half_open(&self) {
        let mut state = self.admission.state.lock();
        let mut half_open = state.half_open.iter();
        let index = half_open.position(|(other, _)| Arc::ptr_eq(other, &self.half_open));
        let path = index.and_then(|index| state.take_half_open(index));
        drop(state);
        // Dropped without the lock, which the end of a path takes.
        drop(path);
    }

    /// Takes a place for a further connection. Sleeps. `EBUSY` if there is no place.
    pub(crate) fn connection(&self) -> Result {
        let (client, admission) = (self.client(), &self.admission);
        let mut state = admission.state.lock();
        admission.decide(&state, client, Asks::Connection)?;
        state.change(client, |usage| {
            usage.connections = usage.connections.wrapping_add(1);
        })?;
        self.connections.fetch_add(1, ordering::Relaxed);
        Ok(())
    }
}

impl Drop for PathTicket {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let client = self.half_open.client;
        let connections = self.connections.load(ordering::Relaxed);
        for _ in 0..connections {
            state.take_back(&client, |usage| {
                usage.connections = usage.connections.wrapping_sub(1);
            });
        }
        state.take_back(&client, |usage| usage.paths = usage.paths.wrapping_sub(1));
    }
}

/// The place of a session; given back when it is dropped, in process context.
pub(crate) struct SessionTicket {
    admission: Arc<Admission>,
    client: Address,
}

impl Drop for SessionTicket {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.take_back(&self.client, |usage| {
            usage.sessions = usage.sessions.wrapping_sub(1);
        });
    }
}
