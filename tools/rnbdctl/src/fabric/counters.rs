// SPDX-License-Identifier: GPL-2.0

//! What RDMA devices count of packets that got lost.

use std::collections::BTreeMap;

use crate::Result;
use crate::System;

/// A packet was missing: by the number of a packet that came, or by the peer's word. Of soft-RoCE,
/// then of hardware.
const LOST: &[&str] = &[
    "out_of_seq_request",
    "rcvd_seq_err",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
];

/// A packet was dropped for its checksum.
const DAMAGED: &[&str] = &["rx_icrc_encapsulated", "symbol_error", "port_rcv_errors"];

/// A receiver was not ready.
const NOT_READY: &[&str] = &["rcvd_rnr_err", "send_rnr_err", "out_of_buffer"];

/// Packets, in either direction.
const PACKETS: &[&str] = &["sent_pkts", "rcvd_pkts"];

/// The counters of one device or of all, by the device's name and their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<(String, String), u64>);

impl Counters {
    /// As they are now.
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

    /// What has been counted since `before`.
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

    /// Packets that a device dropped for their checksum.
    pub fn damaged(&self, device: &str) -> u64 {
        self.sum(device, DAMAGED)
    }

    /// How often a receiver was not ready.
    pub fn not_ready(&self, device: &str) -> u64 {
        self.sum(device, NOT_READY)
    }

    /// Packets of a device, in both directions; 0 if it does not count them.
    pub fn packets(&self, device: &str) -> u64 {
        self.sum(device, PACKETS)
    }

    /// The counters of a device that are not 0, but for those of all packets.
    pub fn of(&self, device: &str) -> BTreeMap<String, u64> {
        let of_it = self.0.iter().filter(|((of, name), value)| {
            of == device && **value != 0 && !PACKETS.contains(&name.as_str())
        });
        of_it
            .map(|((_, name), value)| (name.clone(), *value))
            .collect()
    }
}
