// SPDX-License-Identifier: GPL-2.0

//! What all layers of a path share: its state, its names, its heartbeat, and the gate of its
//! requests.

use kernel::{
    fmt,
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    net::socket_address::SocketAddress,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        gate::{
            Entered,
            Gate, //
        },
        set_once::SetOnce, //
    }, //
};
use proto::{
    name::SessName,
    path_state::{
        ServerEvent,
        ServerState, //
    }, //
};
use rtrs_core::{
    address::Shown,
    heartbeat::Heartbeat, //
};

/// The name of a session, which its client gives when the first path is established.
#[derive(Clone)]
pub(crate) struct SharedName(Arc<SetOnce<SessName>>);

impl SharedName {
    /// No name yet. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Arc::new(SetOnce::new(), GFP_KERNEL)?))
    }

    /// The name, once it is set.
    pub(crate) fn get(&self) -> Option<&SessName> {
        (*self.0).as_ref()
    }

    /// The name; empty before it is set.
    pub(crate) fn as_cstr(&self) -> &CStr {
        self.get().map_or(c"", |name| name.as_cstr())
    }

    /// Sets the name, once. False if the session has another name already.
    pub(crate) fn set(&self, name: &SessName) -> bool {
        self.0.populate(*name) || self.get() == Some(name)
    }
}

/// What connections and requests tell their path. Any context.
pub(crate) trait PathEvents: Send + Sync + 'static {
    /// Closes the path, in the background; false if it was being closed already.
    fn close_path(self: Arc<Self>) -> bool;

    /// The client has confirmed a connection.
    fn confirmed(&self);

    /// The client's proof of its identity came; it has `len` bytes.
    fn auth_received(self: Arc<Self>, len: u32);

    /// The information request came; it has `len` bytes.
    fn info_received(self: Arc<Self>, len: u32);

    /// The response to the proof of identity or to the information request was sent.
    fn answered(self: Arc<Self>);

    /// The registrations up to the one with
    /// [`WrKind::Registration`](crate::wr_kind::WrKind::Registration) are done.
    fn registered(self: Arc<Self>);

    /// The client asks on this path for the end of the path that has this number.
    fn end_of_path(self: Arc<Self>, number: u32);
}

/// What all layers of a path share. `R` is what its requests need.
///
/// # Invariants
///
/// - `state` is a [`ServerState`], and changes as [`ServerState::next()`] says.
/// - `requests` keeps what requests need of the path until all that have entered have left. It does
///   not keep rule 1 of failover: it lets requests in from the moment the path is established until
///   [`Self::expel_requests()`], after the path has ended for the client. That no request *begins*
///   (`path_end.rs`) is the part of `state`.
pub(crate) struct PathCore<R: Send + Sync + 'static> {
    session_name: SharedName,
    /// The name of the directory in sysfs, and in events: `client@server`.
    name: CString,
    /// The server's address.
    local: SocketAddress,
    /// The client's address.
    peer: SocketAddress,
    /// The extensions that both ends use.
    features: u32,
    state: Atomic<u32>,
    heartbeat: Heartbeat,
    requests: SetOnce<Gate<R>>,
}

impl<R: Send + Sync + 'static> PathCore<R> {
    /// Makes the core of a path that is being connected. Sleeps.
    pub(crate) fn new(
        session_name: &SharedName,
        local: SocketAddress,
        peer: SocketAddress,
        features: u32,
        heartbeat: Heartbeat,
    ) -> Result<Arc<Self>> {
        let name = CString::try_from_fmt(fmt!("{}@{}", Shown(peer), Shown(local)))?;
        let core = Self {
            session_name: session_name.clone(),
            name,
            local,
            peer,
            features,
            // INVARIANT: A state.
            state: Atomic::new(ServerState::Connecting.to_u32()),
            heartbeat,
            requests: SetOnce::new(),
        };
        Ok(Arc::new(core, GFP_KERNEL)?)
    }

    /// The session's name; empty before the client has given it.
    pub(crate) fn session_name(&self) -> &CStr {
        self.session_name.as_cstr()
    }

    /// The name of the directory in sysfs, and in events: `client@server`.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// The server's address.
    pub(crate) fn local(&self) -> &SocketAddress {
        &self.local
    }

    /// The client's address.
    pub(crate) fn peer(&self) -> &SocketAddress {
        &self.peer
    }

    /// The extensions that both ends use, as the client's first connection request offered them.
    pub(crate) fn features(&self) -> u32 {
        self.features
    }

    /// The heartbeat, which notes the client's signs of life.
    #[inline]
    pub(crate) fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// Lets a request in, which gets what it needs. `None` if the path is not established or is
    /// being taken down. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<R>> {
        self.requests.as_ref()?.enter()
    }

    /// Lets requests in, which need `requests`. Sleeps. `EEXIST` if requests are let in already.
    pub(crate) fn admit_requests(&self, requests: R) -> Result {
        if self.requests.populate(Gate::new(requests)?) {
            Ok(())
        } else {
            Err(EEXIST)
        }
    }

    /// Lets no more requests in, waits until all have left, and returns what they needed. `None`
    /// the second time, or if requests were never let in. Sleeps.
    pub(crate) fn expel_requests(&self) -> Option<R> {
        self.requests.as_ref().and_then(Gate::close)
    }

    /// The state.
    pub(crate) fn state(&self) -> ServerState {
        // By the type invariant there is no other state.
        ServerState::try_from(self.state.load(ordering::Relaxed)).unwrap_or(ServerState::Closed)
    }

    /// Whether the path carries requests.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.state.load(ordering::Relaxed) == ServerState::Connected.to_u32()
    }

    /// Changes the state by `event`. False if the event does not change this state. Any context.
    ///
    /// A change is a full barrier. Rule 1 of failover needs that (`begin()` in `request.rs`): a
    /// request that begins either sees the change, or has claimed its chunk before the copy does.
    pub(crate) fn change_state(&self, event: ServerEvent) -> bool {
        loop {
            let old = self.state();
            let Some(new) = old.next(event) else {
                return false;
            };
            let (old, new) = (old.to_u32(), new.to_u32());
            if self.state.cmpxchg(old, new, ordering::Full).is_ok() {
                return true;
            }
        }
    }
}

impl<R: Send + Sync + 'static> fmt::Display for PathCore<R> {
    /// The session's name, once it has one, and the addresses in the order of the name in sysfs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.session_name.get() {
            write!(f, "{} ", **name)?;
        }
        f.write_fmt(fmt!("{}@{}", Shown(self.peer), Shown(self.local)))
    }
}
