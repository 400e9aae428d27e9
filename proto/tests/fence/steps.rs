// SPDX-License-Identifier: GPL-2.0

//! The steps of the model.

use super::model::{
    place, Client, Data, Fence, Incarnation, Operation, Progress, Request, Says, Server, Session,
    State, Step, Wait, TAGS,
};

impl State {
    /// The client sends `request` by a path.
    pub fn send(&mut self, request: Request, tag: u8, by: u8) {
        self.requests[usize::from(request)] = Progress::InFlight { tag, by };
        let incarnation = self.incarnation(by);
        // A drained queue pair takes no message.
        if incarnation.server < Server::Drained {
            incarnation.sent[usize::from(tag)] = Some(request);
        }
    }

    /// The client has lost a path, and asks the server by its other paths to end it.
    fn lose(&mut self, index: u8) {
        self.incarnation(index).client = Client::Lost;
        self.ask(index);
        self.settle(index);
    }

    /// The client asks the server by all paths that are up to end a path.
    fn ask(&mut self, index: u8) {
        for incarnation in &mut self.incarnations {
            if incarnation.client == Client::Up {
                incarnation.questions |= 1 << index;
            }
        }
    }

    /// A path that has no requests left has nothing to wait for.
    fn settle(&mut self, index: u8) {
        if self.in_flight_on(index).next().is_none() {
            self.incarnation(index).client = Client::Settled;
        }
    }

    /// The server says by the path `on` that the path `about` has ended.
    fn tell(&mut self, on: u8, about: u8) {
        let carrier = self.incarnation(on);
        let arrives = carrier.server == Server::Up && carrier.client == Client::Up;
        if std::mem::take(&mut carrier.is_full) {
            self.incarnation(about).is_dropped = true;
            return;
        }
        if arrives && self.incarnation(about).client == Client::Lost {
            self.incarnation(about).client = Client::Fenced;
        }
    }

    /// The client gives up the requests of a path. Their tags are free for other requests then.
    fn give_up(&mut self, index: u8, hold: bool) {
        self.given_up += 1;
        for other in 0..self.incarnations.len() as u8 {
            if self.incarnation(other).client == Client::Up {
                self.lose(other);
            }
        }
        let progress = if hold {
            Progress::Idle
        } else {
            Progress::Failed
        };
        let given_up: Vec<_> = self.in_flight_on(index).collect();
        for (request, _) in given_up {
            self.requests[usize::from(request)] = progress;
            self.sent_again[usize::from(request)] = false;
        }
        self.settle(index);
    }

    /// An operation begins. The chunk belongs to it.
    fn begin(&self, operation: &mut Operation, data: Data) {
        let chunks = &self.sessions[usize::from(operation.session)].chunks;
        operation.header = chunks[usize::from(operation.tag)];
        if data == Data::Copied {
            operation.data = operation.header;
        }
    }

    /// The response to an operation.
    fn respond(&mut self, operation: &Operation) {
        let path = self.incarnation(operation.by);
        if path.server != Server::Up || path.client != Client::Up {
            return;
        }
        let found = self
            .in_flight_on(operation.by)
            .find(|(_, tag)| *tag == operation.tag);
        if let Some((request, _)) = found {
            self.requests[usize::from(request)] = Progress::Done;
            self.failed_over |= std::mem::take(&mut self.sent_again[usize::from(request)]);
        }
    }

    /// Clears values that have no effect any more, so that equal states are found equal.
    pub fn forget(&mut self) {
        for incarnation in &mut self.incarnations {
            if incarnation.server != Server::Up {
                incarnation.placed = [false; TAGS];
                incarnation.questions = 0;
                incarnation.is_full = false;
            }
            if incarnation.client != Client::Lost {
                incarnation.is_dropped = false;
            }
            if incarnation.client == Client::Settled {
                incarnation.asked_on = 0;
                incarnation.told = 0;
            }
        }
        self.operations.sort();
    }
}

impl Fence {
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Send { request, tag, by } => state.send(request, tag, by),
            Step::SendAgain { request, by } => Self::send_again(state, request, by),
            Step::Lose(index) => {
                if state.incarnation(index).server == Server::Up {
                    state.losses -= 1;
                }
                state.lose(index);
            }
            Step::StopWaiting(index) => self.stop_waiting(state, index),
            Step::GiveUp(index) => state.give_up(index, self.rules.hold),
            Step::Connect { path } => self.connect(state, path),
            Step::ComeUp(index) => self.come_up(state, index),
            Step::Close(index) => {
                if state.incarnation(index).client <= Client::Up {
                    state.losses -= 1;
                }
                self.enter(state, index, Server::Closing);
            }
            Step::Drain(index) => {
                state.incarnation(index).sent = [None; TAGS];
                let parked = |o: &Operation| o.by == index && o.header.is_none();
                state.operations.retain(|o| !parked(o));
                self.enter(state, index, Server::Drained);
            }
            Step::Leave(index) => self.enter(state, index, Server::Gone),
            Step::Fill(on) => {
                state.full -= 1;
                state.incarnation(on).is_full = true;
            }
            Step::AskAgain(about) => {
                state.incarnation(about).is_dropped = false;
                state.ask(about);
            }
            Step::Question { on, about } => self.question(state, on, about),
            Step::Place { by, tag } => {
                let incarnation = state.incarnation(by);
                incarnation.placed[usize::from(tag)] = true;
                let session = usize::from(incarnation.session);
                let request = incarnation.sent[usize::from(tag)].take();
                state.sessions[session].chunks[usize::from(tag)] = request;
            }
            Step::Look { by, tag } => self.look(state, by, tag),
            Step::Read(index) => {
                let operation = &state.operations[usize::from(index)];
                let chunks = &state.sessions[usize::from(operation.session)].chunks;
                state.operations[usize::from(index)].data = chunks[usize::from(operation.tag)];
            }
            Step::Write(index) => self.write(state, usize::from(index)),
        }
    }

    fn send_again(state: &mut State, request: Request, by: u8) {
        let Progress::InFlight { tag, by: lost } = state.requests[usize::from(request)] else {
            unreachable!("only a request in flight is sent again");
        };
        state.send(request, tag, by);
        state.sent_again[usize::from(request)] = true;
        state.settle(lost);
    }

    fn stop_waiting(&self, state: &mut State, index: u8) {
        let closing = state.incarnation(index).server > Server::Up;
        let sends = match self.rules.wait {
            Wait::Ended => !self.rules.gives_up,
            Wait::Disconnected => closing || !self.rules.gives_up,
            Wait::Clock => true,
        };
        state.incarnation(index).client = if sends {
            Client::Fenced
        } else {
            Client::Unfenced
        };
    }

    fn connect(&self, state: &mut State, path: u8) {
        let Some(session) = self.session_of(state, path) else {
            unreachable!("the server lets it in");
        };
        state.connects -= 1;
        if usize::from(session) == state.sessions.len() {
            for old in &mut state.sessions {
                old.chunks = [None; TAGS];
            }
            state.sessions.push(Session {
                given_up: state.given_up,
                chunks: [None; TAGS],
            });
        }
        let incarnation = Incarnation::new(path, session, state.given_up, Client::Connecting);
        state.incarnations.push(incarnation);
    }

    fn come_up(&self, state: &mut State, index: u8) {
        let current = state.given_up;
        let lost = (0..)
            .zip(&state.incarnations)
            .filter(|(_, i)| i.client == Client::Lost);
        let questions = lost.fold(0, |set, (other, _): (u8, _)| set | (1 << other));
        let incarnation = state.incarnation(index);
        if incarnation.told == current {
            incarnation.client = Client::Up;
            incarnation.questions = if self.rules.asks_again { questions } else { 0 };
        } else {
            incarnation.client = Client::Settled;
        }
    }

    /// The state of a path from which the server says that the path has ended.
    fn ended(&self) -> Server {
        match self.rules.says {
            Says::BeforeDrain => Server::Closing,
            Says::AfterDrain => Server::Drained,
            Says::AfterRequests => Server::Gone,
        }
    }

    /// The server takes a path down as far as `server`.
    fn enter(&self, state: &mut State, index: u8, server: Server) {
        state.incarnation(index).server = server;
        if server >= self.ended() {
            let asked_on = std::mem::take(&mut state.incarnation(index).asked_on);
            for on in 0..state.incarnations.len() as u8 {
                if asked_on & (1 << on) != 0 {
                    state.tell(on, index);
                }
            }
        }
    }

    fn question(&self, state: &mut State, on: u8, about: u8) {
        state.incarnation(on).questions &= !(1 << about);
        let path = state.incarnation(about);
        if path.server >= self.ended() {
            return state.tell(on, about);
        }
        path.asked_on |= 1 << on;
        if path.server == Server::Up {
            self.enter(state, about, Server::Closing);
        }
    }

    fn look(&self, state: &mut State, by: u8, tag: u8) {
        let incarnation = state.incarnation(by);
        incarnation.placed[usize::from(tag)] = false;
        let mut operation = Operation {
            session: incarnation.session,
            tag,
            by,
            header: None,
            data: None,
            written: false,
        };
        let is_owned = state
            .operations
            .iter()
            .any(|other| other.has_chunk_of(&operation));
        if !(self.rules.owners && is_owned) {
            state.begin(&mut operation, self.rules.data);
        }
        state.operations.push(operation);
    }

    /// The disk has an operation's data. Then the next operation for the chunk begins, or the
    /// responses are sent.
    fn write(&self, state: &mut State, index: usize) {
        let operation = &mut state.operations[index];
        if let (Some(header), Some(data)) = (operation.header, operation.data) {
            operation.written = true;
            state.disk[place(header)] = Some(data);
        }
        if !self.rules.owners {
            let operation = state.operations.remove(index);
            return state.respond(&operation);
        }
        let operation = state.operations[index].clone();
        let (mut same, others): (Vec<_>, Vec<_>) = std::mem::take(&mut state.operations)
            .into_iter()
            .partition(|other| other.has_chunk_of(&operation));
        state.operations = others;
        same.retain(|other| {
            other.header.is_some() || state.incarnation(other.by).server == Server::Up
        });
        if let Some(next) = same.iter_mut().find(|other| other.header.is_none()) {
            state.begin(next, self.rules.data);
            state.operations.extend(same);
        } else {
            for operation in same {
                state.respond(&operation);
            }
        }
    }
}
