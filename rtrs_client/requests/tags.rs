// SPDX-License-Identifier: GPL-2.0

//! The tags of a session, and the owner of the request of each tag.
//!
//! Each tag has one [`Request`], allocated with the session, in a cell. The state of the cell says
//! which party may take the request: the user, as a permit, or the incarnation of the path that
//! carries the request. The party that takes the request is its only owner, and puts it back with
//! the next state:
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
//! Not drawn: a request in `Sent` that could not be posted is taken back to `free`. The teardown of
//! a path takes every request that is left after the last completion.
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
//! An abandoned request whose path is lost becomes `LeftBehind` until that path is up again. If the
//! request was sent again from earlier paths, it stays `LeftBehind` until these paths are up again,
//! too.
//!
//! Completions of one connection come one at a time. So each step above has one party that can do
//! it, with three exceptions:
//!
//! - The server may respond to a request in `Registering` while the request is being posted.
//! - A request in `Sent` may be taken back while the server responds to it.
//! - A response to a request that is just being abandoned marks the cell for the party that
//!   abandons the request.

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

/// The state of a tag that no path carries a request for. The user may take its permit.
pub(crate) const FREE: u64 = 0;

/// Flag in the connection of a request: the request has moved, so its number is not the user's tag.
/// The flag is part of the state, so requests that have not moved need no further test.
pub(crate) const MOVED: u16 = 1 << 15;

/// Flag in the connection of a request: the request was sent again by another path. Each request
/// begins without the flag. No number of a connection has this bit: numbers are below
/// [`MAX_CON_NUM`](proto::rtrs::MAX_CON_NUM).
pub(crate) const RESENT: u16 = 1 << 14;

/// All flags that the connection of a request has besides the connection's number.
pub(crate) const FLAGS: u16 = MOVED | RESENT;

/// Whether `connection` is that of a request that has not moved, was sent once, and did not go by
/// the service connection.
#[inline(always)]
fn is_plain(connection: u16) -> bool {
    // One comparison: `SERVICE_CID` is 0, and `RESENT` and `MOVED` are beyond all numbers.
    connection.wrapping_sub(1) < RESENT.wrapping_sub(1)
}

/// The phase of a request that a path carries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Only the response is awaited: the device does not use the data's own memory.
    Sent = 1,
    /// The device sends the data from its own memory.
    Direct,
    /// As `Direct`, and the server has responded. The device has not reported the write yet.
    DirectResponded,
    /// As `Direct`, and the device has reported the write. The server has not responded yet.
    DirectWritten,
    /// A work request that registers the data is just being posted.
    Registering,
    /// As `Registering`, and the server has responded to a request that it cannot have yet.
    RespondedEarly,
    /// The data is registered.
    Registered,
    /// The server has responded; the registration is being invalidated.
    Invalidating,
    /// The user has abandoned the request, and has its data back. The response is awaited.
    Abandoned,
    /// As `Abandoned`, but the registration of the data is still being invalidated.
    Revoking,
    /// As `Abandoned`, and other memory is registered in place of the data.
    Sunk,
    /// As `Abandoned`, and the server has responded. A registration is being invalidated.
    Closing,
    /// As `Abandoned`, and the path was lost. The server may still be at work on the request.
    LeftBehind,
}

impl Phase {
    /// The phase in `state`, of any incarnation.
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

/// The number of an [`Incarnation`](crate::incarnation::Incarnation) in the states of tags.
///
/// A state has the number of the incarnation in its upper half, then the connection, then the
/// phase.
///
/// # Invariants
///
/// The number is not 0. No other incarnation of the session that still exists has the same number.
/// No incarnation has the number [`Self::NONE`].
#[derive(Clone, Copy)]
pub(crate) struct IncarnationNumber(u32);

const INCARNATION_SHIFT: u32 = 32;
const CONNECTION_SHIFT: u32 = 8;

impl IncarnationNumber {
    /// No incarnation. The states of requests whose own path is back name it.
    const NONE: Self = Self(u32::MAX);

    /// The state of a tag whose request is carried by `connection` of this incarnation.
    #[inline(always)]
    pub(crate) fn state(self, connection: u16, phase: Phase) -> u64 {
        u64::from(self.0) << INCARNATION_SHIFT
            | u64::from(connection) << CONNECTION_SHIFT
            | phase as u64
    }

    /// The number of the incarnation, which is not 0.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The connection that `state` names, with [`FLAGS`]. Only for a state that names an
    /// incarnation.
    pub(crate) fn connection_of(state: u64) -> u16 {
        // A connection has 16 bits there.
        (state >> CONNECTION_SHIFT) as u16
    }

    /// The phase of a tag in `state`. Nothing if another incarnation carries the request, or none
    /// does.
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
    /// By tag: the [`ResentFrom`] of its request. The owner of a request sets the value to nothing
    /// when the request ends. All other changes are made with `lost_paths` locked.
    resent: SetOnce<KVVec<Atomic<u64>>>,
    #[pin]
    lost_paths: Mutex<LostPaths>,
    incarnations: Atomic<u32>,
    events: Arc<dyn SessionEvents>,
    #[pin]
    pub(crate) service: Service,
}

impl Tags {
    /// Makes an object without tags. Sleeps.
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

    /// Makes `depth` tags, each with room for `max_segments` segments of data. The last tag is for
    /// service requests. Sleeps. `EEXIST` if the tags are made already.
    pub(crate) fn make(&self, depth: u16, max_segments: u32) -> Result {
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

    /// Whether the tags are made.
    pub(crate) fn are_made(&self) -> bool {
        self.cells.as_ref().is_some()
    }

    /// Gives a new incarnation of a path's connections its number.
    pub(crate) fn new_incarnation(&self) -> IncarnationNumber {
        loop {
            // INVARIANT: When the numbers begin again, incarnations with the first numbers are long
            // gone. Each incarnation takes an establishment of at least a millisecond, so all
            // numbers last 49 days.
            let number = self.incarnations.fetch_add(1, ordering::Relaxed);
            if number != 0 && number != u32::MAX {
                return IncarnationNumber(number);
            }
        }
    }

    /// The cell of `tag`.
    #[inline]
    pub(crate) fn get(&self, tag: u32) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.get(tag as usize)
    }

    /// The cell of `tag`, if the user of the transport may use that tag.
    #[inline]
    pub(crate) fn of_user(&self, tag: u32) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.split_last()?.1.get(tag as usize)
    }

    /// The cell of service requests.
    pub(crate) fn of_service(&self) -> Option<&StateCell<Request>> {
        self.cells.as_ref()?.last()
    }

    /// Whether `tag` is that of service requests. Other requests may go by the service connection,
    /// too.
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
        // The user's memory may go away from here on.
        request.data.release_request();
        request.put(FREE);
    }

    /// Ends `request`, which the user has abandoned: the server is not at work on it any more, and
    /// no device uses its data. Any context.
    #[cold]
    pub(crate) fn abandoned_ended(&self, mut request: Owned<'_, Request>) {
        // The user's memory may go away from here on.
        request.data.clear();
        request.sink = None;
        self.forget_resent(&request);
        self.events.abandoned_ended(request.tag());
        request.put(FREE);
    }

    /// Notes that `request` is about to be sent again by another path, because `incarnation`, which
    /// carried it, was lost. The request stays marked until it ends. Sleeps.
    pub(crate) fn note_resent(&self, request: &mut Request, incarnation: u32) {
        if request.connection == SERVICE_CID {
            // A service request is never abandoned.
            return;
        }
        let Some(place) = self.resent_place(request.tag()) else {
            return;
        };
        let mut lost_paths = self.lost_paths.lock();
        let path = lost_paths.lost(incarnation, || self.resent_from_all());
        let known = ResentFrom::from_u64(place.load(ordering::Relaxed));
        // Nothing else changes the value: this is the request's owner, and the lock is held.
        place.store(known.and(path).to_u64(), ordering::Relaxed);
        request.connection |= RESENT;
    }

    /// Deletes the note of the paths from which `request` was sent again, because the request ends.
    /// Only for its owner. Any context.
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

    /// All lost paths from which requests that have not ended were sent again.
    fn resent_from_all(&self) -> ResentFrom {
        let places = self.resent.as_ref().into_iter().flatten();
        places.fold(ResentFrom::NOTHING, |all, place| {
            all.union(ResentFrom::from_u64(place.load(ordering::Relaxed)))
        })
    }

    /// Notes that a path is up again that was lost as `incarnation`. Its abandoned requests may end
    /// now: a server accepts a path again only when it is done with the requests of before.
    /// `incarnation` is 0 if there was none. Sleeps.
    pub(crate) fn path_is_back(&self, incarnation: u32) {
        if incarnation == 0 {
            return;
        }
        // When several paths come back, the last one sees the changes of all others, because of the
        // lock.
        let mut lost_paths = self.lost_paths.lock();
        let path = lost_paths.back(incarnation);
        for (cell, resent) in self.iter().zip(self.resent.as_ref().into_iter().flatten()) {
            self.path_of_tag_is_back(IncarnationNumber(incarnation), path, cell, resent);
        }
    }

    /// As [`Self::path_is_back`], for one tag. An abandoned request ends if the path that had it
    /// last is back, and all paths that had it before. Called with the lock held.
    fn path_of_tag_is_back(
        &self,
        lost: IncarnationNumber,
        path: Option<LostPath>,
        cell: &StateCell<Request>,
        resent: &Atomic<u64>,
    ) {
        let state = cell.state();
        if lost.phase_of(state) == Some(Phase::LeftBehind) {
            let connection = IncarnationNumber::connection_of(state);
            cell.change(
                state,
                IncarnationNumber::NONE.state(connection, Phase::LeftBehind),
            );
        }
        let known = resent.load(ordering::Relaxed);
        let left = path.map_or(known, |path| {
            ResentFrom::from_u64(known).without(path).to_u64()
        });
        if left != known {
            // If this fails, the request has just ended, and the value is nothing already.
            let _ = resent.cmpxchg(known, left, ordering::Full);
        }
        let state = cell.state();
        let is_left = IncarnationNumber::NONE.phase_of(state) == Some(Phase::LeftBehind);
        if is_left && left == ResentFrom::NOTHING.to_u64() {
            if let Some(request) = cell.take(state) {
                self.abandoned_ended(request);
            }
        }
    }

    /// Finishes `request`, which the server has responded to. Any context.
    #[inline(always)]
    pub(crate) fn finish(&self, request: Owned<'_, Request>, result: Result) {
        let (tag, connection) = (request.tag(), request.connection);
        if is_plain(connection) {
            // The tag is free first, since the user may use it again as soon as it is told.
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

    /// The tag by which the user knows `request`. The user must not have got the request back yet.
    fn user_tag(&self, request: &Request) -> u32 {
        if request.connection & MOVED == 0 {
            request.tag()
        } else {
            self.events.tag_of_moved(request.tag())
        }
    }

    /// Tells the user that `request`, which was submitted, ends without a response, because of
    /// `error`. Any context.
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
