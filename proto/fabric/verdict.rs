// SPDX-License-Identifier: GPL-2.0

//! The faults of a fabric: how they follow from the measurements, what they mean, and what to do.

/// Fewer lost packets than this are no fault: a packet can be lost when a link comes up.
pub const LOST_AT_LEAST: u64 = 3;

/// One lost packet in this many is a fault; any cable may lose fewer.
pub const LOST_ONE_IN: u64 = 50_000;

/// A receiver that was not ready fewer times than this is no fault: the test itself sends messages
/// that find no receive.
pub const NOT_READY_AT_LEAST: u64 = 20;

/// A median latency from here on is a fault, in ns, unless the administrator sets another limit. It
/// is measured with requests of one byte. No fabric of one site is that slow.
pub const SLOW_NS: u64 = 3_000_000;

/// The smallest MTU of RDMA: a message of as many bytes is always one packet.
const SMALLEST_MTU: u32 = 256;

/// Why the raw connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoConnection {
    /// This machine has no RDMA device with a way to the address.
    NoDevice,
    /// The connection manager of the other machine does not respond.
    NoAnswer,
    /// The connection manager of the other machine responds that no server listens.
    NoListener,
    /// The test's server refuses.
    Refused,
}

/// The measurements of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Why there was no connection, if there was none.
    pub no_connection: Option<NoConnection>,
    /// Whether the machine responds by IP; `None` if that is not known.
    pub ip_answers: Option<bool>,
    /// The MTU of this end's port and of the server's, in bytes.
    pub mtus: Option<(u32, u32)>,
    /// Cases that failed for another reason than wrong bytes.
    pub failed: u32,
    /// Cases whose bytes were wrong.
    pub wrong_bytes: u32,
    /// The largest size below `smallest_lost` whose message arrived whole.
    pub largest_whole: Option<u32>,
    /// The smallest size whose message did not arrive.
    pub smallest_lost: Option<u32>,
    /// Errors that were not reported as they should be, or not in time.
    pub wrong_errors: u32,
    /// Queue pairs that did not respond.
    pub dead_queues: u32,
    /// Packets that the device has seen missing, in either direction.
    pub lost: u64,
    /// Packets that the data took, in both directions, as counted or at least.
    pub packets: u64,
    /// Packets that the device has dropped for a wrong checksum.
    pub damaged: u64,
    /// Times that a receiver was not ready.
    pub not_ready: u64,
    /// The median of the latency of the smallest requests, in ns.
    pub median_ns: Option<u64>,
    /// The limit in ns: a median of this or more is a fault.
    pub slow_ns: u64,
    /// Whether the test came to its end.
    pub finished: bool,
}

/// A fault of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no RDMA device for the address.
    NoDevice,
    /// The machine responds by IP and not by RDMA.
    Blocked,
    /// The machine does not respond at all.
    Away,
    /// The machine does not respond by RDMA; whether it responds by IP is not known.
    NoAnswer,
    /// No server listens.
    NoListener,
    /// The test's server refuses.
    Refused,
    /// The two ports have different MTUs.
    Mtu,
    /// Large packets do not arrive, and different MTUs are not the known reason.
    LargePackets,
    /// Bytes were wrong, and no checksum noticed.
    Corruption,
    /// Packets are damaged on their way; checksums notice.
    Damage,
    /// Packets are lost.
    Loss,
    /// Requests take long.
    Delay,
    /// Some queue pairs do not respond.
    Queues,
    /// Errors are not reported as they should be.
    Errors,
    /// Receivers were not ready.
    NotReady,
    /// A case failed, and no other fault explains it.
    Broken,
}

impl Fault {
    /// All faults; the likely cause of other faults comes first.
    pub const ALL: [Self; 16] = [
        Self::NoDevice,
        Self::Blocked,
        Self::Away,
        Self::NoAnswer,
        Self::NoListener,
        Self::Refused,
        Self::Mtu,
        Self::LargePackets,
        Self::Corruption,
        Self::Damage,
        Self::Loss,
        Self::Delay,
        Self::Queues,
        Self::Errors,
        Self::NotReady,
        Self::Broken,
    ];

    /// The name, in one word, which does not change.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoDevice => "no-device",
            Self::Blocked => "blocked",
            Self::Away => "away",
            Self::NoAnswer => "no-answer",
            Self::NoListener => "no-listener",
            Self::Refused => "refused",
            Self::Mtu => "mtu",
            Self::LargePackets => "large-packets",
            Self::Corruption => "corruption",
            Self::Damage => "damage",
            Self::Loss => "loss",
            Self::Delay => "delay",
            Self::Queues => "queues",
            Self::Errors => "errors",
            Self::NotReady => "not-ready",
            Self::Broken => "broken",
        }
    }

    /// The meaning of the fault.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::NoDevice => "no RDMA device of this machine reaches the server's address",
            Self::Blocked => {
                "the server's machine responds by IP, but no RDMA packet comes back from it"
            }
            Self::Away => "the server's machine responds neither by RDMA nor by IP",
            Self::NoAnswer => "no RDMA packet comes back from the server's machine",
            Self::NoListener => {
                "the server's machine responds by RDMA, but the test's server is not loaded there"
            }
            Self::Refused => "the test's server refuses the connection",
            Self::Mtu => "the two ports have different RDMA MTUs",
            Self::LargePackets => {
                "short messages arrive, messages of several packets do not arrive"
            }
            Self::Corruption => {
                "bytes arrived that differ from the bytes sent, and no checksum found that"
            }
            Self::Damage => "packets are damaged on their way; the RDMA device drops them",
            Self::Loss => "packets are lost on their way; the RDMA device sends them again",
            Self::Delay => "a request of one byte takes milliseconds",
            Self::Queues => "some queue pairs do not carry requests",
            Self::Errors => "the RDMA device reports an error wrongly or too late",
            Self::NotReady => "a machine had no receive posted for messages that arrived",
            Self::Broken => "the test failed, and no other fault explains it",
        }
    }

    /// What the administrator can do about the fault.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoDevice => "run `rnbdctl rdma`: a port needs an address of the server's network",
            Self::Blocked => {
                "let UDP port 4791 through the firewalls of both machines and of the network \
                 between them; both devices need GIDs of the same type (RoCE v1 or v2, `rnbdctl \
                 rdma`)"
            }
            Self::Away => {
                "check the address, the cable, and whether `ping` reaches the server's machine"
            }
            Self::NoAnswer => {
                "check the address and the link; firewalls must let UDP port 4791 through; both \
                 devices need GIDs of the same type (RoCE v1 or v2, `rnbdctl rdma`)"
            }
            Self::NoListener => "load the test's server there: modprobe rtrs_test_server",
            Self::Refused => {
                "both machines need the same release of the modules, and a server runs at most 8 \
                 tests at a time"
            }
            Self::Mtu => "give both interfaces, and the switches between them, the same MTU",
            Self::LargePackets => {
                "a switch or tunnel between the machines has a smaller MTU: raise its MTU, or \
                 lower the MTU of both interfaces"
            }
            Self::Corruption => {
                "do not use this machine for data: check its memory, the RDMA device, and the \
                 device's firmware"
            }
            Self::Damage => "check cables, transceivers, and the error counters of the switch",
            Self::Loss => {
                "look for drops and errors at the ports of the switch; RoCE needs PFC or ECN set \
                 up the same on all hops; damaged packets look like lost ones where the device \
                 does not count them, so check the cables, too"
            }
            Self::Delay => {
                "look for a detour in the network, a full queue of a switch, or power saving of \
                 the CPUs"
            }
            Self::Queues => "look at the interrupts of the RDMA device (/proc/interrupts)",
            Self::Errors => "update the driver and firmware of the RDMA devices",
            Self::NotReady => "the machine that receives is overloaded, or its interrupts are late",
            Self::Broken => "see the cases that failed, and the kernel's log of both machines",
        }
    }
}

impl Facts {
    /// Whether the test has found this fault.
    pub fn has(&self, fault: Fault) -> bool {
        if let Some(cause) = self.no_connection {
            return fault == self.without_connection(cause);
        }
        let mtu = self.mtus.is_some_and(|(here, there)| here != there);
        let large = self.has_lost_large_ones();
        match fault {
            Fault::Mtu => mtu,
            Fault::LargePackets => large && !mtu,
            Fault::Corruption => self.wrong_bytes > 0,
            Fault::Damage => self.damaged > 0,
            Fault::Loss => self.has_loss(),
            Fault::Delay => self.median_ns.is_some_and(|median| median >= self.slow_ns),
            Fault::Queues => self.dead_queues > 0,
            Fault::Errors => self.wrong_errors > 0,
            Fault::NotReady => self.not_ready >= NOT_READY_AT_LEAST,
            Fault::Broken => {
                let mut others = Fault::ALL
                    .into_iter()
                    .filter(|other| *other != Fault::Broken);
                (self.failed > 0 || !self.finished) && !others.any(|other| self.has(other))
            }
            _ => false,
        }
    }

    fn without_connection(&self, cause: NoConnection) -> Fault {
        match (cause, self.ip_answers) {
            (NoConnection::NoDevice, _) => Fault::NoDevice,
            (NoConnection::NoListener, _) => Fault::NoListener,
            (NoConnection::Refused, _) => Fault::Refused,
            (NoConnection::NoAnswer, Some(true)) => Fault::Blocked,
            (NoConnection::NoAnswer, Some(false)) => Fault::Away,
            (NoConnection::NoAnswer, None) => Fault::NoAnswer,
        }
    }

    /// Whether messages of one packet arrived and a longer message did not. With loss any message
    /// may be late, so nothing is concluded then.
    fn has_lost_large_ones(&self) -> bool {
        let (Some(whole), Some(lost)) = (self.largest_whole, self.smallest_lost) else {
            return false;
        };
        lost > whole && whole > 0 && lost > SMALLEST_MTU && !self.has_loss()
    }

    fn has_loss(&self) -> bool {
        // Some devices cannot repeat every request: then one lost packet ends a connection.
        if self.lost > 0 && !self.finished {
            return true;
        }
        // An overflow stands for more packets than any counter has.
        let expected = self.lost.checked_mul(LOST_ONE_IN);
        self.lost >= LOST_AT_LEAST && expected.is_none_or(|packets| packets >= self.packets)
    }

    /// All faults that the test has found, in the order of [`Fault::ALL`].
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        Fault::ALL.into_iter().filter(|fault| self.has(*fault))
    }
}
