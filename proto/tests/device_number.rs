// SPDX-License-Identifier: GPL-2.0

//! The numbers of a session's devices.

use proto::device_number::{
    next,
    FRESH, //
};

/// Opens a device.
fn open(used: &mut Vec<bool>, last: &mut usize) -> usize {
    let number = next(used.len(), *last, |number| !used[number]);
    if number == used.len() {
        used.push(false);
    }
    assert!(!used[number], "{number} is in use");
    used[number] = true;
    *last = number;
    number
}

#[test]
fn a_number_is_used_again_as_late_as_possible() {
    let (mut used, mut last) = (Vec::new(), 0);
    // Open and close, one device at a time.
    for round in 0..4 {
        for expected in 0..FRESH {
            let number = open(&mut used, &mut last);
            assert_eq!(number, expected, "round {round}");
            used[number] = false;
        }
    }
    assert_eq!(used.len(), FRESH, "numbers");
}

#[test]
fn what_is_open_is_left_out() {
    let (mut used, mut last) = (Vec::new(), 0);
    for _ in 0..FRESH {
        open(&mut used, &mut last);
    }
    used[7] = false;
    used[FRESH - 1] = false;
    assert_eq!(open(&mut used, &mut last), 7);
    used[3] = false;
    assert_eq!(open(&mut used, &mut last), FRESH - 1);
    assert_eq!(open(&mut used, &mut last), 3);
}

#[test]
fn there_is_always_a_number() {
    let (mut used, mut last) = (Vec::new(), 0);
    for expected in 0..FRESH + 100 {
        assert_eq!(open(&mut used, &mut last), expected);
    }
    used[5] = false;
    assert_eq!(open(&mut used, &mut last), 5);
    assert_eq!(open(&mut used, &mut last), FRESH + 100);
    // `last` may be a number that was never given, and the table may be empty.
    assert_eq!(next(FRESH, usize::MAX, |number| number == 9), 9);
    assert_eq!(next(0, usize::MAX, |_| true), 0);
}
