// SPDX-License-Identifier: GPL-2.0

//! Limits of the sessions, paths and connections of a server's clients.
//!
//! Any machine that reaches a server can ask for connections. A path is half open until its client
//! has named its session. A request for a connection may carry any address, so a peer's address
//! means little before the peer has confirmed a connection.
//!
//! When there are too many half-open paths, the server closes the oldest that its peer has not
//! confirmed: a client needs a half-open path for milliseconds only. A confirmed path is never
//! closed for another path.

use core::fmt;

/// The counts that are limited, for one address or for all addresses together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions that were named.
    pub sessions: u32,
    /// Paths, including half-open paths and paths that are being taken down.
    pub paths: u32,
    /// Connections of these paths.
    pub connections: u32,
    /// Half-open paths, without those that are being taken down.
    pub half_open: u32,
}

/// The limit of each count; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all addresses together.
    pub all: Usage,
    /// For one address.
    pub per_client: Usage,
}

impl Limits {
    /// The limits of a server that is not configured otherwise.
    pub const DEFAULT: Self = Self {
        all: Usage {
            sessions: 4096,
            paths: 16_384,
            connections: 262_144,
            half_open: 1024,
        },
        per_client: Usage {
            sessions: 256,
            paths: 1024,
            connections: 16_384,
            half_open: 64,
        },
    };
}

/// A request of a client for resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// A new path, with its first connection.
    Path,
    /// One more connection of a path.
    Connection,
    /// A session, when the client names it.
    Session,
}

/// One of the numbers of [`Usage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// [`Usage::sessions`].
    Sessions,
    /// [`Usage::paths`].
    Paths,
    /// [`Usage::connections`].
    Connections,
    /// [`Usage::half_open`].
    HalfOpen,
}

impl Counted {
    fn of(self, usage: &Usage) -> u32 {
        match self {
            Self::Sessions => usage.sessions,
            Self::Paths => usage.paths,
            Self::Connections => usage.connections,
            Self::HalfOpen => usage.half_open,
        }
    }
}

/// The scope of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The address of the client that asks.
    Client,
    /// All addresses together.
    All,
}

/// A limit that is reached. Displays the limit and its module parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The count that has reached the limit.
    pub counted: Counted,
    /// The scope of the limit.
    pub scope: Scope,
    /// The limit.
    pub limit: u32,
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, parameter) = match self.counted {
            Counted::Sessions => ("sessions", "max_sessions"),
            Counted::Paths => ("paths", "max_paths"),
            Counted::Connections => ("connections", "max_connections"),
            Counted::HalfOpen => ("half-open paths", "max_half_open"),
        };
        let (whose, suffix) = match self.scope {
            Scope::Client => ("the address has", "_per_client"),
            Scope::All => ("there are", ""),
        };
        let limit = self.limit;
        write!(
            f,
            "{whose} {limit} {what}, as many as {parameter}{suffix} allows"
        )
    }
}

/// Whether a request can be granted. `client` has the counts of the client's address, `all` those
/// of all addresses together.
///
/// `Ok(Some(scope))` grants the request if the oldest half-open path in `scope` that was not
/// confirmed is closed first. If there is no such path, the request is refused with [`no_room`].
pub fn decide(
    limits: &Limits,
    client: &Usage,
    all: &Usage,
    asks: Asks,
) -> Result<Option<Scope>, Reached> {
    let hard: &[Counted] = match asks {
        Asks::Path => &[Counted::Paths, Counted::Connections],
        Asks::Connection => &[Counted::Connections],
        Asks::Session => &[Counted::Sessions],
    };
    let scopes = [
        (Scope::Client, client, &limits.per_client),
        (Scope::All, all, &limits.all),
    ];
    for &counted in hard {
        for (scope, usage, limits) in scopes {
            check(counted, scope, usage, limits)?;
        }
    }
    if asks == Asks::Path {
        for (scope, usage, limits) in scopes {
            if check(Counted::HalfOpen, scope, usage, limits).is_err() {
                return Ok(Some(scope));
            }
        }
    }
    Ok(None)
}

/// The reason to refuse a path when all half-open paths of `scope` are confirmed.
pub fn no_room(limits: &Limits, scope: Scope) -> Reached {
    let limits = match scope {
        Scope::Client => &limits.per_client,
        Scope::All => &limits.all,
    };
    Reached {
        counted: Counted::HalfOpen,
        scope,
        limit: limits.half_open,
    }
}

fn check(counted: Counted, scope: Scope, usage: &Usage, limits: &Usage) -> Result<(), Reached> {
    let limit = counted.of(limits);
    if limit != 0 && counted.of(usage) >= limit {
        return Err(Reached {
            counted,
            scope,
            limit,
        });
    }
    Ok(())
}
