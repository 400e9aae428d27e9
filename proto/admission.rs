// SPDX-License-Identifier: GPL-2.0

//! How much of a server its clients may have.
//!
//! Anybody who reaches a server can ask for connections. A path is half open until its client has
//! said its name. A peer's address says little before the peer has confirmed a connection, since
//! the request for one may carry any address. So a half-open path that its peer has not confirmed
//! is given up for a newer one when there are too many, the oldest first: a client needs it for
//! milliseconds only. A path that was confirmed is never given up for another.

use core::fmt;

/// What is counted, for one address or for all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions whose client has said its name.
    pub sessions: u32,
    /// Paths, also those that are half open or being taken down.
    pub paths: u32,
    /// Connections of these paths.
    pub connections: u32,
    /// The paths that are half open, and not being taken down.
    pub half_open: u32,
}

/// The most of each; 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all addresses together.
    pub all: Usage,
    /// For one address.
    pub per_client: Usage,
}

impl Limits {
    /// What a server has room for unless told otherwise.
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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// A new path, with its first connection.
    Path,
    /// One more connection of a path.
    Connection,
    /// A session, by a client that has said its name.
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

/// Whose number has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The address that asks.
    Client,
    /// All addresses together.
    All,
}

/// A limit that has been reached. Displays what there is, and the module parameter that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Of what there is no more.
    pub counted: Counted,
    /// For whom.
    pub scope: Scope,
    /// How many there may be.
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

/// Whether what is asked for can be had, given what the address has and what all have together.
///
/// `Ok(Some(scope))`: if the oldest half-open path of that scope that was not confirmed is given
/// up. If there is none, [`no_room`] is the answer.
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

/// Why there is no room for a half-open path when all of `scope` have been confirmed.
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
