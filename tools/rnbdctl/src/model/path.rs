// SPDX-License-Identifier: GPL-2.0

//! Paths: the connections of a session between one address of the client and one of the server.

use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

/// Which end of a session this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// It has mapped devices.
    Client,
    /// It exports them.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// The name of its folder: `source@destination`.
    pub name: String,
    /// Its session.
    pub session: String,
    /// This machine's end.
    pub side: Side,
    /// Whether it is up.
    pub state: PathState,
    /// The RDMA device; `None` before the path has one.
    pub hca_name: Option<String>,
    /// The port of the RDMA device.
    pub hca_port: Option<u32>,
    /// The client's address.
    pub source: String,
    /// The server's address.
    pub destination: String,
    /// The round trip of the last heartbeats; only the client knows it.
    pub latency_ns: Option<u64>,
    /// What went over it.
    pub stats: PathStats,
    /// Its folder in sysfs.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl Path {
    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.state == PathState::Connected
    }
}

/// Whether a path is up. A server has only paths that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    /// It is.
    Connected,
    /// It is not.
    Disconnected,
}

impl PathState {
    /// What the file `state` says.
    pub fn parse(text: &str) -> Self {
        match text {
            "connected" => Self::Connected,
            _ => Self::Disconnected,
        }
    }

    /// As the modules write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
        }
    }
}

/// What went over a path since it was made, or since the counters were reset.
///
/// The last four are known to a client only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathStats {
    /// Requests that read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Requests in flight; the C module counts them only with the policy `min-inflight`.
    pub inflight: Option<u64>,
    /// Requests that came from another path that failed.
    pub failovers: Option<u64>,
    /// How often it was connected again; the C module begins with -1, which is 0 here.
    pub reconnects: Option<u64>,
    /// How often that failed.
    pub failed_reconnects: Option<u64>,
}

impl PathStats {
    /// From the texts of `stats/rdma` and `stats/reconnects`; what makes no sense is 0 or `None`.
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
