// SPDX-License-Identifier: GPL-2.0

//! The findings of the module: its file `result`, with a fact in each line
//! (Documentation/ABI/testing/sysfs-class-rtrs-test).

use proto::fabric::verdict::NoConnection;
use schemars::JsonSchema;
use serde::Serialize;

/// The result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FabricOutcome")]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The case ended as it should.
    Ok,
    /// Other bytes arrived than were sent.
    Wrong,
    /// The case ended with an error instead of none, or with another error than it should.
    Failed,
    /// The case ended without the error that it should have.
    NoError,
}

impl Outcome {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ok" => Self::Ok,
            "wrong" => Self::Wrong,
            "failed" => Self::Failed,
            "no-error" => Self::NoError,
            _ => return None,
        })
    }
}

/// A case of the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FabricCase")]
pub struct Case {
    /// The name: `write`, `wrong-key`.
    pub name: String,
    /// The number of bytes; for `queue-...` the number of the queue.
    pub size: u32,
    /// The result.
    pub outcome: Outcome,
    /// The time of the case, in microseconds.
    pub us: u64,
    /// The place of the first wrong byte, or the negative error number.
    pub detail: Option<i64>,
}

/// The latency of requests of one size and direction; times in ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FabricLatency")]
pub struct Latency {
    /// `write` or `read`.
    pub direction: String,
    /// Bytes of a request.
    pub size: u32,
    /// The number of requests.
    pub requests: u64,
    /// 50 % of the requests took less.
    pub median_ns: u64,
    /// 99 % of the requests took less.
    pub p99_ns: u64,
    /// 99.9 % of the requests took less.
    pub p999_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

/// The bandwidth with requests of one size and direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FabricBandwidth")]
pub struct Bandwidth {
    /// `write` or `read`.
    pub direction: String,
    /// Bytes of a request.
    pub size: u32,
    /// The bytes of all requests.
    pub bytes: u64,
    /// The time of all requests, in ns.
    pub ns: u64,
}

impl Bandwidth {
    /// Bytes in a second.
    pub fn bytes_per_second(&self) -> u64 {
        let scaled = u128::from(self.bytes).saturating_mul(1_000_000_000);
        let rate = scaled.checked_div(u128::from(self.ns));
        rate.and_then(|rate| rate.try_into().ok()).unwrap_or(0)
    }
}

/// All findings of a test so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The present part of the test: its number, the number of parts, and its name.
    pub step: Option<(usize, usize, String)>,
    /// Why there was no connection, and the error's number.
    pub no_connection: Option<(NoConnection, i32)>,
    /// The RDMA device of this machine.
    pub device: Option<String>,
    /// The MTU of this end's port, and of the server's.
    pub mtus: Option<(u32, u32)>,
    /// CPUs of the server.
    pub server_cpus: Option<u32>,
    /// The most bytes of a request, the number of queues, and the most requests in flight.
    pub session: Option<(u32, u32, u32)>,
    /// The cases.
    pub cases: Vec<Case>,
    /// The latencies.
    pub latencies: Vec<Latency>,
    /// The bandwidths.
    pub bandwidths: Vec<Bandwidth>,
    /// The end of the test: 0 or an error's number; `None` as long as the test runs.
    pub end: Option<i32>,
}

impl Found {
    /// Parses the file. Unknown and incomplete lines are left out: a newer module may have more
    /// lines.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            // An invalid line is not a fact.
            let _ = found.line(line);
        }
        found
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        match next()? {
            "step" => {
                let (number, count) = (next()?.parse().ok()?, next()?.parse().ok()?);
                self.step = Some((number, count, next()?.to_owned()));
            }
            "no-connection" => {
                let cause = match next()? {
                    "no-device" => NoConnection::NoDevice,
                    "no-answer" => NoConnection::NoAnswer,
                    "no-listener" => NoConnection::NoListener,
                    "refused" => NoConnection::Refused,
                    _ => return None,
                };
                self.no_connection = Some((cause, next()?.parse().ok()?));
            }
            "device" => self.device = Some(next()?.to_owned()),
            "mtu" => self.mtus = Some((next()?.parse().ok()?, next()?.parse().ok()?)),
            "server-cpus" => self.server_cpus = Some(next()?.parse().ok()?),
            "session" => {
                let mut number = || next()?.parse().ok();
                self.session = Some((number()?, number()?, number()?));
            }
            "case" => self.cases.push(Case {
                name: next()?.to_owned(),
                size: next()?.parse().ok()?,
                outcome: Outcome::parse(next()?)?,
                us: next()?.parse().ok()?,
                detail: next().and_then(|_| next()?.parse().ok()),
            }),
            "latency" => self.latencies.push(Latency {
                direction: next()?.to_owned(),
                size: next()?.parse().ok()?,
                requests: next()?.parse().ok()?,
                median_ns: next()?.parse().ok()?,
                p99_ns: next()?.parse().ok()?,
                p999_ns: next()?.parse().ok()?,
                max_ns: next()?.parse().ok()?,
            }),
            "bandwidth" => self.bandwidths.push(Bandwidth {
                direction: next()?.to_owned(),
                size: next()?.parse().ok()?,
                bytes: next()?.parse().ok()?,
                ns: next()?.parse().ok()?,
            }),
            "end" => self.end = Some(next()?.parse().ok()?),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_line_by_line() {
        let text = "step 1 7 connect\ndevice rxe0\nmtu 1024 512\nserver-cpus 4\n\
            step 2 7 work-requests\ncase write 1024 ok 57\ncase peer-write 1024 wrong 60 byte 17\n\
            case write 4096 failed 5000123 errno -110\ncase wrong-key 0 no-error 3\n\
            session 126976 2 63\nlatency write 1 1000 100 200 300 400\n\
            bandwidth read 4096 1048576 2000000\nsomething new\nend -110\n";
        let found = Found::parse(text);
        assert_eq!(found.step, Some((2, 7, "work-requests".to_owned())));
        assert_eq!(found.device.as_deref(), Some("rxe0"));
        assert_eq!(
            (found.mtus, found.server_cpus),
            (Some((1024, 512)), Some(4))
        );
        assert_eq!(found.session, Some((126_976, 2, 63)));
        let outcomes: Vec<_> = found
            .cases
            .iter()
            .map(|case| (case.outcome, case.detail))
            .collect();
        assert_eq!(
            outcomes,
            [
                (Outcome::Ok, None),
                (Outcome::Wrong, Some(17)),
                (Outcome::Failed, Some(-110)),
                (Outcome::NoError, None),
            ]
        );
        assert_eq!(found.latencies[0].p999_ns, 300);
        assert_eq!(found.bandwidths[0].bytes_per_second(), 524_288_000);
        assert_eq!(found.end, Some(-110));
    }

    #[test]
    fn half_a_line_is_no_fact() {
        let found = Found::parse("mtu 1024 10\ncase write 10");
        assert_eq!((found.mtus, found.cases.len()), (Some((1024, 10)), 0));
        assert_eq!(Found::parse("no-connection refused -104 28").end, None);
    }
}
