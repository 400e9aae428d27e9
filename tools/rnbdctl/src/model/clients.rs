// SPDX-License-Identifier: GPL-2.0

//! The counts of a server's clients, and its refusals.

/// The counts of clients' sessions, paths and connections. `None` if the module does not say, as
/// the C module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientUse {
    /// Sessions.
    pub sessions: Option<u64>,
    /// Paths.
    pub paths: Option<u64>,
    /// Connections.
    pub connections: Option<u64>,
    /// Half-open paths, whose client has not named its session yet.
    pub half_open: Option<u64>,
}

/// The counts of this server's clients, and its refusals since the module was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerClients {
    /// The counts of all clients together.
    pub all: ClientUse,
    /// The counts of the clients at each address that has a session, by address.
    pub by_address: Vec<(String, ClientUse)>,
    /// The limits that are set, by the names of their parameters without `max_`.
    pub limits: Vec<(&'static str, u64)>,
    /// Requests for a session, a path or a connection that a limit refused.
    pub refused: Option<u64>,
    /// Half-open paths that were closed to make room for newer ones.
    pub given_up: Option<u64>,
    /// The number of times that a client has failed to prove its identity.
    pub auth_failed: Option<u64>,
    /// The memory that is reserved for sessions, in bytes.
    pub pool_bytes: Option<u64>,
    /// The part of that memory that no session uses, in bytes.
    pub pool_free_bytes: Option<u64>,
}

impl ServerClients {
    /// All possible limits, by the names of their parameters without `max_`.
    pub const LIMITS: [&'static str; 8] = [
        "sessions",
        "sessions_per_client",
        "paths",
        "paths_per_client",
        "connections",
        "connections_per_client",
        "half_open",
        "half_open_per_client",
    ];
}

/// How a disk of the server is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Whether there is a reservation.
    pub is_reserved: bool,
    /// The number of registered machines.
    pub registered: u64,
    /// The number of machines that have lost access and have requests that the disk has not ended.
    pub awaited: u64,
}

impl Reserved {
    /// Parses the file `reservations` of a disk.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("type", kind)) => found.is_reserved = kind != "none",
                Some(("waiting", _)) => found.awaited = found.awaited.saturating_add(1),
                Some((key, _)) if key.starts_with("0x") => {
                    found.registered = found.registered.saturating_add(1);
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_of_a_disk_says() {
        let text = "generation 7\ntype write-exclusive\nholder 0x0000000000000002 session b\n\
                    waiting for session a\n0x0000000000000002 session b\n\
                    0x0000000000000003 host 01234567-89ab-cdef-0123-456789abcdef\n";
        let reserved = Reserved {
            is_reserved: true,
            registered: 2,
            awaited: 1,
        };
        assert_eq!(Reserved::parse(text), reserved);
        assert_eq!(
            Reserved::parse("generation 0\ntype none\n"),
            Reserved::default()
        );
        assert_eq!(Reserved::parse(""), Reserved::default());
    }
}
