// SPDX-License-Identifier: GPL-2.0

//! News of devices, and the session information that agrees on them.

use proto::{
    rnbd::{
        next_sequence,
        CloseReason,
        DeviceNews,
        Extension,
        News,
        NewsHeader,
        NewsRsp,
        OpenRsp,
        Request,
        SessInfo,
        FEATURE_DRAIN,
        FEATURE_NEWS,
        MAX_DRAIN_MS,
        NO_NEWS, //
    },
    ProtoError, //
};

const NONCE: u64 = 0x0123_4567_89ab_cdef;

#[test]
fn extensions_are_agreed_on() {
    let asked = SessInfo::new(FEATURE_NEWS | (1 << 31), NONCE);
    let bytes = asked.to_bytes();
    let mut expected = vec![0, 0, 0, 0, 2, 0, 0, 0];
    expected.extend(b"RNBX");
    expected.extend([1, 0, 0, 0x80]);
    expected.extend([0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
    expected.resize(36, 0);
    assert_eq!(bytes.as_slice(), expected);
    assert_eq!(Request::parse(&bytes, 0), Ok(Request::SessInfo(asked)));
    let answer = asked.answer(FEATURE_NEWS);
    assert_eq!(answer.features(), FEATURE_NEWS);
    assert_eq!(asked.parse_rsp(&answer.to_rsp_bytes()), Ok(answer));
}

#[test]
fn what_c_leaves_in_its_memory_is_no_extension() {
    let mut bytes = SessInfo::new(FEATURE_NEWS, NONCE).to_bytes();
    // An uninitialised variable of the client.
    for byte in [0, 0x55, 0xff] {
        bytes[5..].fill(byte);
        let Ok(Request::SessInfo(info)) = Request::parse(&bytes, 0) else {
            panic!("{byte:#x}");
        };
        assert_eq!(info.extension, None, "{byte:#x}");
        let answer = info.answer(FEATURE_NEWS).to_rsp_bytes();
        assert!(answer[5..].iter().all(|&byte| byte == 0), "{byte:#x}");
    }
}

#[test]
fn a_response_from_before_is_not_believed() {
    let asked = SessInfo::new(FEATURE_NEWS, NONCE);
    // A C server's chunk, with the response to an earlier message, or with the very message.
    let old = SessInfo::new(FEATURE_NEWS, NONCE ^ 1);
    for bytes in [old.to_rsp_bytes(), old.answer(FEATURE_NEWS).to_rsp_bytes()] {
        assert_eq!(asked.parse_rsp(&bytes).unwrap().extension, None);
    }
    let mut bytes = asked.answer(FEATURE_NEWS).to_rsp_bytes();
    bytes[8] ^= 1;
    assert_eq!(asked.parse_rsp(&bytes).unwrap().features(), 0, "magic");
}

#[test]
fn a_server_gives_no_more_than_was_offered() {
    let asked = SessInfo::new(FEATURE_NEWS, NONCE);
    let all = SessInfo {
        extension: Some(Extension {
            features: u32::MAX,
            nonce: NONCE,
        }),
        ..asked
    };
    let parsed = asked.parse_rsp(&all.to_rsp_bytes()).unwrap();
    assert_eq!(parsed.features(), FEATURE_NEWS);
    let c = SessInfo {
        ver: 2,
        extension: None,
    };
    let parsed = c.parse_rsp(&all.to_rsp_bytes()).unwrap();
    assert_eq!(parsed.extension, None, "it has not offered any");
}

#[test]
fn the_request_is_known_in_its_session_only() {
    let news = News {
        since: 0x0102_0304,
        first_device_id: 0x0506_0708,
    };
    let bytes = news.to_bytes();
    assert_eq!(bytes, [6, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5]);
    assert_eq!(
        Request::parse(&bytes, FEATURE_NEWS),
        Ok(Request::News(news))
    );
    let what = "RNBD message";
    for features in [0, !FEATURE_NEWS] {
        let unknown = Err(ProtoError::BadType { what, found: 6 });
        assert_eq!(Request::parse(&bytes, features), unknown);
    }
    for len in 0..bytes.len() {
        let result = Request::parse(&bytes[..len], FEATURE_NEWS);
        assert!(matches!(result, Err(ProtoError::TooShort { .. })), "{len}");
    }
    let mut response = [0; 264];
    response[0] = 7;
    let unknown = Err(ProtoError::BadType { what, found: 7 });
    assert_eq!(Request::parse(&response, u32::MAX), unknown);
}

#[test]
fn changes_are_numbered_for_ever() {
    assert_eq!(next_sequence(NO_NEWS), 1);
    assert_eq!(next_sequence(7), 8);
    assert_eq!(next_sequence(u32::MAX), 1);
    let wants = |since, sequence| {
        let first_device_id = 0;
        News {
            since,
            first_device_id,
        }
        .wants(sequence)
    };
    for sequence in [0, 1, 1 << 31, u32::MAX] {
        assert!(wants(NO_NEWS, sequence), "everything, also {sequence}");
        assert!(
            sequence == 0 || !wants(sequence, sequence),
            "{sequence} is known"
        );
    }
    assert!(wants(5, 6) && !wants(6, 5));
    assert!(wants(u32::MAX, 1) && !wants(1, u32::MAX), "around");
}

fn device(device_id: u32) -> DeviceNews {
    DeviceNews {
        device_id,
        read_only: true,
        write_cache: true,
        rotational: true,
        nsectors: 0x1122_3344_5566,
        max_hw_sectors: 1,
        max_write_zeroes_sectors: 2,
        max_discard_sectors: 3,
        max_secure_erase_sectors: 4,
        discard_granularity: 5,
        discard_alignment: 6,
        physical_block_size: 1 << 16,
        logical_block_size: 4096,
        max_segments: 7,
        ..DeviceNews::default()
    }
}

fn response(more: bool, devices: &[DeviceNews]) -> Vec<u8> {
    let header = NewsHeader {
        sequence: 0x0102_0304,
        count: devices.len() as u16,
        more,
        drain_ms: None,
    };
    let mut bytes = header.to_bytes().to_vec();
    devices
        .iter()
        .for_each(|news| bytes.extend(news.to_bytes()));
    bytes
}

const FROM_ZERO: News = News {
    since: 1,
    first_device_id: 0,
};

#[test]
fn the_response_is_what_protocol_md_says() {
    let bytes = response(true, &[device(9)]);
    let mut expected = vec![7, 0, 0, 0, 4, 3, 2, 1, 1, 0, 1, 0, 0, 0, 0, 0];
    expected.extend([9, 0, 0, 0, 0b10101, 0, 0, 0]);
    expected.extend([0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0]);
    for number in [1u32, 2, 3, 4, 5, 6, 1 << 16, 4096, 7] {
        expected.extend(number.to_le_bytes());
    }
    expected.resize(16 + 64, 0);
    assert_eq!(bytes, expected);
    let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
    assert_eq!(parsed.sequence(), 0x0102_0304);
    assert!(parsed.devices().eq([device(9)]));
    let rest = News {
        since: 1,
        first_device_id: 10,
    };
    assert_eq!(parsed.rest(&FROM_ZERO), Some(rest));
}

#[test]
fn flags_come_back_one_by_one() {
    let none = DeviceNews {
        logical_block_size: 512,
        physical_block_size: 512,
        ..DeviceNews::default()
    };
    let cases = [
        DeviceNews {
            read_only: true,
            ..none
        },
        DeviceNews { gone: true, ..none },
        DeviceNews {
            write_cache: true,
            ..none
        },
        DeviceNews { fua: true, ..none },
        DeviceNews {
            rotational: true,
            ..none
        },
    ];
    for (bit, news) in cases.into_iter().enumerate() {
        let mut bytes = response(false, &[news]);
        assert_eq!(bytes[20..24], (1u32 << bit).to_le_bytes());
        // Flags of a later version.
        bytes[22] = 0xff;
        let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
        assert!(parsed.devices().eq([news]), "bit {bit}");
    }
}

#[test]
fn every_number_of_records_and_every_length() {
    assert_eq!(NewsRsp::MAX_SIZE, 4048);
    assert_eq!(NewsRsp::count_in(4096), Some(NewsRsp::MAX_COUNT));
    assert_eq!(NewsRsp::count_in(usize::MAX), Some(NewsRsp::MAX_COUNT));
    assert_eq!(NewsRsp::count_in(79), None);
    assert_eq!(NewsRsp::count_in(0), None);
    for count in 0..=NewsRsp::MAX_COUNT {
        let devices: Vec<_> = (0..count as u32).map(|id| device(3 * id)).collect();
        let bytes = response(false, &devices);
        assert_eq!(bytes.len(), NewsRsp::size(count));
        assert_eq!(NewsRsp::count_in(bytes.len()).unwrap_or(0), count);
        for len in 0..bytes.len() {
            let result = NewsRsp::parse(&bytes[..len], &FROM_ZERO);
            let too_short = matches!(result, Err(ProtoError::TooShort { .. }));
            assert!(too_short, "{len} bytes for {count} records");
        }
        let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
        assert!(parsed.devices().eq(devices.iter().copied()));
        assert_eq!(parsed.rest(&FROM_ZERO), None);
        for id in 0..=3 * count as u32 {
            let wanted = devices.iter().find(|news| news.device_id == id);
            assert_eq!(parsed.device(id).as_ref(), wanted, "device {id}");
        }
    }
}

#[test]
fn more_records_than_a_response_has_are_refused() {
    let devices: Vec<_> = (0..64).map(device).collect();
    assert!(NewsRsp::parse(&response(false, &devices), &FROM_ZERO).is_err());
    let mut bytes = response(false, &devices[..1]);
    bytes[8..10].fill(0xff);
    assert!(NewsRsp::parse(&bytes, &FROM_ZERO).is_err());
}

#[test]
fn a_client_that_goes_on_comes_to_an_end() {
    let refused = |more, ids: &[u32], first_device_id| {
        let devices: Vec<_> = ids.iter().copied().map(device).collect();
        let request = News {
            first_device_id,
            ..FROM_ZERO
        };
        NewsRsp::parse(&response(more, &devices), &request).is_err()
    };
    assert!(!refused(true, &[4, 5], 4));
    assert!(refused(false, &[4, 5], 5), "before the first one");
    assert!(refused(false, &[5, 5], 0), "twice");
    assert!(refused(false, &[5, 4], 0), "falling");
    assert!(refused(true, &[], 0), "nothing, and more of it");
    assert!(!refused(false, &[u32::MAX], 0));
    assert!(refused(true, &[u32::MAX], 0), "after the last one");
    assert!(refused(false, &[u32::MAX, 0], 0), "around");
}

#[test]
fn an_impossible_device_is_refused() {
    let parse = |news: DeviceNews| {
        let bytes = response(false, &[device(0), news]);
        NewsRsp::parse(&bytes, &FROM_ZERO).map(|rsp| rsp.device(1).unwrap())
    };
    let good = device(1);
    for logical_block_size in [0, 1, 256, 513, 4097, u32::MAX] {
        let news = DeviceNews {
            logical_block_size,
            ..good
        };
        assert!(parse(news).is_err(), "block size {logical_block_size}");
    }
    for (nsectors, ok) in [
        (0, true),
        (OpenRsp::MAX_NSECTORS, true),
        (OpenRsp::MAX_NSECTORS + 1, false),
        (u64::MAX, false),
    ] {
        let news = DeviceNews { nsectors, ..good };
        assert_eq!(parse(news).is_ok(), ok, "{nsectors} sectors");
    }
    for (physical_block_size, used) in [(0, 4096), (512, 4096), (5000, 4096), (8192, 8192)] {
        let news = DeviceNews {
            physical_block_size,
            ..good
        };
        let parsed = parse(news).unwrap();
        assert_eq!(parsed.physical_block_size, used);
    }
}

#[test]
fn responses_of_another_type_are_refused() {
    let mut bytes = response(false, &[device(0)]);
    for msg_type in [0, 1, 3, 6] {
        bytes[0] = msg_type;
        let what = "news response";
        let found = u16::from(msg_type);
        let result = NewsRsp::parse(&bytes, &FROM_ZERO).map(|rsp| rsp.sequence());
        assert_eq!(result, Err(ProtoError::BadType { what, found }));
    }
}

#[test]
fn a_drain_is_told_in_the_header() {
    let header = |drain_ms| NewsHeader {
        sequence: 1,
        count: 0,
        more: false,
        drain_ms,
    };
    let mut bytes = header(Some(0x0102_0304)).to_bytes();
    assert_eq!(
        bytes,
        [7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 4, 3, 2, 1],
        "as protocol.md says"
    );
    let parse = |bytes: &[u8], features| {
        NewsRsp::parse(bytes, &FROM_ZERO)
            .unwrap()
            .drain_ms(features)
    };
    let told = parse(&bytes, FEATURE_DRAIN | FEATURE_NEWS);
    assert_eq!(told, Ok(Some(0x0102_0304)));
    assert_eq!(parse(&bytes, FEATURE_NEWS), Ok(None), "not agreed on");
    assert_eq!(parse(&header(None).to_bytes(), FEATURE_DRAIN), Ok(None));
    // Reserved bytes of a server that does not drain.
    bytes[10] = 0;
    assert_eq!(parse(&bytes, FEATURE_DRAIN), Ok(None));
    for (ms, ok) in [
        (0, false),
        (1, true),
        (MAX_DRAIN_MS, true),
        (MAX_DRAIN_MS + 1, false),
        (u32::MAX, false),
    ] {
        let mut bytes = header(Some(1)).to_bytes();
        bytes[12..].copy_from_slice(&ms.to_le_bytes());
        assert_eq!(parse(&bytes, FEATURE_DRAIN).is_ok(), ok, "{ms} ms");
        assert_eq!(parse(&bytes, !FEATURE_DRAIN), Ok(None), "{ms} ms");
    }
}

#[test]
fn a_device_that_the_server_has_closed_is_told_with_the_reason() {
    for (wire, reason) in [
        (1, CloseReason::Administrator),
        (2, CloseReason::Policy),
        (0, CloseReason::Other),
    ] {
        let closed = DeviceNews::closed(0x0102_0304, reason);
        let bytes = closed.to_bytes();
        assert_eq!(bytes[..8], [4, 3, 2, 1, 0x20, 0, 0, 0], "{reason:?}");
        assert_eq!(bytes[52], wire, "{reason:?}");
        assert!(bytes[53..].iter().all(|&byte| byte == 0), "{reason:?}");
        let bytes = response(false, &[device(1), closed]);
        let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
        assert_eq!(parsed.device(0x0102_0304), Some(closed));
        assert_eq!(parsed.device(1).unwrap().closed, None);
    }
    let mut bytes = response(false, &[DeviceNews::closed(1, CloseReason::Policy)]);
    bytes[NewsHeader::SIZE + 52] = 77;
    let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
    assert_eq!(parsed.device(1).unwrap().closed, Some(CloseReason::Other));
}

#[test]
fn a_reason_without_the_flag_is_not_looked_at() {
    let mut bytes = response(false, &[device(1)]);
    bytes[NewsHeader::SIZE + 52] = 1;
    let parsed = NewsRsp::parse(&bytes, &FROM_ZERO).unwrap();
    assert_eq!(parsed.device(1), Some(device(1)));
}
