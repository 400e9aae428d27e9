// SPDX-License-Identifier: GPL-2.0

//! Which lost paths may still have a request.

use proto::resent::ResentFrom;

#[test]
fn a_path_that_is_back_has_nothing_of_before() {
    let resent = ResentFrom::NOTHING.and(7);
    assert_ne!(resent, ResentFrom::NOTHING);
    assert_eq!(resent.without(7), ResentFrom::NOTHING);
}

#[test]
fn another_path_that_is_back_proves_nothing() {
    let resent = ResentFrom::NOTHING.and(7);
    assert_eq!(resent.without(8), resent);
    assert_eq!(resent.without(0), resent);
}

#[test]
fn a_path_that_sends_again_and_again_is_one_path() {
    assert_eq!(
        ResentFrom::NOTHING.and(7).and(7).without(7),
        ResentFrom::NOTHING
    );
}

#[test]
fn of_two_lost_paths_neither_is_enough() {
    let resent = ResentFrom::NOTHING.and(7).and(8);
    assert_ne!(resent.without(7), ResentFrom::NOTHING);
    assert_ne!(resent.without(8), ResentFrom::NOTHING);
    assert_ne!(resent.and(9).without(9), ResentFrom::NOTHING);
    assert_ne!(resent.without(u32::MAX), ResentFrom::NOTHING);
}

#[test]
fn a_path_that_was_back_can_be_lost_again() {
    let resent = ResentFrom::NOTHING.and(7).without(7).and(9);
    assert_eq!(resent.without(9), ResentFrom::NOTHING);
}
