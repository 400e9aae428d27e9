// SPDX-License-Identifier: GPL-2.0

//! The raw part: each kind of work request that the transport uses, in sizes around all boundaries.

use kernel::{
    page::PAGE_SIZE,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    rdma::RemoteMemory, //
};
use proto::fabric::{
    command::{
        Action,
        Answer,
        Command,
        Offer,
        ALL_RIGHT,
        ANSWER_LEN,
        COMMAND_LEN, //
    },
    fill::fill,
    sizes::Sizes,
    MESSAGE_SIZE,
    RAW_SIZE, //
};
use rtrs_test::{
    Endpoint,
    Received, //
};

use crate::report::{
    Outcome,
    Report, //
};

/// How long the server may take for an answer, in ms. Above what lost packets cost.
const ANSWER_MS: u32 = 10_000;

/// The scatter entries that a write of many segments is made of have so many bytes.
const SEGMENT: usize = 1000;

/// A raw connection on which commands are given, and what was said on it.
pub(crate) struct Talk<'a> {
    report: &'a Report,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: RemoteMemory,
    seed: u64,
    message: KVVec<u8>,
}

impl<'a> Talk<'a> {
    /// On a connection with a server that offers this. Sleeps.
    pub(crate) fn new(report: &'a Report, endpoint: Endpoint, offer: &Offer) -> Result<Self> {
        Ok(Self {
            report,
            endpoint,
            server: RemoteMemory {
                address: offer.address,
                rkey: offer.rkey,
            },
            seed: kernel_ext::random::u64(),
            message: KVVec::from_elem(0, MESSAGE_SIZE as usize, GFP_KERNEL)?,
        })
    }

    /// A seed that no other case has.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        self.seed
    }

    /// Runs a case, and reports it. An error ends the test of this connection: `EINTR` if the test
    /// is to stop, else that of the case. Sleeps.
    fn case(
        &mut self,
        name: &str,
        size: u32,
        run: impl FnOnce(&mut Self) -> Result<Outcome>,
    ) -> Result {
        self.report.go_on()?;
        let began = Instant::<Monotonic>::now();
        let outcome = run(self).unwrap_or_else(Outcome::Failed);
        self.report.case(name, size, outcome, began.elapsed())?;
        match outcome {
            Outcome::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends a command, and what follows it in the message.
    pub(crate) fn command(&mut self, command: &Command) -> Result {
        self.endpoint.send(&command.to_bytes(), None)
    }

    /// The server's next message.
    fn receive(&mut self) -> Result<Received> {
        self.endpoint.receive(ANSWER_MS)
    }

    /// The server's answer. Its error, if it has one.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        let received = self.receive()?;
        let mut bytes = [0; ANSWER_LEN];
        let is_answer = !received.is_write && received.len as usize == ANSWER_LEN;
        if is_answer {
            self.endpoint.copy_out(&received, &mut bytes)?;
        }
        self.endpoint.post_again(received)?;
        let answer = Answer::parse(&bytes).filter(|_| is_answer).ok_or(EPROTO)?;
        match answer.errno {
            0 => Ok(answer),
            errno if (-4095..0).contains(&errno) => Err(Error::from_errno(errno)),
            _ => Err(EPROTO),
        }
    }

    /// Asks the server what it finds in its memory.
    fn check(&mut self, size: u32, seed: u64) -> Result<Outcome> {
        self.command(&Command::new(Action::Check, size, seed))?;
        Ok(right(&self.answer()?))
    }

    /// A message of `size` bytes: the server says how many came, and whether they are right.
    fn send(&mut self, size: u32, imm: Option<u32>) -> Result<Outcome> {
        let (len, seed) = (size as usize, self.next_seed());
        let bytes = self.message.get_mut(..len).ok_or(EINVAL)?;
        if let Some((head, rest)) = bytes.split_at_mut_checked(COMMAND_LEN) {
            let command = Command::new(Action::Message, rest.len() as u32, seed);
            head.copy_from_slice(&command.to_bytes());
            fill(seed, 0, rest);
        } else {
            bytes.fill(0);
        }
        self.endpoint.send(bytes, imm)?;
        let answer = self.answer()?;
        if answer.len != size || imm.is_some_and(|imm| answer.imm != imm) {
            return Err(EPROTO);
        }
        Ok(right(&answer))
    }

    /// Writes to the server's memory.
    fn write(&mut self, size: u32, piece: usize) -> Result<Outcome> {
        let (seed, to) = (self.next_seed(), self.server);
        self.endpoint.write(to, size, seed, piece, None)?;
        self.check(size, seed)
    }

    /// The same with an immediate, which the server tells.
    fn write_imm(&mut self, size: u32) -> Result<Outcome> {
        let (seed, to) = (self.next_seed(), self.server);
        let imm = seed as u32;
        let whole = RAW_SIZE as usize;
        self.endpoint.write(to, size, seed, whole, Some(imm))?;
        let answer = self.answer()?;
        if answer.imm != imm || answer.len != size {
            return Err(EPROTO);
        }
        self.check(size, seed)
    }

    /// A command that has the server write to this end's memory.
    pub(crate) fn write_back(&mut self, action: Action, size: u32) -> Result<u64> {
        let seed = self.next_seed();
        let to = self.endpoint.memory().target();
        self.command(&Command {
            address: to.address,
            rkey: to.rkey,
            ..Command::new(action, size, seed)
        })?;
        Ok(seed)
    }

    /// The server writes to this end's memory.
    fn peer_write(&mut self, size: u32) -> Result<Outcome> {
        let seed = self.write_back(Action::Write, size)?;
        self.answer()?;
        self.look(size, seed)
    }

    /// The same with an immediate.
    fn peer_write_imm(&mut self, size: u32) -> Result<Outcome> {
        let seed = self.write_back(Action::WriteImm, size)?;
        let received = self.receive()?;
        let found = (received.is_write, received.len, received.imm);
        self.endpoint.post_again(received)?;
        self.answer()?;
        if found != (true, size, seed as u32) {
            return Err(EPROTO);
        }
        self.look(size, seed)
    }

    /// The same, after which the server invalidates this end's key, as the transport does.
    fn peer_invalidate(&mut self, size: u32) -> Result<Outcome> {
        let rkey = self.endpoint.memory().target().rkey;
        let seed = self.write_back(Action::WriteInvalidate, size)?;
        let received = self.receive()?;
        self.endpoint.post_again(received)?;
        self.answer()?;
        if received.rkey != rkey {
            return Ok(Outcome::NoError);
        }
        self.look(size, seed)
    }

    /// What the server has written to this end's memory.
    fn look(&mut self, size: u32, seed: u64) -> Result<Outcome> {
        let place = self
            .endpoint
            .memory()
            .first_difference(seed, size as usize)?;
        Ok(match place {
            None => Outcome::Good,
            place => Outcome::WrongBytes(place),
        })
    }
}

/// What an answer says of the bytes.
fn right(answer: &Answer) -> Outcome {
    match answer.wrong {
        ALL_RIGHT => Outcome::Good,
        place => Outcome::WrongBytes(Some(place as usize)),
    }
}

/// Tries all kinds in all sizes, and ends the connection. Sleeps.
pub(crate) fn run(report: &Report, endpoint: Endpoint, offer: &Offer) -> Result {
    let mtu = endpoint.mtu().min(offer.mtu);
    let mut talk = Talk::new(report, endpoint, offer)?;
    let whole = RAW_SIZE as usize;
    for size in Sizes::around(mtu, PAGE_SIZE as u32, MESSAGE_SIZE).iter() {
        talk.case("send", size, |talk| talk.send(size, None))?;
    }
    talk.case("send-imm", 100, |talk| talk.send(100, Some(0x0102_0304)))?;
    for size in Sizes::around(mtu, PAGE_SIZE as u32, RAW_SIZE).iter() {
        talk.case("write", size, |talk| talk.write(size, whole))?;
        talk.case("peer-write", size, |talk| talk.peer_write(size))?;
    }
    // An MTU is at most 4096.
    for size in [0, 1, mtu, mtu.wrapping_add(1), RAW_SIZE] {
        talk.case("write-imm", size, |talk| talk.write_imm(size))?;
        talk.case("peer-write-imm", size, |talk| talk.peer_write_imm(size))?;
    }
    talk.case("write-segments", RAW_SIZE, |talk| {
        talk.write(RAW_SIZE, SEGMENT)
    })?;
    talk.case("local-invalidate", 0, |talk| {
        talk.endpoint.end_key().map(|()| Outcome::Good)
    })?;
    talk.case("register", 0, |talk| {
        talk.endpoint.register().map(|()| Outcome::Good)
    })?;
    talk.case("peer-write", 1, |talk| talk.peer_write(1))?;
    talk.case("peer-invalidate", mtu, |talk| talk.peer_invalidate(mtu))
}
