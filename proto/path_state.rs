// SPDX-License-Identifier: GPL-2.0

//! The states of a path at either end, and the only transitions between them.
//!
//! A driver keeps the state as a number (`to_u32`, `try_from`), so that the state can be changed
//! atomically, and asks [`ClientState::next`] or [`ServerState::next`] for the state after an
//! event.

use crate::numbered::numbered;

numbered! {
    /// A path at the client.
    pub enum ClientState: u32 {
        /// Its connections are being made.
        Connecting = 0, "connecting";
        /// A connection failed.
        ConnectingErr = 1, "connecting_err";
        /// Its connections are being torn down, to be made again.
        Reconnecting = 2, "reconnecting";
        /// It carries requests.
        Connected = 3, "connected";
        /// It is being torn down.
        Closing = 4, "closing";
        /// It has no connections.
        Closed = 5, "closed";
        /// It is being removed; nothing follows.
        Dead = 6, "dead";
    }
}

/// What happens to a path at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// Its connections are to be made (again).
    Connect,
    /// All connections stand and the server has told where its chunks are.
    Established,
    /// A connection, a request or a heartbeat failed.
    Error,
    /// It shall be connected again, now or after a delay.
    Reconnect,
    /// It shall be closed.
    Close,
    /// Its connections are gone.
    Closed,
    /// It shall be removed.
    Remove,
}

impl ClientState {
    /// The state that `event` leads to; `None` if it changes nothing.
    #[inline]
    pub const fn next(self, event: ClientEvent) -> Option<Self> {
        let new = match event {
            ClientEvent::Connect => Self::Connecting,
            ClientEvent::Established => Self::Connected,
            // The task that connects the path handles failures meanwhile.
            ClientEvent::Error if matches!(self, Self::Connecting) => Self::ConnectingErr,
            ClientEvent::Error if matches!(self, Self::Connected) => Self::Reconnecting,
            ClientEvent::Error => return None,
            ClientEvent::Reconnect => Self::Reconnecting,
            ClientEvent::Close => Self::Closing,
            ClientEvent::Closed => Self::Closed,
            ClientEvent::Remove => Self::Dead,
        };
        if self.allows(new) {
            Some(new)
        } else {
            None
        }
    }

    /// Whether the state may become `new` (C: `rtrs_clt_change_state`).
    #[inline]
    pub const fn allows(self, new: Self) -> bool {
        match new {
            Self::Connecting => matches!(self, Self::Reconnecting),
            Self::Reconnecting => {
                matches!(self, Self::Connected | Self::ConnectingErr | Self::Closed)
            }
            Self::Connected | Self::ConnectingErr => matches!(self, Self::Connecting),
            Self::Closing => matches!(
                self,
                Self::Connecting | Self::ConnectingErr | Self::Reconnecting | Self::Connected
            ),
            Self::Closed => matches!(self, Self::Closing),
            Self::Dead => matches!(self, Self::Closed),
        }
    }

    /// The text of the `state` file in sysfs, which knows two states only.
    pub const fn sysfs_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            _ => "disconnected",
        }
    }
}

numbered! {
    /// A path at the server.
    pub enum ServerState: u32 {
        /// Its connections are being made.
        Connecting = 0, "connecting";
        /// It carries requests.
        Connected = 1, "connected";
        /// It is being torn down.
        Closing = 2, "closing";
        /// It has no connections; nothing follows.
        Closed = 3, "closed";
    }
}

/// What happens to a path at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The client has all its connections and has named its session.
    Established,
    /// It shall be closed.
    Close,
    /// Its connections are gone.
    Closed,
}

impl ServerState {
    /// The state that `event` leads to; `None` if it changes nothing.
    #[inline]
    pub const fn next(self, event: ServerEvent) -> Option<Self> {
        let new = match event {
            ServerEvent::Established => Self::Connected,
            ServerEvent::Close => Self::Closing,
            ServerEvent::Closed => Self::Closed,
        };
        if self.allows(new) {
            Some(new)
        } else {
            None
        }
    }

    /// Whether the state may become `new` (C: `rtrs_srv_change_state`).
    #[inline]
    pub const fn allows(self, new: Self) -> bool {
        match new {
            Self::Connecting => false,
            Self::Connected => matches!(self, Self::Connecting),
            Self::Closing => matches!(self, Self::Connecting | Self::Connected),
            Self::Closed => matches!(self, Self::Closing),
        }
    }
}
