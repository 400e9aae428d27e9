// SPDX-License-Identifier: GPL-2.0

//! Paths: the connections of a session between an address of the client and an address of the
//! server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// The end of a session that this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// This machine has mapped devices.
    Client,
    /// This machine exports devices.
    Server,
}

impl Side {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Path {
    /// The name of its folder: `source@destination`.
    pub name: String,
    /// The session.
    pub session: String,
    /// This machine's end.
    pub side: Side,
    /// Whether the path is up.
    pub state: PathState,
    /// The RDMA device; `None` before the path has one.
    pub hca_name: Option<String>,
    /// The port of the RDMA device.
    pub hca_port: Option<u32>,
    /// The client's address.
    pub source: String,
    /// The server's address.
    pub destination: String,
    /// The round trip of the last heartbeats, in ns; only the client knows it.
    pub latency_ns: Option<u64>,
    /// The counters of the path.
    pub stats: PathStats,
    /// Its folder in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl Path {
    /// Whether the path is up.
    pub fn is_up(&self) -> bool {
        self.state == PathState::Connected
    }
}

/// Whether a path is up. A server has only paths that are up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// The path is up.
    Connected,
    /// The path is not up.
    Disconnected,
}

impl PathState {
    /// Parses the file `state`.
    pub fn parse(text: &str) -> Self {
        match text {
            "connected" => Self::Connected,
            _ => Self::Disconnected,
        }
    }

    /// The state, as the modules write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
        }
    }
}

/// The counters of a path since it was made, or since the counters were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PathStats {
    /// Requests that read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Requests in flight; client only. The C module counts them only with the policy
    /// `min-inflight`.
    pub inflight: Option<u64>,
    /// Requests that came from another path that failed; client only.
    pub failovers: Option<u64>,
    /// The number of times that the path was connected again; client only. The C module begins with
    /// -1, which is 0 here.
    pub reconnects: Option<u64>,
    /// The number of failed attempts to connect the path again; client only.
    pub failed_reconnects: Option<u64>,
}

impl PathStats {
    /// Parses `stats/rdma` and `stats/reconnects`; invalid text becomes 0 or `None`.
    pub fn parse(rdma: &str, reconnects: &str) -> Self {
        let mut numbers = rdma.split_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        let count = |word: &str| word.parse::<i64>().ok();
        let mut counts = reconnects
            .split_whitespace()
            .map(|word| Some(u64::try_from(count(word)?).unwrap_or(0)));
        Self {
            reads: next().unwrap_or(0),
            read_bytes: next().unwrap_or(0),
            writes: next().unwrap_or(0),
            write_bytes: next().unwrap_or(0),
            inflight: next(),
            failovers: next(),
            reconnects: counts.next().flatten(),
            failed_reconnects: counts.next().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_both_ends() {
        let client = PathStats::parse("1 4096 2 8192 3 4", "-1 5");
        assert_eq!((client.reads, client.write_bytes), (1, 8192));
        assert_eq!((client.inflight, client.failovers), (Some(3), Some(4)));
        assert_eq!(
            (client.reconnects, client.failed_reconnects),
            (Some(0), Some(5))
        );
        let server = PathStats::parse("1 4096 2 8192", "");
        assert_eq!(
            (server.writes, server.inflight, server.reconnects),
            (2, None, None)
        );
    }

    #[test]
    fn nonsense_is_nothing() {
        assert_eq!(
            PathStats::parse("x -1 99999999999999999999999 ", "\u{fffd}"),
            PathStats::default()
        );
    }
}
