// SPDX-License-Identifier: GPL-2.0

//! The self test of a fabric: patterns, sizes, messages and verdicts.

use proptest::prelude::*;
use proto::fabric::command::{
    Action,
    Answer,
    Command,
    Data,
    Header,
    Offer,
    COMMAND_LEN,
    MAGIC, //
};
use proto::fabric::fill::{
    fill,
    first_difference, //
};
use proto::fabric::options::{
    Options,
    OptionsError, //
};
use proto::fabric::percentile::{
    percentile,
    sort, //
};
use proto::fabric::sizes::Sizes;
use proto::fabric::verdict::{
    Facts,
    Fault,
    NoConnection,
    LOST_ONE_IN,
    SLOW_NS, //
};
use proto::fabric::{
    raw_port,
    MESSAGE_SIZE,
    RAW_SIZE, //
};

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, 0, &mut bytes);
    bytes
}

#[test]
fn one_wrong_byte_is_found_where_it_is() {
    for len in [1, 7, 8, 9, 4095, 4096, 4097] {
        let good = pattern(5, len);
        assert_eq!(first_difference(5, 0, &good), None);
        for place in [0, len / 2, len - 1] {
            let mut bad = good.clone();
            bad[place] ^= 0x10;
            assert_eq!(first_difference(5, 0, &bad), Some(place), "{len} bytes");
        }
    }
}

#[test]
fn a_pattern_in_pieces_is_the_whole_one() {
    let whole = pattern(9, 8192 + 5);
    let mut pieces = vec![0; whole.len()];
    for (number, piece) in pieces.chunks_mut(4096).enumerate() {
        fill(9, number as u64 * 512, piece);
    }
    assert_eq!(pieces, whole);
}

#[test]
fn shifted_or_older_data_do_not_fit() {
    let bytes = pattern(3, 4096);
    assert!(first_difference(3, 1, &bytes).is_some());
    assert!(first_difference(4, 0, &bytes).is_some());
    // A page in the place of another page.
    assert!(first_difference(3, 512, &bytes).is_some());
}

#[test]
fn sizes_are_those_around_the_boundaries() {
    let sizes: Vec<_> = Sizes::around(1024, 4096, 65536).iter().collect();
    for size in [
        0, 1, 1023, 1024, 1025, 2047, 4095, 4096, 4097, 32768, 65535, 65536,
    ] {
        assert!(sizes.contains(&size), "{size} in {sizes:?}");
    }
    assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    // An MTU of a page has the same edges as the page.
    let same: Vec<_> = Sizes::around(4096, 4096, 65536).iter().collect();
    assert_eq!(same.iter().filter(|size| **size == 4096).count(), 1);
}

proptest! {
    #[test]
    fn sizes_rise_and_end_with_the_largest(mtu: u32, page: u32, largest: u32) {
        let sizes: Vec<_> = Sizes::around(mtu, page, largest).iter().collect();
        prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(sizes.last(), Some(&largest));
    }

    #[test]
    fn numbers_are_sorted(numbers: Vec<u32>) {
        let mut expected = numbers.clone();
        expected.sort_unstable();
        let mut sorted = numbers;
        sort(&mut sorted);
        prop_assert_eq!(sorted, expected);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
        if let Some(command) = Command::parse(&bytes) {
            prop_assert!(command.len <= RAW_SIZE);
        }
        let _ = (Header::parse(&bytes), Offer::parse(&bytes), Answer::parse(&bytes));
        let _ = Options::parse(&bytes);
    }

    #[test]
    fn messages_come_as_they_were(len in 0..=RAW_SIZE, seed: u64, address: u64, rkey: u32) {
        let command = Command { action: Action::WriteImm, len, seed, address, rkey };
        prop_assert_eq!(Command::parse(&command.to_bytes()), Some(command));
        let header = Header { data: Data::Checked, seed };
        prop_assert_eq!(Header::parse(&header.to_bytes()), Some(header));
        let answer = Answer { len, imm: rkey, wrong: len, errno: -5 };
        prop_assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer));
        let offer = Offer { mtu: len, rkey, address, cpus: 3 };
        let mut padded = offer.to_bytes().to_vec();
        padded.extend([0; 24]);
        prop_assert_eq!(Offer::parse(&padded), Some(offer));
    }
}

#[test]
fn commands_beyond_the_memory_are_refused() {
    let too_long = Command::new(Action::Write, RAW_SIZE + 1, 0).to_bytes();
    assert_eq!(Command::parse(&too_long), None);
    let message = MESSAGE_SIZE - COMMAND_LEN as u32;
    let longest = Command::new(Action::Message, message, 0);
    assert_eq!(Command::parse(&longest.to_bytes()), Some(longest));
    let longer = Command::new(Action::Message, message + 1, 0).to_bytes();
    assert_eq!(Command::parse(&longer), None);
    let mut unknown = longest.to_bytes();
    unknown[0] = 7;
    assert_eq!(Command::parse(&unknown), None);
    let mut foreign = longest.to_bytes();
    foreign[28..].copy_from_slice(&(MAGIC + 1).to_le_bytes());
    assert_eq!(Command::parse(&foreign), None);
}

#[test]
fn options_as_they_are_written() {
    let options = Options::parse(b"path=ip:10.0.0.2 requests=5 mib=1\n").unwrap();
    assert_eq!((options.port, options.requests, options.mib), (1236, 5, 1));
    for (text, error) in [
        (&b""[..], OptionsError::NoPath),
        (b"port=1236", OptionsError::NoPath),
        (b"path=10.0.0.2", OptionsError::BadPath),
        (b"path=ip:10.0.0.2 port=0", OptionsError::BadNumber),
        (b"path=ip:10.0.0.2 port=65536", OptionsError::BadNumber),
        (b"path=ip:10.0.0.2 requests=100001", OptionsError::BadNumber),
        (b"path=ip:10.0.0.2 mib=-1", OptionsError::BadNumber),
        (b"path=ip:10.0.0.2 speed=1", OptionsError::Unknown),
    ] {
        assert_eq!(Options::parse(text), Err(error));
    }
}

#[test]
fn ports_are_different() {
    for port in [1, 1236, 65534, 65535] {
        assert_ne!(raw_port(port), port);
    }
}

#[test]
fn percentiles() {
    let sorted: Vec<u32> = (1..=1000).collect();
    assert_eq!(percentile(&sorted, 5000), Some(501));
    assert_eq!(percentile(&sorted, 9900), Some(991));
    assert_eq!(percentile(&sorted, 9990), Some(1000));
    assert_eq!(percentile(&sorted, 10_000), Some(1000));
    assert_eq!(percentile(&[7], 5000), Some(7));
    assert_eq!(percentile(&[], 5000), None);
}

/// A test that found no fault.
fn good() -> Facts {
    Facts {
        mtus: Some((1024, 1024)),
        packets: 100_000,
        median_ns: Some(300_000),
        slow_ns: SLOW_NS,
        largest_whole: Some(RAW_SIZE),
        finished: true,
        ..Facts::default()
    }
}

fn faults(facts: Facts) -> Vec<&'static str> {
    facts.faults().map(Fault::name).collect()
}

#[test]
fn a_good_fabric_has_no_fault() {
    assert!(faults(good()).is_empty());
    // Losses that any cable may have.
    let facts = Facts { lost: 2, ..good() };
    assert!(faults(facts).is_empty());
    let facts = Facts {
        lost: 3,
        packets: 3 * LOST_ONE_IN + 1,
        ..good()
    };
    assert!(faults(facts).is_empty());
}

#[test]
fn each_fault_is_named() {
    let wrong_mtu = Some((1024, 512));
    let no = |cause, ip_answers| Facts {
        no_connection: Some(cause),
        ip_answers,
        ..Facts::default()
    };
    for (facts, names) in [
        (no(NoConnection::NoAnswer, Some(true)), &["blocked"][..]),
        (no(NoConnection::NoAnswer, Some(false)), &["away"]),
        (no(NoConnection::NoAnswer, None), &["no-answer"]),
        (no(NoConnection::NoListener, Some(true)), &["no-listener"]),
        (no(NoConnection::Refused, None), &["refused"]),
        (no(NoConnection::NoDevice, None), &["no-device"]),
        (
            Facts {
                mtus: wrong_mtu,
                ..good()
            },
            &["mtu"],
        ),
        (
            Facts {
                mtus: wrong_mtu,
                largest_whole: Some(512),
                smallest_lost: Some(1024),
                failed: 1,
                finished: false,
                ..good()
            },
            &["mtu"],
        ),
        (
            Facts {
                largest_whole: Some(512),
                smallest_lost: Some(1024),
                failed: 1,
                finished: false,
                ..good()
            },
            &["large-packets"],
        ),
        (
            Facts {
                wrong_bytes: 1,
                ..good()
            },
            &["corruption"],
        ),
        (
            Facts {
                damaged: 1,
                ..good()
            },
            &["damage"],
        ),
        (Facts { lost: 10, ..good() }, &["loss"]),
        (
            // The loss explains that the large message did not arrive.
            Facts {
                lost: 10,
                smallest_lost: Some(4096),
                largest_whole: Some(1024),
                failed: 1,
                ..good()
            },
            &["loss"],
        ),
        (
            Facts {
                median_ns: Some(SLOW_NS),
                ..good()
            },
            &["delay"],
        ),
        (
            Facts {
                dead_queues: 1,
                ..good()
            },
            &["queues"],
        ),
        (
            Facts {
                wrong_errors: 1,
                ..good()
            },
            &["errors"],
        ),
        (
            Facts {
                not_ready: 20,
                ..good()
            },
            &["not-ready"],
        ),
        (
            Facts {
                finished: false,
                ..good()
            },
            &["broken"],
        ),
        (
            // The connection was lost with the packet.
            Facts {
                lost: 1,
                finished: false,
                ..good()
            },
            &["loss"],
        ),
    ] {
        assert_eq!(faults(facts), names, "{facts:?}");
    }
}

#[test]
fn every_fault_has_a_name_of_its_own_and_words() {
    let mut names: Vec<_> = Fault::ALL.into_iter().map(Fault::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Fault::ALL.len());
    for fault in Fault::ALL {
        assert!(!fault.meaning().is_empty() && !fault.advice().is_empty());
    }
}
