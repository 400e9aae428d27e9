// SPDX-License-Identifier: GPL-2.0

//! A model of requests, paths and chunks, for the rules of `Documentation/design.md`, "When a path
//! fails".
//!
//! The client writes twice to place 0 (request 1 only after request 0 has finished), and once to
//! place 1 (request 2). A path is established a few times; each time is an [`Incarnation`]. A
//! message takes four steps: it is placed in its chunk, the server looks at it, its data are read,
//! and the disk has them. Between any two steps every other step may happen: either end loses a
//! path, a message is late for as long as the server's queue pair takes messages, the session's
//! worker holds a request.
//!
//! A response takes no time, nor does the message that a path has ended. If such a message is late,
//! nothing else can happen than if the server's last step before it is late. If a path loses it,
//! the path was lost before that step. A server whose send queue is full drops the message that a
//! path has ended, and the path that was to carry it stays: [`Step::Fill`]. Then the client asks
//! again.

use stateright::{Model, Property};

/// A request, which is also the data that it writes: a greater number is newer.
pub type Request = u8;
/// The number of requests.
pub const REQUESTS: usize = 3;
/// The number of chunks of a session.
pub const TAGS: usize = 2;

/// The place on the disk that `request` writes.
pub fn place(request: Request) -> usize {
    usize::from(request == 2)
}

/// When a client stops to wait for the server before it sends the requests of a lost path again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// When the server says that the path has ended.
    Ended,
    /// When the server has disconnected the path.
    Disconnected,
    /// After some time.
    Clock,
}

/// When a server says that a path has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// When the path's state says that no request begins any more.
    BeforeDrain,
    /// When the queue pairs are drained, too.
    AfterDrain,
    /// When each request of the path has finished, too.
    AfterRequests,
}

/// How a server keeps the data of a write from changes while the disk takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Data is not kept from changes.
    InPlace,
    /// The server copies the data when it looks at the request.
    Copied,
    /// The server invalidates the key of the path that the request came by.
    Invalidated,
}

/// The rules of both ends.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub wait: Wait,
    pub says: Says,
    pub data: Data,
    /// A chunk has one request at work at a time. Responses are withheld while other requests of
    /// the chunk are parked.
    pub owners: bool,
    /// The client also asks by a path that comes up later.
    pub asks_again: bool,
    /// The client asks again when it gets no response.
    pub repeats: bool,
    /// Requests of a path whose end is not confirmed are given up, and not sent by a path that
    /// comes up later.
    pub gives_up: bool,
    /// A client that has given requests up gets a session with other chunks.
    pub new_session: bool,
    /// The server makes the new session only when no request of the old session is at work.
    pub session_waits: bool,
    /// The block layer offers requests again that were given up.
    pub hold: bool,
}

impl Rules {
    /// The modules' rules.
    pub const OURS: Self = Self {
        wait: Wait::Ended,
        says: Says::AfterDrain,
        data: Data::InPlace,
        owners: true,
        asks_again: true,
        repeats: true,
        gives_up: true,
        new_session: true,
        session_waits: true,
        hold: false,
    };
}

/// The model to check.
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub rules: Rules,
    pub paths: u8,
    /// The number of times that an end loses a path by itself.
    pub losses: u8,
    /// The number of times that a path is established again.
    pub connects: u8,
    /// The number of times that the server's send queue is full.
    pub full: u8,
}

/// The progress of a request on the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    Idle,
    InFlight { tag: u8, by: u8 },
    Done,
    Failed,
}

/// A path on the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    Connecting,
    Up,
    /// Waits for the server.
    Lost,
    /// The path's requests may be sent again.
    Fenced,
    /// The path's requests must not be sent again.
    Unfenced,
    /// The path has no requests left.
    Settled,
}

/// A path on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Server {
    Up,
    /// No request of the path begins any more. The client may see the path disconnected.
    Closing,
    /// No message of the path is placed any more.
    Drained,
    /// No request of the path is at work.
    Gone,
}

/// A path, from a connection to its end. It is named by its index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incarnation {
    pub path: u8,
    pub session: u8,
    /// The client's count of requests that it gave up, when it asked for the connection.
    pub told: u8,
    pub client: Client,
    pub server: Server,
    /// The requests that are on the way, by tag.
    pub sent: [Option<Request>; TAGS],
    /// Whether the chunk has a message that the server has not looked at, by tag.
    pub placed: [bool; TAGS],
    /// The questions on the way by this path: the paths whose end the client asks for. A set of
    /// indices.
    pub questions: u8,
    /// The paths by which the client has asked for the end of this path. A set of indices.
    pub asked_on: u8,
    /// The server's send queue is full: the next message that a path has ended is dropped.
    pub is_full: bool,
    /// A message that this path has ended was dropped, and the client has not asked again.
    pub is_dropped: bool,
}

impl Incarnation {
    /// An incarnation of `path`, for a client that has given up requests `told` times.
    pub fn new(path: u8, session: u8, told: u8, client: Client) -> Self {
        Self {
            path,
            session,
            told,
            client,
            server: Server::Up,
            sent: [None; TAGS],
            placed: [false; TAGS],
            questions: 0,
            asked_on: 0,
            is_full: false,
            is_dropped: false,
        }
    }
}

/// A request on the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    pub session: u8,
    pub tag: u8,
    pub by: u8,
    /// The request in the header; `None` while the request is parked.
    pub header: Option<Request>,
    /// The data as they were read.
    pub data: Option<Request>,
    /// The data are on the disk; the response is withheld.
    pub written: bool,
}

impl Operation {
    pub fn has_chunk_of(&self, other: &Self) -> bool {
        (self.session, self.tag) == (other.session, other.tag)
    }
}

/// The chunks of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    pub given_up: u8,
    pub chunks: [Option<Request>; TAGS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub requests: [Progress; REQUESTS],
    pub incarnations: Vec<Incarnation>,
    pub operations: Vec<Operation>,
    pub sessions: Vec<Session>,
    pub disk: [Option<Request>; 2],
    pub given_up: u8,
    pub losses: u8,
    pub connects: u8,
    pub full: u8,
    /// A request that was sent again has got its response.
    pub failed_over: bool,
    pub sent_again: [bool; REQUESTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends a request for the first time.
    Send {
        request: Request,
        tag: u8,
        by: u8,
    },
    /// The client sends a request of a lost path by another path.
    SendAgain {
        request: Request,
        by: u8,
    },
    /// The client loses a path.
    Lose(u8),
    /// The client stops to wait for the end of a path, though the server has not confirmed it.
    StopWaiting(u8),
    /// The client gives up the requests of a path.
    GiveUp(u8),
    /// The client establishes a path again: first the server's part, then the client's part.
    Connect {
        path: u8,
    },
    ComeUp(u8),
    /// The server begins to close a path, drains the path, and has finished the path's requests.
    Close(u8),
    Drain(u8),
    Leave(u8),
    /// The question for the end of a path arrives at the server.
    Question {
        on: u8,
        about: u8,
    },
    /// The server's send queue for a path becomes full.
    Fill(u8),
    /// The client has waited in vain for the end of a path, and asks again.
    AskAgain(u8),
    /// A message arrives in its chunk; the server looks at it.
    Place {
        by: u8,
        tag: u8,
    },
    Look {
        by: u8,
        tag: u8,
    },
    /// An operation's data are read; the disk has them.
    Read(u8),
    Write(u8),
}

impl State {
    pub fn incarnation(&mut self, index: u8) -> &mut Incarnation {
        &mut self.incarnations[usize::from(index)]
    }

    pub fn is_up(&self) -> bool {
        self.incarnations.iter().any(|i| i.client == Client::Up)
    }

    /// The requests that are in flight on a path.
    pub fn in_flight_on(&self, index: u8) -> impl Iterator<Item = (Request, u8)> + '_ {
        (0..)
            .zip(&self.requests)
            .filter_map(move |(request, progress)| match progress {
                Progress::InFlight { tag, by } if *by == index => Some((request, *tag)),
                _ => None,
            })
    }

    pub fn is_free(&self, tag: u8) -> bool {
        self.requests.iter().all(
            |progress| !matches!(progress, Progress::InFlight { tag: other, .. } if *other == tag),
        )
    }

    fn has_in_flight(&self) -> bool {
        let in_flight = |progress: &Progress| matches!(progress, Progress::InFlight { .. });
        self.requests.iter().any(in_flight)
    }

    /// Every place has data that were written to that place, and no data older than the newest that
    /// the client knows to be written.
    fn is_consistent(&self) -> bool {
        self.disk.iter().enumerate().all(|(at, on_disk)| {
            let newest = (0..)
                .zip(&self.requests)
                .filter(|(request, progress)| place(*request) == at && **progress == Progress::Done)
                .map(|(request, _)| request)
                .max();
            on_disk.is_none_or(|data| place(data) == at) && *on_disk >= newest
        })
    }
}

impl Fence {
    /// All steps that are possible in `state`.
    fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        self.client_steps(state, steps);
        self.server_steps(state, steps);
    }

    fn client_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let indices = || (0u8..).zip(&state.incarnations);
        let ups = || {
            indices()
                .filter(|(_, i)| i.client == Client::Up)
                .map(|(by, _)| by)
        };
        for (request, progress) in (0u8..).zip(&state.requests) {
            // Requests 0 and 1 write the same place.
            let waits =
                request == 1 && !matches!(state.requests[0], Progress::Done | Progress::Failed);
            if *progress == Progress::Idle && !waits {
                for by in ups() {
                    let tags = (0..TAGS as u8).filter(|tag| state.is_free(*tag));
                    steps.extend(tags.map(|tag| Step::Send { request, tag, by }));
                }
            }
        }
        for (index, incarnation) in indices() {
            match incarnation.client {
                Client::Connecting => steps.push(Step::ComeUp(index)),
                Client::Up if state.losses > 0 || incarnation.server != Server::Up => {
                    steps.push(Step::Lose(index));
                }
                Client::Lost => {
                    if self.rules.repeats && incarnation.is_dropped && state.is_up() {
                        steps.push(Step::AskAgain(index));
                    }
                    let told = match self.rules.wait {
                        Wait::Ended => false,
                        Wait::Disconnected => incarnation.server > Server::Up,
                        Wait::Clock => true,
                    };
                    if told || !state.is_up() {
                        steps.push(Step::StopWaiting(index));
                    }
                }
                Client::Fenced if state.is_up() => {
                    for by in ups() {
                        let again = state.in_flight_on(index);
                        steps.extend(again.map(|(request, _)| Step::SendAgain { request, by }));
                    }
                }
                Client::Fenced | Client::Unfenced => steps.push(Step::GiveUp(index)),
                _ => {}
            }
        }
        for path in 0..self.paths {
            if state.connects > 0 && self.session_of(state, path).is_some() {
                steps.push(Step::Connect { path });
            }
        }
    }

    fn server_steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (by, incarnation) in (0u8..).zip(&state.incarnations) {
            let own = incarnation.client > Client::Up;
            match incarnation.server {
                Server::Up if own || state.losses > 0 => steps.push(Step::Close(by)),
                Server::Closing => steps.push(Step::Drain(by)),
                Server::Drained
                    if !self.rules.session_waits || state.operations.iter().all(|o| o.by != by) =>
                {
                    steps.push(Step::Leave(by));
                }
                _ => {}
            }
            for tag in 0..TAGS as u8 {
                if incarnation.sent[usize::from(tag)].is_some() && !self.is_invalid(state, by, tag)
                {
                    steps.push(Step::Place { by, tag });
                }
                if incarnation.placed[usize::from(tag)] && incarnation.server == Server::Up {
                    steps.push(Step::Look { by, tag });
                }
            }
            for about in 0..state.incarnations.len() as u8 {
                if incarnation.server == Server::Up && incarnation.questions & (1 << about) != 0 {
                    steps.push(Step::Question { on: by, about });
                }
            }
            if state.full > 0 && incarnation.server == Server::Up && !incarnation.is_full {
                steps.push(Step::Fill(by));
            }
        }
        for (index, operation) in (0u8..).zip(&state.operations) {
            match (operation.header, operation.data) {
                (Some(_), None) => steps.push(Step::Read(index)),
                (Some(_), Some(_)) if !operation.written => steps.push(Step::Write(index)),
                _ => {}
            }
        }
    }

    /// Whether the path's key for the chunk is invalidated.
    fn is_invalid(&self, state: &State, by: u8, tag: u8) -> bool {
        self.rules.data == Data::Invalidated
            && state
                .operations
                .iter()
                .any(|o| (o.by, o.tag) == (by, tag) && o.header.is_some())
    }

    /// The session that the server would let `path` into now, if any.
    pub fn session_of(&self, state: &State, path: u8) -> Option<u8> {
        let current = state.sessions.len() as u8 - 1;
        let of_path = |i: &&Incarnation| i.path == path;
        let settled = |i: &Incarnation| i.client == Client::Settled;
        if !state.incarnations.iter().filter(of_path).all(settled) {
            return None;
        }
        let told = &state.sessions[usize::from(current)].given_up;
        if *told == state.given_up || !self.rules.new_session {
            let gone = |i: &Incarnation| i.server == Server::Gone;
            return state
                .incarnations
                .iter()
                .filter(of_path)
                .all(gone)
                .then_some(current);
        }
        let ended = |i: &Incarnation| settled(i) && i.server == Server::Gone;
        state.incarnations.iter().all(ended).then_some(current + 1)
    }
}

impl Model for Fence {
    type State = State;
    type Action = Step;

    /// All paths are up, and request 0 is on its way by path 0.
    fn init_states(&self) -> Vec<State> {
        let up = |path| Incarnation::new(path, 0, 0, Client::Up);
        let mut state = State {
            requests: [Progress::Idle; REQUESTS],
            incarnations: (0..self.paths).map(up).collect(),
            operations: Vec::new(),
            sessions: vec![Session {
                given_up: 0,
                chunks: [None; TAGS],
            }],
            disk: [None; 2],
            given_up: 0,
            losses: self.losses,
            connects: self.connects,
            full: self.full,
            failed_over: false,
            sent_again: [false; REQUESTS],
        };
        state.send(0, 0, 0);
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        state.forget();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing older after something newer", |_, state: &State| {
                state.is_consistent()
            }),
            Property::always("no request hangs", |model: &Fence, state: &State| {
                let mut steps = Vec::new();
                model.steps(state, &mut steps);
                !steps.is_empty() || !state.has_in_flight()
            }),
            Property::sometimes("a failover completes", |_, state: &State| state.failed_over),
        ]
    }
}
