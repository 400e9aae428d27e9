// SPDX-License-Identifier: GPL-2.0

//! How a server recognises its disks.

use proto::{
    disk_id::{
        find,
        Ambiguous,
        DiskId, //
    },
    rnbd::{
        IdKind,
        UniqueId,
        Wwid, //
    }, //
};

fn disk(place: u32, name: Option<u8>, sequence: u64) -> DiskId<u32> {
    let id = name.and_then(|byte| UniqueId::new(IdKind::Naa, &[byte; 8]));
    DiskId {
        place,
        wwid: id.map_or(Wwid::NONE, |id| Wwid::of_disk(&id, 0)),
        sequence,
    }
}

#[test]
fn a_name_in_the_world_decides_wherever_the_disk_is() {
    let before = disk(0x820, Some(1), 5);
    assert!(before.is_same_as(&before));
    assert!(before.is_same_as(&disk(0x830, Some(1), 9)));
    assert!(!before.is_same_as(&disk(0x820, Some(2), 5)));
}

#[test]
fn a_disk_without_a_name_is_known_by_place_and_sequence() {
    let before = disk(0x700, None, 5);
    assert!(before.is_same_as(&disk(0x700, None, 5)));
    assert!(!before.is_same_as(&disk(0x700, None, 6)));
    assert!(!before.is_same_as(&disk(0x701, None, 5)));
    // The name could be read the first time, and not the second time.
    assert!(before.is_same_as(&disk(0x700, Some(1), 5)));
    assert!(disk(0x700, Some(1), 5).is_same_as(&before));
}

#[test]
fn only_a_disk_without_a_name_is_gone_for_good() {
    let without = disk(0x700, None, 5);
    assert!(without.is_replaced_by(&disk(0x700, None, 6)));
    assert!(without.is_replaced_by(&disk(0x700, Some(1), 6)));
    assert!(!without.is_replaced_by(&disk(0x701, None, 6)));
    assert!(!without.is_replaced_by(&without));
    let named = disk(0x820, Some(1), 5);
    assert!(!named.is_replaced_by(&disk(0x820, Some(2), 6)));
    assert!(!named.is_replaced_by(&disk(0x820, None, 6)));
}

#[test]
fn a_new_disk_is_at_most_one_of_the_known_disks() {
    let nameless = disk(0x810, None, 3);
    let named = disk(0x820, Some(1), 5);
    let both = [nameless, named];
    assert_eq!(find(both.iter(), &disk(0x830, Some(2), 6)), Ok(None));
    assert_eq!(find(both.iter(), &disk(0x830, Some(1), 6)), Ok(Some(1)));
    assert_eq!(find(both.iter(), &disk(0x820, None, 5)), Ok(Some(1)));
    assert_eq!(find(both.iter(), &disk(0x810, None, 3)), Ok(Some(0)));
    assert_eq!(find(both.iter(), &disk(0x810, Some(2), 3)), Ok(Some(0)));
    // The first place gets the name of the second place's disk: two tables would write one file.
    assert_eq!(find(both.iter(), &disk(0x810, Some(1), 3)), Err(Ambiguous));
    assert_eq!(find([named].iter(), &disk(0x810, Some(1), 3)), Ok(Some(0)));
}
