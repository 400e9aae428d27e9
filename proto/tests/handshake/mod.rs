// SPDX-License-Identifier: GPL-2.0

//! No stranger gets in, whatever the network does with the messages of a proof of identity.
//!
//! The checker visits all states of [`model`]. For each part of the codes a test leaves the part
//! out, and the checker has to find the attack that the part prevents.

#![allow(missing_docs)]

mod mac;
mod messages;
mod model;

use mac::{HostMac, LeftOut};
use model::{Network, CLIENT_AGREES, CONNECTIONS, SERVER_AGREES};
use proto::rtrs::transcript::{FURTHER_CONNECTION_LEN, TRANSCRIPT_LEN};
use stateright::{Checker, HasDiscoveries, Model};

fn network(mac: HostMac) -> Network {
    Network {
        mac,
        runs: 2,
        paths: 2,
    }
}

/// Codes without these bytes of a transcript.
fn without(bytes: std::ops::Range<usize>) -> HostMac {
    HostMac(vec![LeftOut {
        label: b"",
        len: TRANSCRIPT_LEN,
        bytes,
    }])
}

/// Codes of further connections without these bytes.
fn connections_without(bytes: std::ops::Range<usize>) -> HostMac {
    HostMac(vec![LeftOut {
        label: b"",
        len: FURTHER_CONNECTION_LEN,
        bytes,
    }])
}

fn finds(mac: HostMac, what: &'static str) {
    let found = HasDiscoveries::AnyOf([what].into());
    let checker = network(mac).checker().finish_when(found).spawn_bfs().join();
    eprintln!("{} states", checker.unique_state_count());
    let path = checker
        .discovery(what)
        .unwrap_or_else(|| panic!("not found: not {what}"));
    eprintln!("not {what}: {:?}", path.into_actions());
}

#[test]
fn ours() {
    let checker = network(HostMac::default()).checker().spawn_bfs().join();
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// A proof that was recorded is sent again.
#[test]
fn the_servers_random_number() {
    finds(without(88..120), SERVER_AGREES);
}

/// A server's proof that was recorded is sent again.
#[test]
fn the_clients_random_number() {
    finds(without(120..152), CLIENT_AGREES);
}

/// The client's own proof is sent back to it.
#[test]
fn the_labels() {
    finds(without(0..16), CLIENT_AGREES);
}

/// The client's packets are led to another server that has its key.
#[test]
fn the_address() {
    finds(without(23..40), SERVER_AGREES);
}

/// The attacker connects its own queue pair, and lets the client make the proof.
#[test]
fn the_queue_pair() {
    finds(without(84..88), SERVER_AGREES);
}

/// The attacker removes an extension that both ends have.
#[test]
fn the_features() {
    finds(without(72..80), SERVER_AGREES);
}

/// A client with the key of another client passes for that client.
#[test]
fn the_client_id() {
    finds(without(152..216), SERVER_AGREES);
}

/// The code of a connection is sent for another connection.
#[test]
fn the_number_of_a_connection() {
    finds(connections_without(16..18), CONNECTIONS);
}

/// A code that was overheard is sent for the attacker's queue pair.
#[test]
fn the_queue_pair_of_a_connection() {
    finds(connections_without(20..24), CONNECTIONS);
}

/// The code of a connection is sent for another path, if the key of a path does not depend on
/// random numbers.
#[test]
fn the_random_numbers_of_a_paths_key() {
    let left_out = LeftOut {
        label: b"rtrs auth path",
        len: TRANSCRIPT_LEN,
        bytes: 88..152,
    };
    finds(HostMac(vec![left_out]), CONNECTIONS);
}
