// SPDX-License-Identifier: GPL-2.0

//! Limits that a client's disk takes over from the server's disk.

use proto::rnbd::{
    DeviceNews,
    DiskLimits,
    OpenRsp, //
};

const OPENED: OpenRsp = OpenRsp {
    device_id: 3,
    nsectors: 2048,
    max_hw_sectors: 256,
    max_write_zeroes_sectors: 64,
    max_discard_sectors: 4096,
    discard_granularity: 8192,
    discard_alignment: 512,
    physical_block_size: 4096,
    logical_block_size: 512,
    max_segments: 32,
    secure_discard: true,
    cache_policy: proto::rnbd::CachePolicy {
        fua: true,
        writeback: true,
    },
    io_mode: None,
};

/// The news that a server sends of the disk of [`OPENED`].
fn news() -> DeviceNews {
    DeviceNews {
        device_id: OPENED.device_id,
        nsectors: OPENED.nsectors,
        max_hw_sectors: OPENED.max_hw_sectors,
        max_write_zeroes_sectors: OPENED.max_write_zeroes_sectors,
        max_discard_sectors: OPENED.max_discard_sectors,
        max_secure_erase_sectors: 2048,
        discard_granularity: OPENED.discard_granularity,
        discard_alignment: OPENED.discard_alignment,
        physical_block_size: OPENED.physical_block_size,
        logical_block_size: OPENED.logical_block_size,
        max_segments: OPENED.max_segments,
        ..DeviceNews::default()
    }
}

#[test]
fn a_disk_that_has_not_changed_has_the_same_limits_in_both_messages() {
    let opened = DiskLimits::of_open(&OPENED);
    assert_eq!(DiskLimits::of_news(&news()), opened);
    assert_eq!(opened.max_secure_erase_sectors, 4096);
    let without = OpenRsp {
        secure_discard: false,
        ..OPENED
    };
    let opened = DiskLimits::of_open(&without);
    assert_eq!(opened.max_secure_erase_sectors, 0);
    let told = DeviceNews {
        max_secure_erase_sectors: 0,
        ..news()
    };
    assert_eq!(DiskLimits::of_news(&told), opened);
}

#[test]
fn a_block_size_that_the_open_response_has_no_room_for_is_the_same_in_both() {
    for size in [1 << 16, 1 << 20, 1 << 31] {
        let told = DeviceNews {
            physical_block_size: size,
            ..news()
        };
        let sent = OpenRsp {
            physical_block_size: size,
            ..OPENED
        };
        let opened = OpenRsp::parse(&sent.to_bytes().unwrap(), 0).unwrap();
        let limits = DiskLimits::of_news(&told);
        assert_eq!(limits, DiskLimits::of_open(&opened), "{size}");
        assert_eq!(limits.physical_block_size, 32768, "{size}");
    }
}

#[test]
fn the_log_line_has_what_is_different() {
    let before = DiskLimits::of_open(&OPENED);
    assert_eq!(before.changes(&before).to_string(), "");
    let after = DiskLimits {
        max_discard_sectors: 0,
        max_write_zeroes_sectors: u32::MAX,
        ..before
    };
    assert_eq!(
        before.changes(&after).to_string(),
        "max_discard_sectors from 4096 to 0, max_write_zeroes_sectors from 64 to 4294967295"
    );
}

#[test]
fn writes_of_zeroes_are_lost_once() {
    let has = DiskLimits {
        max_write_zeroes_sectors: 64,
        max_discard_sectors: 128,
        ..DiskLimits::default()
    };
    let none = DiskLimits::default();
    // They can come and change,
    assert_eq!(none.follow(&has, false), has);
    assert!(!none.loses_zeroes(&has));
    let less = DiskLimits {
        max_write_zeroes_sectors: 8,
        ..has
    };
    assert_eq!(has.follow(&less, false), less);
    assert!(!has.loses_zeroes(&less));
    // and go,
    assert_eq!(has.follow(&none, false), none);
    assert!(has.loses_zeroes(&none));
    // but then they do not come back, as other limits do.
    let after = none.follow(&has, true);
    assert_eq!(after.max_write_zeroes_sectors, 0);
    assert_eq!(after.max_discard_sectors, 128);
}
