// SPDX-License-Identifier: GPL-2.0

//! The counters of RDMA devices for packets that got lost.

use std::collections::BTreeMap;

use crate::Result;
use crate::System;

/// A packet was missing, as the number of the next packet or a message of the peer showed. First
/// the names of soft-RoCE, then those of hardware.
const LOST: &[&str] = &[
    "out_of_seq_request",
    "rcvd_seq_err",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
];

/// A packet was dropped because of its checksum.
const DAMAGED: &[&str] = &["rx_icrc_encapsulated", "symbol_error", "port_rcv_errors"];

/// A receiver was not ready.
const NOT_READY: &[&str] = &["rcvd_rnr_err", "send_rnr_err", "out_of_buffer"];

/// Packets in either direction.
const PACKETS: &[&str] = &["sent_pkts", "rcvd_pkts"];

/// The counters of a device or of all devices, by the names of the device and the counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<(String, String), u64>);

impl Counters {
    /// The present counters.
    pub fn read(system: &System) -> Result<Self> {
        let mut all = BTreeMap::new();
        for device in system.rdma_devices()? {
            let known = [LOST, DAMAGED, NOT_READY, PACKETS].concat();
            for (name, value) in system.rdma_counters(&device.name, &known)? {
                all.insert((device.name.clone(), name), value);
            }
        }
        Ok(Self(all))
    }

    /// The increase of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let more = self.0.iter().map(|(key, value)| {
            let old = before.0.get(key).copied().unwrap_or(0);
            (key.clone(), value.saturating_sub(old))
        });
        Self(more.collect())
    }

    fn sum(&self, device: &str, names: &[&str]) -> u64 {
        let of_these = self
            .0
            .iter()
            .filter(|((of, name), _)| of == device && names.contains(&name.as_str()));
        of_these
            .map(|(_, value)| *value)
            .fold(0, u64::saturating_add)
    }

    /// Packets that were missing at a device.
    pub fn lost(&self, device: &str) -> u64 {
        self.sum(device, LOST)
    }

    /// Packets that a device dropped because of their checksums.
    pub fn damaged(&self, device: &str) -> u64 {
        self.sum(device, DAMAGED)
    }

    /// The number of times that a receiver was not ready.
    pub fn not_ready(&self, device: &str) -> u64 {
        self.sum(device, NOT_READY)
    }

    /// Packets of a device, in both directions; 0 if it does not count them.
    pub fn packets(&self, device: &str) -> u64 {
        self.sum(device, PACKETS)
    }

    /// The counters of a device that are not 0, except those of all packets.
    pub fn of(&self, device: &str) -> BTreeMap<String, u64> {
        let of_it = self.0.iter().filter(|((of, name), value)| {
            of == device && **value != 0 && !PACKETS.contains(&name.as_str())
        });
        of_it
            .map(|((_, name), value)| (name.clone(), *value))
            .collect()
    }
}
