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

/// How long the server may take for an answer, in ms. Lost packets cost less.
const ANSWER_MS: u32 = 10_000;

/// The bytes of each scatter entry in a write of many segments.
const SEGMENT: usize = 1000;

/// A raw connection on which this end gives commands, and the state of the conversation.
pub(crate) struct Talk<'a> {
    report: &'a Report,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: RemoteMemory,
    seed: u64,
    message: KVVec<u8>,
}

impl<'a> Talk<'a> {
    /// Makes a conversation on a connection to a server with this offer. Sleeps.
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

    /// A seed that no other case uses.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        self.seed
    }

    /// Runs a case, and reports it. An error ends the test of this connection: `EINTR` if the test
    /// is to stop, else the error of the case. Sleeps.
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

    /// Sends a command without further bytes.
    pub(crate) fn command(&mut self, command: &Command) -> Result {
        self.endpoint.send(&command.to_bytes(), None)
    }

    /// Waits for the server's next message.
    fn receive(&mut self) -> Result<Received> {
        self.endpoint.receive(ANSWER_MS)
    }

    /// Waits for the server's answer. If the answer has an error, returns that.
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

    /// Has the server compare its memory with the pattern.
    fn check(&mut self, size: u32, seed: u64) -> Result<Outcome> {
        self.command(&Command::new(Action::Check, size, seed))?;
        Ok(right(&self.answer()?))
    }

    /// Sends a message of `size` bytes. The server answers how many came, and whether they are
    /// right.
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

    /// As [`Self::write`], with an immediate, which the server sends back in its answer.
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

    /// Sends a command that has the server write to this end's memory. Returns the seed of the
    /// pattern.
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

    /// Has the server write to this end's memory.
    fn peer_write(&mut self, size: u32) -> Result<Outcome> {
        let seed = self.write_back(Action::Write, size)?;
        self.answer()?;
        self.look(size, seed)
    }

    /// As [`Self::peer_write`], with an immediate.
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

    /// As [`Self::peer_write`]; then the server invalidates this end's key, as in the transport.
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

    /// Compares this end's memory, to which the server has written, with the pattern.
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

/// The outcome of an answer that says whether the bytes are right.
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
