// SPDX-License-Identifier: GPL-2.0

//! Extensions of RNBD, a bit each in the `features` word of the session information.
//!
//! The client offers the bits that it knows. The server returns the offered bits that it uses in
//! the session; see [`Extension`](super::Extension). Documentation/protocol.md is the registry: a
//! new bit has its row there in the same commit. Documentation/changing.md lists the other files
//! that an extension touches.

/// The client may ask for news of its devices, see [`News`](super::News).
///
/// The server rings when there are news, if the transport has doorbells.
pub const FEATURE_NEWS: u32 = 1 << 0;
/// The disk's [`Identity`](super::Identity) follows the response to an open message, if the client
/// has room for it.
pub const FEATURE_IDENTITY: u32 = 1 << 1;
/// The server tells the client, with the news, that it drains (goes away on purpose), and for how
/// long. Used together with [`FEATURE_NEWS`] only.
pub const FEATURE_DRAIN: u32 = 1 << 2;
/// The client may reserve disks, see [`Reservation`](super::Reservation), and may tell a name of
/// its machine first, see [`Host`](super::Host).
pub const FEATURE_RESERVATIONS: u32 = 1 << 3;
/// The server tells the client, with the news, that it has closed a device by itself, and why. Used
/// together with [`FEATURE_NEWS`] only.
pub const FEATURE_CLOSED: u32 = 1 << 4;
/// An open message may say how the server reads and writes the disk, see
/// [`Open::io_mode`](super::Open::io_mode). The response tells how the server does so.
pub const FEATURE_IO_MODE: u32 = 1 << 5;
/// The client may ask which disks it could open, see [`Discover`](super::Discover).
pub const FEATURE_DISCOVERY: u32 = 1 << 6;

/// The extensions that this driver knows, at both ends.
pub const KNOWN_FEATURES: u32 = FEATURE_NEWS
    | FEATURE_IDENTITY
    | FEATURE_DRAIN
    | FEATURE_RESERVATIONS
    | FEATURE_CLOSED
    | FEATURE_IO_MODE
    | FEATURE_DISCOVERY;
