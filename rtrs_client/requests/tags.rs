// SPDX-License-Identifier: GPL-2.0

//! The tags of a session, and the owner of each one's request.
//!
//! Each tag has one [`Request`], allocated with the session, in a cell. The state of the cell says
//! which party may take the request: the user, as a permit, or an incarnation of a path that
//! carries it. The party that takes it is its only owner, and puts it back with the next state:
//!
//! ```text
//!            permit, add                    response
//!  free ------------------> Sent -----------------------------------------------> free
//!         \                                 response                  written
//!          +--------------> Direct ----------------> DirectResponded -----------> free
//!          |                   |  written                  response
//!          |                   +-----------> DirectWritten ---------------------> free
//!          |                posted               response             invalidated
//!          +-> Registering ------> Registered -------------> Invalidating ------> free
//!                   |  response                    posted     ^
//!                   +-----------> RespondedEarly -------------+
//! ```
//!
//! Not drawn: a request in `Sent` that could not be posted is taken back to `free`, and the
//! teardown of a path takes every request that is left after the last completion.
//!
//! The user may abandon a request (see [`abandon`](super::abandon)):
//!
//! ```text
//!                 abandon                                    response
//!  Sent ---------------------> Abandoned ----------------------------------------> free
//!  DirectWritten ------------> Abandoned ----------------------------------------> free
//!                                  ^ invalidated, a write
//!                    posted        |                        response    invalidated
//!  Registered ----------------> Revoking -> Sunk ----------> Closing ------------> free
//!                                  | response                   ^
//!                                  +----------------------------+
//! ```
//!
//! An abandoned request whose path is lost becomes `LeftBehind`, until that path is up again; and,
//! if the request was sent again from earlier paths, until these paths are up again, too.
//!
//! Completions of one connection come one at a time, so each step above has one party that can do
//! it, but for three: a request in `Registering`, to which the server may respond while it is being
//! posted, one in `Sent`, which may be taken back while the server responds to it, and one that is
//! just being abandoned, for whose owner a response leaves a word.

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
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce,
        state_cell::{
            Owned,
            StateCell, //
        }, //
    }, //
};
use proto::resent::{
    LostPath,
    LostPaths,
    ResentFrom, //
};
use rtrs_core::connection::SERVICE_CID;

use super::{
    request::Request,
    service::Service, //
};
use crate::events::{
    SessionEvents,
    SubmitError, //
};

/// The state of a tag that no path carries a request for: the user may take its permit.
pub(crate) const FREE: u64 = 0;

/// In the connection of a request: its number is not the one that the user knows it by. So the way
/// of other requests does not ask.
pub(crate) const MOVED: u16 = 1 << 15;

/// In the connection of a request: it was sent again by another path. Each request begins without
/// it. Beyond any number of a connection, which is at most `MAX_CON_NUM`.
pub(crate) const RESENT: u16 = 1 << 14;

/// What the connection of a request has besides the connection's number.
pub(crate) const FLAGS: u16 = MOVED | RESENT;

/// Whether `connection` is that of a request which the user knows by its number, which was sent
/// once, and which did not go by the service connection.
#[inline(always)]
fn is_plain(connection: u16) -> bool {
    // One comparison: neither `SERVICE_CID`, which is 0, nor with `RESENT` or `MOVED`.
    connection.wrapping_sub(1) < RESENT.wrapping_sub(1)
}

/// How far a request is that a path carries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing but the response is awaited: the device does not use the data's own memory.
    Sent = 1,
    /// The device sends the data from its own memory.
    Direct,
    /// As `Direct`, and the server has responded: the device has not reported the write yet.
    DirectResponded,
    /// As `Direct`, and the device has reported the write: the server has not responded yet.
    DirectWritten,
    /// The data is registered, by a work request that is just being posted.
    Registering,
    /// As `Registering`, and the server has responded to what it cannot have yet.
    RespondedEarly,
    /// The data is registered.
    Registered,
    /// The server has responded; the registration is being invalidated.
    Invalidating,
    /// The user has abandoned it, and has its data back. The response is awaited.
    Abandoned,
    /// As `Abandoned`, but the registration of the data is still being invalidated.
    Revoking,
    /// As `Abandoned`, and other memory is registered in place of the data.
    Sunk,
    /// As `Abandoned`, and the server has responded; a registration is being invalidated.
    Closing,
    /// As `Abandoned`, and its path was lost: the server may still be at work on it.
    LeftBehind,
}

impl Phase {
    /// The phase in `state`, of whatever incarnation.
    fn of(state: u64) -> Option<Self> {
        let mut phases = Self::ALL.into_iter();
        phases.find(|phase| state & 0xff == *phase as u64)
    }

    const ALL: [Self; 13] = [
        Self::Sent,
        Self::Direct,
        Self::DirectResponded,
        Self::DirectWritten,
        Self::Registering,
        Self::RespondedEarly,
        Self::Registered,
        Self::Invalidating,
        Self::Abandoned,
        Self::Revoking,
        Self::Sunk,
        Self::Closing,
        Self::LeftBehind,
    ];

    /// Whether the user has abandoned the request.
    pub(crate) fn is_abandoned(self) -> bool {
        match self {
            Self::Abandoned | Self::Revoking | Self::Sunk => true,
            Self::Closing | Self::LeftBehind => true,
            Self::Sent | Self::Direct | Self::DirectResponded | Self::DirectWritten => false,
            Self::Registering | Self::RespondedEarly | Self::Registered => false,
            Self::Invalidating => false,
        }
    }

    /// Whether the user waits for a response that the server has not given yet.
    pub(crate) fn awaits_response(self) -> bool {
        match self {
            Self::Sent | Self::Direct | Self::DirectWritten => true,
            Self::Registering | Self::Registered => true,
            Self::DirectResponded | Self::RespondedEarly | Self::Invalidating => false,
            Self::Abandoned | Self::Revoking | Self::Sunk => false,
            Self::Closing | Self::LeftBehind => false,
        }
    }
}

/// One incarnation of a path's connections, as the states of tags name it.
///
/// A state has the number of the incarnation in its upper half, then the connection, then the
/// phase.
///
/// # Invariants
///
/// The number is not 0, and no other incarnation of the session that still exists has it;
/// [`Self::NONE`] has one that no incarnation has.
#[derive(Clone, Copy)]
pub(crate) struct Incarnation(u32);

const INCARNATION_SHIFT: u32 = 32;
const CONNECTION_SHIFT: u32 = 8;

impl Incarnation {
    /// No incarnation: in the states of tags that do not wait for their own path any more.
    const NONE: Self = Self(u32::MAX);

    /// The state of a tag whose request `connection` of this incarnation carries.
    #[inline(always)]
    pub(crate) fn state(self, connection: u16, phase: Phase) -> u64 {
        u64::from(self.0) << INCARNATION_SHIFT
            | u64::from(connection) << CONNECTION_SHIFT
            | phase as u64
    }

    /// Its number, which is not 0.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The connection that `state` names, with [`FLAGS`]; only for a state that names an
    /// incarnation.
    pub(crate) fn connection_of(state: u64) -> u16 {
        // A connection has 16 bits there.
        (state >> CONNECTION_SHIFT) as u16
    }

    /// The phase of a tag in `state`, if this incarnation carries its request.
    pub(crate) fn phase_of(self, state: u64) -> Option<Phase> {
        if state >> INCARNATION_SHIFT != u64::from(self.0) {
            return None;
        }
        Phase::of(state)
    }
}

/// The tags of a session.
#[pin_data]
pub(crate) struct Tags {
    cells: SetOnce<KVVec<StateCell<Request>>>,
    /// By tags: the [`ResentFrom`] of their requests. Only the owner of a request ends it, and so
    /// sets its value to nothing; all other changes are made with `lost_paths` locked.
    resent: SetOnce<KVVec<Atomic<u64>>>,
    #[pin]
    lost_paths: Mutex<LostPaths>,
    incarnations: Atomic<u32>,
    events: Arc<dyn SessionEvents>,
    #[pin]
    pub(crate) service: Service,
}

impl Tags {
    /// No tags yet. Sleeps.
    pub(crate) fn new(events: Arc<dyn SessionEvents>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                cells: SetOnce::new(),
                resent: SetOnce::new(),
                lost_paths <- new_mutex!(LostPaths::NONE, "Tags::lost_paths"),
                incarnations: Atomic::new(0),
                events,
                service <- Service::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes `depth` tags, of which the last is for service requests, with room for `max_segments`
    /// segments of data each. Sleeps; `EEXIST` the second time.
    pub(crate) fn make(&self, depth: u16, max_segments: u16) -> Result {
        let mut cells = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        let mut resent = KVVec::with_capacity(usize::from(depth), GFP_KERNEL)?;
        for tag in 0..u32::from(depth) {
            let request = Request::new(tag, max_segments)?;
            cells.push(StateCell::new(request, FREE), GFP_KERNEL)?;
            resent.push(Atomic::new(ResentFrom::NOTHING.to_u64()), GFP_KERNEL)?;
        }
        if self.resent.populate(resent) && self.cells.populate(cells) {
            Ok(())
        } else {
            Err(EEXIST)
        }
    }

    /// Whether there are tags.
    pub(crate) fn are_made(&self) -> bool {
        self.cells.as_ref().is_some()
    }

    /// Names an incarnation of a path's connections.
    pub(crate) fn new_incarnation(&self) -> Incarnation {
        loop {
            // INVARIANT: By the time the numbers begin again the first ones are long gone: each
            // takes an establishment, of at least a millisecond, so that is 49 days.
            let number = self.incarnations.fetch_add(1, ordering::Relaxed);
            if number != 0 && number != u32::MAX {
                return Incarnation(number);
            }
        }
    }

    /// The cell of `tag`.
    #[inline]
    pub(crate) fn get(&self, tag: u32) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.get(tag as usize)
    }

    /// The cell of `tag`, if it is one that the user of the transport may use.
    #[inline]
    pub(crate) fn of_user(&self, tag: u32) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.split_last()?.1.get(tag as usize)
    }

    /// The cell of service requests.
    pub(crate) fn of_service(&self) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.last()
    }

    /// Whether `tag` is that of service requests. Others may go by the service connection, too.
    #[cold]
    pub(crate) fn is_of_service(&self, tag: u32) -> bool {
        self.of_user(tag).is_none()
    }

    /// All cells.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StateCell<Request>> {
        self.cells.as_ref().into_iter().flatten()
    }

    /// Lets the tag of `request` be used again.
    #[inline(always)]
    pub(crate) fn give_back(&self, mut request: Owned<'_, Request>) {
        // What the user's memory is part of may end from here on.
        request.data.release_request();
        request.put(FREE);
    }

    /// The server is not at work any more on `request`, which the user has abandoned and whose data
    /// no device uses. Any context.
    #[cold]
    pub(crate) fn abandoned_ended(&self, mut request: Owned<'_, Request>) {
        // What the user's memory is part of may end from here on.
        request.data.clear();
        request.sink = None;
        self.forget_resent(&request);
        self.events.abandoned_ended(request.tag());
        request.put(FREE);
    }

    /// `request` is about to be sent by another path, as the incarnation of this number, which had
    /// it, was lost. It stays marked until it ends. Sleeps.
    pub(crate) fn note_resent(&self, request: &mut Request, incarnation: u32) {
        if request.connection == SERVICE_CID {
            // Nobody abandons it.
            return;
        }
        let Some(place) = self.resent_place(request.tag()) else {
            return;
        };
        let mut lost_paths = self.lost_paths.lock();
        let path = lost_paths.lost(incarnation, || self.resent_from_all());
        let known = ResentFrom::from_u64(place.load(ordering::Relaxed));
        // Nothing else changes it: this is the request's owner, and the lock is held.
        place.store(known.and(path).to_u64(), ordering::Relaxed);
        request.connection |= RESENT;
    }

    /// `request` ends, so that it does not matter any more from where it was sent again. Only for
    /// its owner. Any context.
    fn forget_resent(&self, request: &Request) {
        if request.connection & RESENT != 0 {
            if let Some(place) = self.resent_place(request.tag()) {
                place.store(ResentFrom::NOTHING.to_u64(), ordering::Relaxed);
            }
        }
    }

    fn resent_place(&self, tag: u32) -> Option<&Atomic<u64>> {
        self.resent.as_ref()?.get(tag as usize)
    }

    /// The paths from which any request was sent again that has not ended.
    fn resent_from_all(&self) -> ResentFrom {
        let places = self.resent.as_ref().into_iter().flatten();
        places.fold(ResentFrom::NOTHING, |all, place| {
            all.union(ResentFrom::from_u64(place.load(ordering::Relaxed)))
        })
    }

    /// The path is up again that left requests behind in the incarnation of that number, if it is
    /// not 0: the server is done with them, as it takes a path anew only then. Sleeps.
    pub(crate) fn path_is_back(&self, incarnation: u32) {
        if incarnation == 0 {
            return;
        }
        // Of several paths that come back the last one finds what the others have changed.
        let mut lost_paths = self.lost_paths.lock();
        let path = lost_paths.back(incarnation);
        for (cell, resent) in self.iter().zip(self.resent.as_ref().into_iter().flatten()) {
            self.path_of_tag_is_back(Incarnation(incarnation), path, cell, resent);
        }
    }

    /// As [`Self::path_is_back`], of one tag. An abandoned request ends if the path that had it
    /// last is back, and all paths that had it before. Under the lock.
    fn path_of_tag_is_back(
        &self,
        lost: Incarnation,
        path: Option<LostPath>,
        cell: &StateCell<Request>,
        resent: &Atomic<u64>,
    ) {
        let state = cell.state();
        if lost.phase_of(state) == Some(Phase::LeftBehind) {
            let connection = Incarnation::connection_of(state);
            cell.change(
                state,
                Incarnation::NONE.state(connection, Phase::LeftBehind),
            );
        }
        let known = resent.load(ordering::Relaxed);
        let left = path.map_or(known, |path| {
            ResentFrom::from_u64(known).without(path).to_u64()
        });
        if left != known {
            // If this fails the request has just ended, and nothing is left there.
            let _ = resent.cmpxchg(known, left, ordering::Full);
        }
        let state = cell.state();
        let is_left = Incarnation::NONE.phase_of(state) == Some(Phase::LeftBehind);
        if is_left && left == ResentFrom::NOTHING.to_u64() {
            if let Some(request) = cell.take(state) {
                self.abandoned_ended(request);
            }
        }
    }

    /// The server has responded to `request`. Any context.
    #[inline(always)]
    pub(crate) fn finish(&self, request: Owned<'_, Request>, result: Result) {
        let (tag, connection) = (request.tag(), request.connection);
        if is_plain(connection) {
            // First, since the user may use the tag again at once.
            self.give_back(request);
            self.events.complete(tag, result);
        } else {
            self.finish_other(request, result);
        }
    }

    /// As [`Self::finish`], for a request that went by the service connection, has moved or was
    /// sent again.
    #[cold]
    #[inline(never)]
    fn finish_other(&self, request: Owned<'_, Request>, result: Result) {
        let is_of_service = self.is_of_service(request.tag());
        let tag = self.user_tag(&request);
        self.forget_resent(&request);
        self.give_back(request);
        if is_of_service {
            self.service.finished(result);
        } else {
            self.events.complete(tag, result);
        }
    }

    /// The tag by which the user knows `request`, which it has not got back yet.
    fn user_tag(&self, request: &Request) -> u32 {
        if request.connection & MOVED == 0 {
            request.tag()
        } else {
            self.events.tag_of_moved(request.tag())
        }
    }

    /// Tells the user of a request that was submitted and is not answered, for the reason given.
    /// Any context.
    #[cold]
    pub(crate) fn unanswered(&self, request: Owned<'_, Request>, error: Error) {
        let is_of_service = self.is_of_service(request.tag());
        let tag = self.user_tag(&request);
        self.forget_resent(&request);
        self.give_back(request);
        if is_of_service {
            self.service.finished(Err(error));
        } else {
            self.events.unanswered(tag, SubmitError::new(error));
        }
    }
}
