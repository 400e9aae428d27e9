// SPDX-License-Identifier: GPL-2.0

//! The lost paths that may still have a request.

use proto::resent::{
    LostPaths,
    ResentFrom, //
};

/// A path is lost while a place is free.
fn lost(paths: &mut LostPaths, number: u32) -> proto::resent::LostPath {
    paths.lost(number, || panic!("there are places"))
}

/// As many lost paths as are told apart, from number 1 on, and a set that has all of them.
fn many() -> (LostPaths, ResentFrom) {
    let mut paths = LostPaths::NONE;
    let mut all = ResentFrom::NOTHING;
    for number in 1..=63 {
        all = all.and(lost(&mut paths, number));
    }
    (paths, all)
}

#[test]
fn a_path_that_is_back_has_nothing_of_before() {
    let mut paths = LostPaths::NONE;
    let resent = ResentFrom::NOTHING.and(lost(&mut paths, 7));
    assert_ne!(resent, ResentFrom::NOTHING);
    let back = paths.back(7).unwrap();
    assert_eq!(resent.without(back), ResentFrom::NOTHING);
}

#[test]
fn another_path_that_is_back_proves_nothing() {
    let mut paths = LostPaths::NONE;
    let resent = ResentFrom::NOTHING.and(lost(&mut paths, 7));
    lost(&mut paths, 9);
    assert_eq!(paths.back(8), None);
    assert_eq!(paths.back(0), None);
    assert_eq!(resent.without(paths.back(9).unwrap()), resent);
}

#[test]
fn a_path_that_sends_again_and_again_is_one_path() {
    let mut paths = LostPaths::NONE;
    let resent = ResentFrom::NOTHING
        .and(lost(&mut paths, 7))
        .and(lost(&mut paths, 7));
    assert_eq!(resent.without(paths.back(7).unwrap()), ResentFrom::NOTHING);
    assert_eq!(paths.back(7), None);
}

#[test]
fn of_two_lost_paths_both_have_to_be_back() {
    for order in [[7, 8], [8, 7]] {
        let mut paths = LostPaths::NONE;
        let resent = ResentFrom::NOTHING
            .and(lost(&mut paths, 7))
            .and(lost(&mut paths, 8));
        let half = resent.without(paths.back(order[0]).unwrap());
        assert_ne!(half, ResentFrom::NOTHING);
        let none = half.without(paths.back(order[1]).unwrap());
        assert_eq!(none, ResentFrom::NOTHING);
    }
}

#[test]
fn a_path_that_was_back_can_be_lost_again() {
    let mut paths = LostPaths::NONE;
    let resent = ResentFrom::NOTHING.and(lost(&mut paths, 7));
    let resent = resent.without(paths.back(7).unwrap());
    let resent = resent.and(lost(&mut paths, 9));
    assert_eq!(resent.without(paths.back(9).unwrap()), ResentFrom::NOTHING);
}

#[test]
fn the_set_of_another_request_stays() {
    let mut paths = LostPaths::NONE;
    let first = ResentFrom::NOTHING.and(lost(&mut paths, 7));
    let second = ResentFrom::NOTHING.and(lost(&mut paths, 8));
    let back = paths.back(7).unwrap();
    assert_eq!(first.without(back), ResentFrom::NOTHING);
    assert_eq!(second.without(back), second);
    // The place of path 7 goes to another path.
    let third = ResentFrom::NOTHING.and(lost(&mut paths, 9));
    assert_ne!(third, second);
    assert_eq!(second.without(paths.back(9).unwrap()), second);
}

#[test]
fn paths_that_never_come_back_give_up_their_places() {
    let (mut paths, all) = many();
    // One request is left, which was sent again from the paths 5 and 6.
    let left = ResentFrom::NOTHING
        .and(lost(&mut paths, 5))
        .and(lost(&mut paths, 6));
    assert_eq!(all.union(left), all);
    let path = paths.lost(100, || left);
    assert_eq!(left.without(path), left);
    for number in [1, 4, 7, 63] {
        assert_eq!(paths.back(number), None, "path {number}");
    }
    let both = left.and(path);
    let both = both.without(paths.back(5).unwrap());
    let both = both.without(paths.back(100).unwrap());
    assert_ne!(both, ResentFrom::NOTHING);
    let both = both.without(paths.back(6).unwrap());
    assert_eq!(both, ResentFrom::NOTHING);
}

#[test]
fn paths_beyond_those_told_apart_are_not_lost_sight_of() {
    let (mut paths, all) = many();
    let resent = ResentFrom::NOTHING.and(paths.lost(100, || all));
    assert_ne!(resent, ResentFrom::NOTHING);
    assert_eq!(paths.back(100), None);
    for number in 1..=63 {
        assert_eq!(resent.without(paths.back(number).unwrap()), resent);
    }
}
