// SPDX-License-Identifier: GPL-2.0

//! Immediates and the chunk layout behind them.

use proto::{
    rtrs::{
        coalesced_responses,
        path_number,
        ChunkLayout,
        Imm,
        LayoutError, //
    },
    Errno, //
};

#[test]
fn heartbeats_are_what_c_sends() {
    assert_eq!(Imm::HbMsg.encode(), 0x8000_0000);
    assert_eq!(Imm::HbAck.encode(), 0x9000_0000);
    assert_eq!(Imm::decode(0x8000_0000), Imm::HbMsg);
    assert_eq!(Imm::decode(0x9000_0000), Imm::HbAck);
}

#[test]
fn answers_are_what_c_sends() {
    let rsp = |msg_id, errno, invalidated| Imm::IoRsp {
        msg_id,
        errno,
        invalidated,
    };
    let cases = [
        (rsp(0, 0, false), 0x1000_0000),
        (rsp(0, 0, true), 0x2000_0000),
        (rsp(0x7ffff, 0, false), 0x1007_ffff),
        (rsp(1, -5, false), 0x1000_0000 | (5 << 19) | 1),
        (rsp(2, -511, true), 0x2000_0000 | (511 << 19) | 2),
    ];
    for (imm, wire) in cases {
        assert_eq!(imm.encode(), wire, "{imm:?}");
        assert_eq!(Imm::decode(wire), imm, "{wire:#x}");
    }
}

#[test]
fn the_end_of_a_path_names_it() {
    let mut uuid = [0xffu8; 16];
    uuid[..4].copy_from_slice(&[0x03, 0x02, 0x01, 0xf0]);
    assert_eq!(path_number(&uuid, 0), 0x0001_0203);
    assert_eq!(path_number(&uuid, 2), 0x0001_0205);
    assert!(path_number(&[0xff; 16], u16::MAX) < 1 << 28);
    let path = path_number(&uuid, 2);
    let cases = [
        (Imm::PathEnd { path }, 0x4001_0205),
        (Imm::PathEnded { path }, 0x5001_0205),
    ];
    for (imm, wire) in cases {
        assert_eq!(imm.encode(), wire, "{imm:?}");
        assert_eq!(Imm::decode(wire), imm, "{wire:#x}");
    }
}

#[test]
fn a_doorbell_carries_a_number() {
    for (number, wire) in [
        (0, 0x6000_0000),
        (0x0abc_def0, 0x6abc_def0),
        (0x0fff_ffff, 0x6fff_ffff),
    ] {
        let imm = Imm::Doorbell { number };
        assert_eq!(imm.encode(), wire, "{imm:?}");
        assert_eq!(Imm::decode(wire), imm, "{wire:#x}");
    }
    // Bits that do not fit are cut off, and do not change the type.
    assert_eq!(Imm::Doorbell { number: u32::MAX }.encode(), 0x6fff_ffff);
}

#[test]
fn joint_answers_come_back() {
    let mut message = [0xffu8; 200];
    let chunks = [0u16, 511, 65534];
    let count = coalesced_responses::write(&mut message, chunks);
    assert_eq!(count, 3);
    assert_eq!(coalesced_responses::immediate(count).encode(), 0x3000_0003);
    assert_eq!(Imm::decode(0x3000_0003), Imm::IoRsps { count: 3 });
    let message = &message[..coalesced_responses::size(count)];
    assert_eq!(message, [0, 0, 0xff, 0x01, 0xfe, 0xff]);
    let parsed: Vec<u16> = coalesced_responses::parse(message, 3).unwrap().collect();
    assert_eq!(parsed, chunks);
}

#[test]
fn joint_answers_of_another_length_are_refused() {
    let message = [0u8; 2 * coalesced_responses::MAX_COALESCED_SIZE];
    assert!(coalesced_responses::parse(&message[..6], 2).is_none());
    assert!(coalesced_responses::parse(&message[..6], 4).is_none());
    assert!(coalesced_responses::parse(&message[..5], 2).is_none());
    assert!(coalesced_responses::parse(&message[..0], 0).is_some());
    let most = coalesced_responses::MAX_COALESCED;
    assert!(
        coalesced_responses::parse(&message[..coalesced_responses::size(most)], most as u32)
            .is_some()
    );
    assert!(coalesced_responses::parse(
        &message[..coalesced_responses::size(most + 1)],
        most as u32 + 1
    )
    .is_none());
    let mut out = message;
    assert_eq!(
        coalesced_responses::write(&mut out, 0..=u16::MAX),
        most,
        "the most"
    );
    assert_eq!(
        coalesced_responses::write(&mut out[..5], 0..9),
        2,
        "what fits"
    );
}

#[test]
fn an_error_never_becomes_a_success() {
    for errno in [-512, -524, -1024, -4095, i32::MIN, 512, i32::MAX] {
        let imm = Imm::IoRsp {
            msg_id: 1,
            errno,
            invalidated: false,
        };
        let Imm::IoRsp { errno: got, .. } = Imm::decode(imm.encode()) else {
            panic!("not an answer any more");
        };
        assert_eq!(got, Errno::EIO.to_kernel(), "{errno}");
    }
}

#[test]
fn unknown_types_are_kept() {
    for imm_type in [7u8, 10, 15] {
        let imm = Imm::Unknown {
            imm_type,
            payload: 0x0abc_def0,
        };
        assert_eq!(Imm::decode(imm.encode()), imm);
    }
}

#[test]
fn default_layout_is_that_of_c() {
    let layout = ChunkLayout::for_server(512, 128 << 10).unwrap();
    assert_eq!(layout.mem_bits(), 19);
    assert_eq!(layout.total_size(), 64 << 20);
    let payload = layout.encode(511, 4128).unwrap();
    assert_eq!(payload, (511 << 19) | 4128);
    assert_eq!(layout.decode(payload), Ok((511, 4128)));
    assert_eq!(
        Imm::encode_io_req(&layout, 511, 4128),
        Some((511 << 19) | 4128)
    );
}

#[test]
fn a_single_chunk_takes_no_bits() {
    let layout = ChunkLayout::new(1, 1 << 28).unwrap();
    assert_eq!(layout.mem_bits(), 28);
    assert_eq!(layout.encode(0, (1 << 28) - 1), Some((1 << 28) - 1));
    assert_eq!(layout.decode((1 << 28) - 1), Ok((0, (1 << 28) - 1)));
    assert_eq!(layout.encode(1, 0), None);
}

#[test]
fn the_most_chunks() {
    let layout = ChunkLayout::new(65535, 4096).unwrap();
    assert_eq!(layout.mem_bits(), 12);
    assert_eq!(layout.decode((65534 << 12) | 4095), Ok((65534, 4095)));
    assert!(layout.decode(65535 << 12).is_err(), "no such chunk");
}

#[test]
fn places_outside_the_chunks_are_refused_both_ways() {
    // A depth that is not a power of two leaves numbers without a chunk.
    let layout = ChunkLayout::new(500, 10_000).unwrap();
    assert_eq!(layout.mem_bits(), 19);
    assert_eq!(layout.encode(500, 0), None);
    assert_eq!(layout.encode(0, 10_000), None);
    assert!(layout.encode(499, 9_999).is_some());
    assert!(layout.decode(500 << 19).is_err());
    assert!(layout.decode(10_000).is_err());
    assert!(layout.decode((511 << 19) | 9_999).is_err());
}

#[test]
fn what_does_not_fit_the_immediate_is_refused() {
    assert!(matches!(
        ChunkLayout::new(512, (1 << 19) + 1),
        Err(LayoutError::TooLarge { .. })
    ));
    assert!(ChunkLayout::new(512, 1 << 19).is_ok());
    assert_eq!(ChunkLayout::new(0, 8192), Err(LayoutError::QueueDepth(0)));
    assert_eq!(
        ChunkLayout::new(65536, 8192),
        Err(LayoutError::QueueDepth(65536))
    );
    assert_eq!(ChunkLayout::new(1, 0), Err(LayoutError::ChunkSize(0)));
    assert!(ChunkLayout::new(1, u32::MAX).is_err());
}

#[test]
fn server_parameters_are_checked_as_in_c() {
    let cases = [
        (0, 131_072, "invalid queue depth 0, must be 1 to 65535"),
        (-1, 131_072, "invalid queue depth -1, must be 1 to 65535"),
        (
            65_536,
            8192,
            "invalid queue depth 65536, must be 1 to 65535",
        ),
        (
            512,
            4096,
            "invalid chunk size 4096, must be a power of two of at least 8192",
        ),
        (
            512,
            100_000,
            "invalid chunk size 100000, must be a power of two of at least 8192",
        ),
        (
            512,
            i32::MIN,
            "invalid chunk size -2147483648, must be a power of two of at least 8192",
        ),
        (
            512,
            1 << 20,
            "512 chunks of 1048576 bytes do not fit an immediate of 28 bits, \
             reduce the queue depth or the chunk size",
        ),
    ];
    for (depth, size, message) in cases {
        let error = ChunkLayout::for_server(depth, size).unwrap_err();
        assert_eq!(error.message().as_str(), message);
        assert_eq!(error.errno(), Errno::EINVAL);
    }
    for (depth, size) in [(1, 8192), (512, 1 << 19), (32768, 8192), (1, 1 << 28)] {
        assert!(
            ChunkLayout::for_server(depth, size).is_ok(),
            "{depth} x {size}"
        );
    }
}
