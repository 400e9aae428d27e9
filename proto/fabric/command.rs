// SPDX-License-Identifier: GPL-2.0

//! Messages of the test: headers of the transport part, commands and answers of the raw part.
//!
//! All integers are little-endian. The peer's bytes are hostile: each number is checked against
//! the limits in [`super`] before it is used.

use super::{
    MESSAGE_SIZE,
    RAW_SIZE, //
};

/// Marks the private data of a raw connection's request and response, and holds the version.
pub const MAGIC: u32 = 0x7466_0001;

/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = 16;

/// Bytes of a [`Command`].
pub const COMMAND_LEN: usize = 32;

/// The most bytes behind a [`Command`] in a message.
const MAX_IN_MESSAGE: u32 = MESSAGE_SIZE - COMMAND_LEN as u32;

/// Bytes of an [`Answer`].
pub const ANSWER_LEN: usize = 16;

/// Bytes of an [`Offer`].
pub const OFFER_LEN: usize = 32;

/// `N` bytes at `at`.
fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Copies `value` to `at`.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let rest = bytes.get_mut(at..).unwrap_or(&mut []);
    for (to, from) in rest.iter_mut().zip(value) {
        *to = *from;
    }
}

/// What the server does with the data of a request of the transport part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Compares data of a write with the pattern, and fills a read with it.
    Checked,
    /// Takes the data of a write unchecked, and answers a read with whatever the memory holds: for
    /// measurements.
    Plain,
}

/// The header of a request of the transport part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What to do with the data.
    pub data: Data,
    /// The seed of the pattern.
    pub seed: u64,
}

impl Header {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        put(&mut bytes, 0, &MAGIC.to_le_bytes());
        put(&mut bytes, 4, &[u8::from(self.data == Data::Checked)]);
        put(&mut bytes, 8, &self.seed.to_le_bytes());
        bytes
    }

    /// Parses a header that the client sent; `None` for another length, magic or kind.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != HEADER_LEN || take(bytes, 0)? != MAGIC.to_le_bytes() {
            return None;
        }
        Some(Self {
            data: match bytes.get(4)? {
                0 => Data::Plain,
                1 => Data::Checked,
                _ => return None,
            },
            seed: u64::from_le_bytes(take(bytes, 8)?),
        })
    }
}

/// The memory that each end of a raw connection offers its peer, as the private data of the
/// connection's request and response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The MTU of this end's port, in bytes.
    pub mtu: u32,
    /// The key of this end's memory.
    pub rkey: u32,
    /// The address at which that memory begins.
    pub address: u64,
    /// CPUs of this end.
    pub cpus: u32,
}

impl Offer {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; OFFER_LEN] {
        let mut bytes = [0; OFFER_LEN];
        // Byte 0 belongs to the connection manager over native InfiniBand, and byte 1 must not
        // look like an IP version.
        put(&mut bytes, 4, &MAGIC.to_le_bytes());
        put(&mut bytes, 8, &self.mtu.to_le_bytes());
        put(&mut bytes, 12, &self.rkey.to_le_bytes());
        put(&mut bytes, 16, &self.address.to_le_bytes());
        put(&mut bytes, 24, &self.cpus.to_le_bytes());
        bytes
    }

    /// Parses the peer's private data, which the connection manager may have padded. `None` if the
    /// peer is not an end of this test, or has another version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if take(bytes, 4)? != MAGIC.to_le_bytes() {
            return None;
        }
        Some(Self {
            mtu: u32::from_le_bytes(take(bytes, 8)?),
            rkey: u32::from_le_bytes(take(bytes, 12)?),
            address: u64::from_le_bytes(take(bytes, 16)?),
            cpus: u32::from_le_bytes(take(bytes, 24)?),
        })
    }
}

/// An order to the server of a raw connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Compare the bytes behind the command in the message with the pattern.
    Message,
    /// Compare the first bytes of the server's memory with the pattern.
    Check,
    /// Write the pattern to the client's memory.
    Write,
    /// Write the pattern to the client's memory by a write with immediate, which is the low half of
    /// the seed.
    WriteImm,
    /// Do as for [`Action::Write`], then invalidate the client's key, then answer.
    WriteInvalidate,
    /// Invalidate the server's own key.
    EndKey,
    /// Answer, and post no receives any more.
    Starve,
}

impl Action {
    const ALL: [Self; 7] = [
        Self::Message,
        Self::Check,
        Self::Write,
        Self::WriteImm,
        Self::WriteInvalidate,
        Self::EndKey,
        Self::Starve,
    ];
}

/// A command of the raw part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub action: Action,
    /// The length of the pattern in bytes.
    pub len: u32,
    /// The seed of the pattern.
    pub seed: u64,
    /// The address in the client's memory to write to.
    pub address: u64,
    /// The key of that memory.
    pub rkey: u32,
}

impl Command {
    /// A command that names no memory of the client.
    pub const fn new(action: Action, len: u32, seed: u64) -> Self {
        Self {
            action,
            len,
            seed,
            address: 0,
            rkey: 0,
        }
    }

    /// As bytes.
    pub fn to_bytes(&self) -> [u8; COMMAND_LEN] {
        let mut bytes = [0; COMMAND_LEN];
        let mut actions = (0..).zip(Action::ALL);
        let number: u8 = actions
            .find_map(|(number, action)| (action == self.action).then_some(number))
            .unwrap_or(u8::MAX);
        put(&mut bytes, 0, &[number]);
        put(&mut bytes, 4, &self.len.to_le_bytes());
        put(&mut bytes, 8, &self.seed.to_le_bytes());
        put(&mut bytes, 16, &self.address.to_le_bytes());
        put(&mut bytes, 24, &self.rkey.to_le_bytes());
        put(&mut bytes, 28, &MAGIC.to_le_bytes());
        bytes
    }

    /// Parses the beginning of a message; `None` if it is not a command, or if its length is above
    /// what either end has memory for.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if take(bytes, 28)? != MAGIC.to_le_bytes() {
            return None;
        }
        let action = *Action::ALL.get(usize::from(*bytes.first()?))?;
        let len = u32::from_le_bytes(take(bytes, 4)?);
        let most = match action {
            Action::Message => MAX_IN_MESSAGE,
            _ => RAW_SIZE,
        };
        (len <= most).then_some(Self {
            action,
            len,
            seed: u64::from_le_bytes(take(bytes, 8)?),
            address: u64::from_le_bytes(take(bytes, 16)?),
            rkey: u32::from_le_bytes(take(bytes, 24)?),
        })
    }
}

/// In [`Answer::wrong`]: every byte is right.
pub const ALL_RIGHT: u32 = u32::MAX;

/// The answer of the server of a raw connection to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The length of the message or the write in bytes.
    pub len: u32,
    /// The immediate that came, or 0.
    pub imm: u32,
    /// The place of the first wrong byte, or [`ALL_RIGHT`].
    pub wrong: u32,
    /// 0, or a negative error number.
    pub errno: i32,
}

impl Answer {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; ANSWER_LEN] {
        let mut bytes = [0; ANSWER_LEN];
        put(&mut bytes, 0, &self.len.to_le_bytes());
        put(&mut bytes, 4, &self.imm.to_le_bytes());
        put(&mut bytes, 8, &self.wrong.to_le_bytes());
        put(&mut bytes, 12, &self.errno.to_le_bytes());
        bytes
    }

    /// Parses a message; `None` if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            len: u32::from_le_bytes(take(bytes, 0)?),
            imm: u32::from_le_bytes(take(bytes, 4)?),
            wrong: u32::from_le_bytes(take(bytes, 8)?),
            errno: i32::from_le_bytes(take(bytes, 12)?),
        })
    }
}
