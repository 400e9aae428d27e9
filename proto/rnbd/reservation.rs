// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations: which machines may use a disk, as its users have agreed on.
//!
//! The commands are those of `struct pr_ops` (`include/linux/pr.h`); what they do is in
//! [`reservation`](crate::reservation). An extension: only in a session with
//! [`FEATURE_RESERVATIONS`](super::FEATURE_RESERVATIONS).

use core::fmt;

use super::wire::{
    self,
    MsgHdr,
    MsgType, //
};
use crate::{
    errno::Errno,
    error::ProtoError,
    numbered::numbered,
    text::impl_error,
    wire::{
        split,
        to_array,
        U32,
        U64, //
    }, //
};

/// The most machines that can be registered with a disk.
pub const MAX_REGISTRANTS: usize = 64;

numbered! {
    /// The types of reservations (`enum pr_type`, with its numbers).
    pub enum Kind: u8 {
        /// Only the holder may write.
        WriteExclusive = 1, "write-exclusive";
        /// Only the holder may read and write.
        ExclusiveAccess = 2, "exclusive-access";
        /// Only registrants may write.
        WriteExclusiveRegistrants = 3, "write-exclusive-registrants-only";
        /// Only registrants may read and write.
        ExclusiveAccessRegistrants = 4, "exclusive-access-registrants-only";
        /// Only registrants may write, and each of them holds the reservation.
        WriteExclusiveAll = 5, "write-exclusive-all-registrants";
        /// Only registrants may read and write, and each of them holds the reservation.
        ExclusiveAccessAll = 6, "exclusive-access-all-registrants";
    }
}

numbered! {
    /// The action that a message asks for. The numbers are this protocol's own.
    pub enum Action: u8 {
        /// Registers a key, changes or removes it.
        Register = 0,
        /// Takes the reservation.
        Reserve = 1,
        /// Gives the reservation up.
        Release = 2,
        /// Removes the reservation and all keys.
        Clear = 3,
        /// Removes the registrants with a key, and takes the reservation if the holder was one of
        /// these registrants.
        Preempt = 4,
        /// Does the same as [`Action::Preempt`], and ends the requests of these registrants.
        PreemptAndAbort = 5,
        /// Asks for the reservation and the keys.
        Report = 6,
    }
}

/// A command that may change which machines can use a disk. `key` is the key of the machine that
/// sends the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Registers the key `new`, replaces `key` by `new`, or removes `key` if `new` is 0.
    Register {
        /// The machine's key, 0 if it has none.
        key: u64,
        /// The machine's new key.
        new: u64,
        /// The command applies whatever key the machine has; `key` is not looked at.
        ignore_key: bool,
    },
    /// Takes the reservation.
    Reserve {
        /// The machine's key.
        key: u64,
        /// The kind of the reservation.
        kind: Kind,
    },
    /// Gives the reservation up.
    Release {
        /// The machine's key.
        key: u64,
        /// The kind of the present reservation.
        kind: Kind,
    },
    /// Removes the reservation and all keys.
    Clear {
        /// The machine's key.
        key: u64,
    },
    /// Removes the registrants with the key `victim`, and takes the reservation if the holder was
    /// one of these registrants.
    Preempt {
        /// The machine's key.
        key: u64,
        /// The key to remove. 0 removes all keys, if all registrants hold the reservation.
        victim: u64,
        /// The kind of the reservation that is taken.
        kind: Kind,
    },
}

impl Command {
    /// Whether the command can register the first machine of a disk.
    pub fn can_be_first(&self) -> bool {
        match *self {
            Self::Register {
                key,
                new,
                ignore_key,
            } => new != 0 && (key == 0 || ignore_key),
            _ => false,
        }
    }
}

/// Why a message is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// There is no action of this number.
    Action(u8),
    /// There is no kind of reservation of this number.
    Kind(u8),
    /// The action does not have these flags.
    Flags(u16),
    /// The previous command had the same number, but was another command.
    Sequence(u32),
}

impl CommandError {
    /// The error number that `block/ioctl.c` and `drivers/scsi/sd.c` return.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Kind(_) | Self::Sequence(_) => Errno::EINVAL,
            Self::Action(_) | Self::Flags(_) => Errno::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(action) => write!(f, "reservation: unknown action {action}"),
            Self::Kind(kind) => write!(f, "reservation: unknown type {kind}"),
            Self::Flags(flags) => write!(f, "reservation: flags {flags:#x} are not supported"),
            Self::Sequence(sequence) => write!(
                f,
                "reservation: sequence {sequence} is that of another command, take the next number"
            ),
        }
    }
}

impl_error!(CommandError);

/// Reserves a disk, or asks how it is reserved.
///
/// The fields are unchecked: [`Reservation::command`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The server's number of the open device.
    pub device_id: u32,
    /// An [`Action`].
    pub action: u8,
    /// A [`Kind`]; ignored if the action has none.
    pub kind: u8,
    /// [`Reservation::IGNORE_KEY`] or none.
    pub flags: u16,
    /// The number of the command. It differs from the number of the previous command, unless the
    /// same message is sent again.
    pub sequence: u32,
    /// The machine's key.
    pub key: u64,
    /// The new key, or the key to be removed.
    pub service_key: u64,
}

impl Reservation {
    /// The size on the wire in bytes. The message is never longer.
    pub const SIZE: usize = size_of::<wire::Reservation>();

    /// The machine's key is not looked at; only with [`Action::Register`].
    pub const IGNORE_KEY: u16 = 1 << 0;
    /// The reservation outlives the server (APTPL of SPC-4). Servers refuse the flag, since a
    /// client does not know whether its server keeps reservations.
    pub const PERSIST: u16 = 1 << 1;

    /// The message of a command with the number `sequence`. `abort` only changes `Preempt`.
    pub fn of(device_id: u32, sequence: u32, command: &Command, abort: bool) -> Self {
        let message = |action: Action, kind: Option<Kind>, key, service_key| Self {
            device_id,
            action: action as u8,
            kind: kind.map_or(0, |kind| kind as u8),
            flags: 0,
            sequence,
            key,
            service_key,
        };
        match *command {
            Command::Register {
                key,
                new,
                ignore_key,
            } => Self {
                flags: if ignore_key { Self::IGNORE_KEY } else { 0 },
                ..message(Action::Register, None, key, new)
            },
            Command::Reserve { key, kind } => message(Action::Reserve, Some(kind), key, 0),
            Command::Release { key, kind } => message(Action::Release, Some(kind), key, 0),
            Command::Clear { key } => message(Action::Clear, None, key, 0),
            Command::Preempt { key, victim, kind } => {
                let action = if abort {
                    Action::PreemptAndAbort
                } else {
                    Action::Preempt
                };
                message(action, Some(kind), key, victim)
            }
        }
    }

    /// The message that asks how the disk is reserved.
    pub const fn report(device_id: u32) -> Self {
        Self {
            device_id,
            action: Action::Report as u8,
            kind: 0,
            flags: 0,
            sequence: 0,
            key: 0,
            service_key: 0,
        }
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Reservation {
            hdr: MsgHdr::new(MsgType::Reservation),
            device_id: self.device_id.into(),
            action: self.action,
            kind: self.kind,
            flags: self.flags.into(),
            sequence: self.sequence.into(),
            key: self.key.into(),
            service_key: self.service_key.into(),
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, rest) = split::<wire::Reservation>(bytes, "reservation message")?;
        if !rest.is_empty() {
            let len = bytes.len() as u64;
            return Err(ProtoError::bad_field(
                "length of the reservation message",
                len,
            ));
        }
        Ok(Self {
            device_id: msg.device_id.get(),
            action: msg.action,
            kind: msg.kind,
            flags: msg.flags.get(),
            sequence: msg.sequence.get(),
            key: msg.key.get(),
            service_key: msg.service_key.get(),
        })
    }

    /// Whether this message is `last`, sent again. `Err` if it is another command with the number
    /// of `last`.
    pub fn repeats(&self, last: &Self) -> Result<bool, CommandError> {
        match (self == last, self.sequence == last.sequence) {
            (false, true) => Err(CommandError::Sequence(self.sequence)),
            (is_same, _) => Ok(is_same),
        }
    }

    /// The command; `None` if the message asks how the disk is reserved.
    ///
    /// [`Action::PreemptAndAbort`] is the same as [`Action::Preempt`] here: the response to either
    /// comes when the requests of the machines that have lost access have ended.
    pub fn command(&self) -> Result<Option<Command>, CommandError> {
        let action = Action::try_from(self.action).map_err(CommandError::Action)?;
        let flags = match action {
            Action::Register => self.flags & !Self::IGNORE_KEY,
            _ => self.flags,
        };
        if flags != 0 {
            return Err(CommandError::Flags(self.flags));
        }
        let key = self.key;
        let kind = || Kind::try_from(self.kind).map_err(CommandError::Kind);
        Ok(Some(match action {
            Action::Register => Command::Register {
                key,
                new: self.service_key,
                ignore_key: self.flags != 0,
            },
            Action::Reserve => Command::Reserve { key, kind: kind()? },
            Action::Release => Command::Release { key, kind: kind()? },
            Action::Clear => Command::Clear { key },
            Action::Preempt | Action::PreemptAndAbort => Command::Preempt {
                key,
                victim: self.service_key,
                kind: kind()?,
            },
            Action::Report => return Ok(None),
        }))
    }
}

/// How a disk is reserved.
///
/// # Invariants
///
/// `count` is at most [`MAX_REGISTRANTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of changes, modulo 2^32 (`PRGENERATION` of SPC-4).
    pub generation: u32,
    /// The kind of the reservation; `None` if there is none.
    pub kind: Option<Kind>,
    /// The holder's key; 0 if there is none, and if all registrants hold the reservation.
    pub key: u64,
    keys: [u64; MAX_REGISTRANTS],
    count: usize,
}

impl Report {
    /// The size of the front on the wire in bytes.
    const HEADER: usize = size_of::<wire::ReservationRspHdr>();
    /// The size on the wire in bytes, which does not depend on the number of keys: unused places
    /// are zero.
    pub const SIZE: usize = Self::HEADER.wrapping_add(size_of::<[U64; MAX_REGISTRANTS]>());

    /// A report with these keys; keys after the first [`MAX_REGISTRANTS`] are left out.
    pub fn new(
        generation: u32,
        held: Option<(Kind, u64)>,
        registered: impl Iterator<Item = u64>,
    ) -> Self {
        let mut keys = [0; MAX_REGISTRANTS];
        let mut count = 0usize;
        for (place, key) in keys.iter_mut().zip(registered) {
            *place = key;
            // The count is at most the number of places.
            count = count.wrapping_add(1);
        }
        // INVARIANT: Each counted key has a place.
        Self {
            generation,
            kind: held.map(|(kind, _)| kind),
            key: held.map_or(0, |(_, key)| key),
            keys,
            count,
        }
    }

    /// The registered keys.
    pub fn keys(&self) -> &[u64] {
        self.keys.get(..self.count).unwrap_or(&[])
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let header: [u8; Self::HEADER] = to_array(&wire::ReservationRspHdr {
            hdr: MsgHdr::new(MsgType::ReservationRsp),
            generation: self.generation.into(),
            key: self.key.into(),
            kind: self.kind.map_or(0, |kind| kind as u8),
            reserved0: 0,
            // At most `MAX_REGISTRANTS`.
            count: (self.count as u16).into(),
            reserved1: U32::ZERO,
        });
        let keys: [u8; size_of::<[U64; MAX_REGISTRANTS]>()] = to_array(&self.keys.map(U64::new));
        let mut bytes = [0; Self::SIZE];
        for (to, from) in bytes.iter_mut().zip(header.into_iter().chain(keys)) {
            *to = from;
        }
        bytes
    }

    /// Checks a received report; `bytes` may be longer than the report.
    ///
    /// Refuses an unknown kind, and more keys than [`MAX_REGISTRANTS`] or than there are bytes for.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "reservation response";
        let (hdr, body) = split::<wire::ReservationRspHdr>(bytes, what)?;
        hdr.hdr.check(what, MsgType::ReservationRsp)?;
        let kind = match hdr.kind {
            0 => None,
            number => Some(
                Kind::try_from(number)
                    .map_err(|number| ProtoError::bad_field("type of the reservation", number))?,
            ),
        };
        let count = usize::from(hdr.count.get());
        if count > MAX_REGISTRANTS {
            return Err(ProtoError::bad_field(
                "count of the reservation response",
                hdr.count.get(),
            ));
        }
        let (keys, _) = split::<[U64; MAX_REGISTRANTS]>(body, what)?;
        let held = kind.map(|kind| (kind, hdr.key.get()));
        let keys = keys.iter().take(count).map(|key| key.get());
        Ok(Self::new(hdr.generation.get(), held, keys))
    }
}
