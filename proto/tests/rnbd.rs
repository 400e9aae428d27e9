// SPDX-License-Identifier: GPL-2.0

//! The RNBD messages, and the block operations they describe.

use proto::{
    name::{
        Name,
        NameError, //
    },
    rnbd::{
        AccessMode,
        BlockOp,
        CachePolicy,
        Close,
        Io,
        IoError,
        IoFlags,
        IoMode,
        Op,
        Open,
        OpenRsp,
        RangeOp,
        Request,
        Rw,
        SessInfo,
        FEATURE_IO_MODE, //
    },
    Errno,
    ProtoError, //
};

/// Parses a message as the server does in a session without extensions.
fn parse(bytes: &[u8]) -> Result<Request, ProtoError> {
    Request::parse(bytes, 0)
}

/// The session information of a peer without extensions, as C is.
const C_INFO: SessInfo = SessInfo {
    ver: 2,
    extension: None,
};

#[test]
fn sess_info_is_what_c_sends() {
    let mut expected = vec![0, 0, 0, 0, 2];
    expected.resize(36, 0);
    assert_eq!(C_INFO.to_bytes().as_slice(), expected);
    expected[0] = 1;
    assert_eq!(C_INFO.to_rsp_bytes().as_slice(), expected);
}

#[test]
fn sess_info_settles_on_the_smaller_version() {
    for (theirs, used) in [(0, 0), (1, 1), (2, 2), (3, 2), (255, 2)] {
        let msg = SessInfo {
            ver: theirs,
            extension: None,
        };
        assert_eq!(parse(&msg.to_bytes()), Ok(Request::SessInfo(msg)));
        assert_eq!(msg.parse_rsp(&msg.to_rsp_bytes()), Ok(msg));
        assert_eq!(msg.negotiate(), used, "{theirs}");
        assert_eq!(msg.answer(u32::MAX).ver, used, "{theirs}");
    }
}

#[test]
fn open_is_what_c_sends() {
    let open = Open {
        access_mode: AccessMode::Migration,
        io_mode: None,
        dev_name: Name::new(b"/dev/sda").unwrap(),
    };
    let mut expected = vec![2, 0, 0, 0, 2, 0];
    expected.extend(b"/dev/sda");
    expected.resize(264, 0);
    assert_eq!(open.to_bytes().as_slice(), expected);
    assert_eq!(parse(&expected), Ok(Request::Open(open)));
}

#[test]
fn a_wish_for_an_io_mode_is_a_byte_of_the_extension() {
    let wish = |io_mode| Open {
        access_mode: AccessMode::Rw,
        io_mode,
        dev_name: Name::new(b"a").unwrap(),
    };
    for (io_mode, byte) in [
        (None, 0),
        (Some(IoMode::Direct), 1),
        (Some(IoMode::Buffered), 2),
    ] {
        let bytes = wish(io_mode).to_bytes();
        assert_eq!(bytes[5], byte, "{io_mode:?}");
        let parsed = Request::parse(&bytes, FEATURE_IO_MODE);
        assert_eq!(parsed, Ok(Request::Open(wish(io_mode))), "{io_mode:?}");
        // The byte has no meaning in a session without the extension.
        assert_eq!(parse(&bytes), Ok(Request::Open(wish(None))), "{io_mode:?}");
    }
    let mut bytes = wish(None).to_bytes();
    for byte in [3, 255] {
        bytes[5] = byte;
        assert!(parse(&bytes).is_ok(), "{byte}");
        let refused = Request::parse(&bytes, FEATURE_IO_MODE).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("io mode of the open message"), "{text}");
    }
}

#[test]
fn open_with_a_bad_name_is_refused() {
    let with_name = |name: &[u8]| {
        let mut bytes = [0; 264];
        bytes[0] = 2;
        bytes[6..6 + name.len()].copy_from_slice(name);
        parse(&bytes)
    };
    let field = "device name of the open message";
    let cases: &[(&[u8], NameError)] = &[
        (b"", NameError::Empty),
        (b"sd\na", NameError::BadByte(b'\n')),
        // C reads on past the field.
        (&[b'x'; 255], NameError::TooLong(255)),
        (&[b'x'; 258], NameError::TooLong(255)),
    ];
    for &(name, error) in cases {
        assert_eq!(
            with_name(name),
            Err(ProtoError::BadName { field, error }),
            "{}",
            name.escape_ascii()
        );
    }
}

#[test]
fn open_with_an_unknown_mode_is_refused() {
    let mut bytes = [0; 264];
    bytes[0] = 2;
    bytes[6] = b'x';
    for mode in 3..=255 {
        bytes[4] = mode;
        let error = parse(&bytes).unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL, "{mode}");
    }
}

#[test]
fn close_is_what_c_sends() {
    let close = Close {
        device_id: 0x0102_0304,
    };
    assert_eq!(close.to_bytes(), [5, 0, 0, 0, 4, 3, 2, 1]);
    assert_eq!(parse(&close.to_bytes()), Ok(Request::Close(close)));
}

fn io() -> Io {
    Io {
        device_id: 7,
        sector: 0x1122_3344_5566_7788,
        rw: Rw {
            op: Op::Write,
            flags: IoFlags::SYNC | IoFlags::FUA,
        },
        bi_size: 4096,
        prio: 0x4004,
    }
}

#[test]
fn io_is_what_c_sends() {
    let mut expected = vec![4, 0, 0, 0, 7, 0, 0, 0];
    expected.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    expected.extend([1, 3, 0, 0]);
    expected.extend([0, 0x10, 0, 0]);
    expected.extend([0x04, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(io().to_bytes().as_slice(), expected);
    assert_eq!(parse(&expected), Ok(Request::Io(io())));
}

#[test]
fn io_without_prio_is_taken() {
    let bytes = io().to_bytes();
    for len in 24..32 {
        let expected = Io { prio: 0, ..io() };
        assert_eq!(
            parse(&bytes[..len]),
            Ok(Request::Io(expected)),
            "{len} bytes"
        );
    }
    assert!(parse(&bytes[..23]).is_err());
}

#[test]
fn prio_counts_since_version_2() {
    assert_eq!(io().prio_for(2), 0x4004);
    assert_eq!(io().prio_for(1), 0);
}

#[test]
fn messages_that_are_cut_are_refused() {
    let messages: [&[u8]; 3] = [
        &C_INFO.to_bytes(),
        &Close { device_id: 1 }.to_bytes(),
        &Open {
            access_mode: AccessMode::Ro,
            io_mode: None,
            dev_name: Name::new(b"x").unwrap(),
        }
        .to_bytes(),
    ];
    for message in messages {
        assert!(parse(message).is_ok());
        for len in 0..message.len() {
            let result = parse(&message[..len]);
            assert!(
                matches!(result, Err(ProtoError::TooShort { .. })),
                "{len} of {} bytes: {result:?}",
                message.len()
            );
        }
    }
}

#[test]
fn other_types_are_refused() {
    for msg_type in [1u16, 3, 6, 0x0100, u16::MAX] {
        let mut bytes = [0; 264];
        bytes[..2].copy_from_slice(&msg_type.to_le_bytes());
        assert_eq!(
            parse(&bytes),
            Err(ProtoError::BadType {
                what: "RNBD message",
                found: msg_type,
            })
        );
    }
}

#[test]
fn unknown_operations_are_refused_and_unknown_flags_dropped() {
    for op in 6..=255u32 {
        assert!(Rw::try_from(op).is_err(), "{op}");
        assert!(Rw::try_from(op | 0x100).is_err(), "{op} with a flag");
    }
    for (value, op) in [
        (0, Op::Read),
        (1, Op::Write),
        (2, Op::Flush),
        (3, Op::Discard),
        (4, Op::SecureErase),
        (5, Op::WriteZeroes),
    ] {
        let rw = Rw::try_from(value | 0xffff_ff00).unwrap();
        assert_eq!(rw.op, op);
        assert_eq!(rw.to_wire(), value | 0xf00);
    }
}

fn op_of(op: Op, bi_size: u32, is_read: bool, data_len: u32) -> Result<BlockOp, IoError> {
    Io {
        sector: 8,
        rw: Rw {
            op,
            flags: IoFlags::NONE,
        },
        bi_size,
        ..io()
    }
    .block_op(is_read, data_len)
}

#[test]
fn operations_that_agree_with_their_request() {
    let (sector, len) = (8, 4096);
    let range = |op| Ok(BlockOp::Range { op, sector, len });
    assert_eq!(
        op_of(Op::Read, 4096, true, 4096),
        Ok(BlockOp::Read { sector, len })
    );
    assert_eq!(
        op_of(Op::Write, 4096, false, 4096),
        Ok(BlockOp::Write { sector, len })
    );
    // C's client sends a flush as a read.
    assert_eq!(op_of(Op::Flush, 0, true, 0), Ok(BlockOp::Flush));
    assert_eq!(op_of(Op::Flush, 0, false, 0), Ok(BlockOp::Flush));
    assert_eq!(op_of(Op::Discard, 4096, false, 0), range(RangeOp::Discard));
    assert_eq!(
        op_of(Op::SecureErase, 4096, false, 0),
        range(RangeOp::SecureErase)
    );
    assert_eq!(
        op_of(Op::WriteZeroes, 4096, false, 0),
        range(RangeOp::WriteZeroes { no_unmap: false })
    );
}

#[test]
fn write_zeroes_can_keep_its_blocks() {
    let io = Io {
        rw: Rw {
            op: Op::WriteZeroes,
            flags: IoFlags::NOUNMAP,
        },
        sector: 0,
        bi_size: 512,
        ..io()
    };
    assert_eq!(
        io.block_op(false, 0),
        Ok(BlockOp::Range {
            op: RangeOp::WriteZeroes { no_unmap: true },
            sector: 0,
            len: 512,
        })
    );
}

#[test]
fn an_empty_write_with_preflush_is_a_flush() {
    let io = Io {
        rw: Rw {
            op: Op::Write,
            flags: IoFlags::PREFLUSH,
        },
        bi_size: 0,
        ..io()
    };
    assert_eq!(io.block_op(false, 0), Ok(BlockOp::Flush));
}

// In the first case C makes a block request that has a length but no memory.
#[test]
fn operations_that_disagree_with_their_request_are_refused() {
    let cases = [
        (Op::Read, 4096, true, 0),
        (Op::Write, 4096, false, 0),
        (Op::Read, 4096, true, 8192),
        (Op::Write, 8192, false, 4096),
        (Op::Read, 0, true, 4096),
        (Op::Read, 4096, false, 4096),
        (Op::Write, 4096, true, 4096),
        (Op::Read, 0, true, 0),
        (Op::Write, 0, false, 0),
        (Op::Flush, 0, false, 4096),
        (Op::Flush, 4096, false, 4096),
        (Op::Flush, 4096, false, 0),
        (Op::Discard, 4096, false, 4096),
        (Op::Discard, 0, false, 0),
        (Op::WriteZeroes, 4096, false, 512),
        (Op::SecureErase, 0, false, 0),
    ];
    for (op, bi_size, is_read, data_len) in cases {
        let result = op_of(op, bi_size, is_read, data_len);
        let errno = result.map_err(|error| error.errno());
        assert_eq!(
            errno,
            Err(Errno::EINVAL),
            "{op:?} {bi_size} read={is_read} data={data_len}"
        );
    }
}

#[test]
fn ranges_of_broken_sectors_are_refused() {
    for len in [1, 511, 513, 4095] {
        assert!(op_of(Op::Read, len, true, len).is_err(), "{len}");
        assert!(op_of(Op::Discard, len, false, 0).is_err(), "{len}");
    }
}

#[test]
fn ranges_that_wrap_around_are_refused() {
    let at = |sector| {
        Io {
            sector,
            rw: Rw {
                op: Op::Discard,
                flags: IoFlags::NONE,
            },
            bi_size: 1024,
            ..io()
        }
        .block_op(false, 0)
    };
    assert!(at(u64::MAX - 2).is_ok());
    assert!(at(u64::MAX - 1).is_err());
}

#[test]
fn reads_and_flushes_change_nothing() {
    for op in [Op::Read, Op::Flush] {
        assert!(!op.changes_device(), "{op:?}");
    }
    for op in [Op::Write, Op::Discard, Op::SecureErase, Op::WriteZeroes] {
        assert!(op.changes_device(), "{op:?}");
    }
}

fn open_rsp() -> OpenRsp {
    OpenRsp {
        device_id: 0x0102_0304,
        nsectors: 0x1_0000_0000,
        max_hw_sectors: 2560,
        max_write_zeroes_sectors: 0xffff,
        max_discard_sectors: 0x3f_ffff,
        discard_granularity: 512,
        discard_alignment: 1,
        physical_block_size: 4096,
        logical_block_size: 512,
        max_segments: 168,
        secure_discard: true,
        cache_policy: CachePolicy {
            fua: false,
            writeback: true,
        },
        io_mode: None,
    }
}

#[test]
fn open_rsp_is_what_c_sends() {
    let mut expected = vec![3, 0, 0, 0, 4, 3, 2, 1];
    expected.extend([0, 0, 0, 0, 1, 0, 0, 0]);
    expected.extend([0, 0x0a, 0, 0]);
    expected.extend([0xff, 0xff, 0, 0]);
    expected.extend([0xff, 0xff, 0x3f, 0]);
    expected.extend([0, 2, 0, 0]);
    expected.extend([1, 0, 0, 0]);
    expected.extend([0, 0x10, 0, 2, 168, 0, 1, 0]);
    expected.extend([0, 2]);
    expected.resize(56, 0);
    let bytes = open_rsp().to_bytes().unwrap();
    assert_eq!(bytes.as_slice(), expected);
    assert_eq!(OpenRsp::parse(&bytes, 0), Ok(open_rsp()));
}

#[test]
fn the_io_mode_of_the_open_response_is_a_byte_of_the_extension() {
    for (io_mode, byte) in [
        (None, 0),
        (Some(IoMode::Direct), 1),
        (Some(IoMode::Buffered), 2),
    ] {
        let rsp = OpenRsp {
            io_mode,
            ..open_rsp()
        };
        let mut bytes = rsp.to_bytes().unwrap();
        assert_eq!(bytes[46], byte, "{io_mode:?}");
        assert_eq!(OpenRsp::parse(&bytes, FEATURE_IO_MODE), Ok(rsp));
        bytes[46] = 3;
        let refused = OpenRsp::parse(&bytes, FEATURE_IO_MODE).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("io mode of the open response"), "{text}");
        // A C server may leave old data there.
        assert_eq!(OpenRsp::parse(&bytes, 0), Ok(open_rsp()));
    }
}

#[test]
fn open_rsp_of_a_device_with_large_values() {
    let rsp = OpenRsp {
        physical_block_size: 1 << 16,
        max_segments: 1 << 16,
        ..open_rsp()
    };
    let parsed = OpenRsp::parse(&rsp.to_bytes().unwrap(), 0).unwrap();
    assert_eq!(parsed.physical_block_size, 1 << 15);
    assert_eq!(parsed.max_segments, 65535);

    let rsp = OpenRsp {
        logical_block_size: 1 << 16,
        ..open_rsp()
    };
    assert!(rsp.to_bytes().is_err(), "would be sent as 0");
}

#[test]
fn open_rsp_of_an_impossible_device_is_refused() {
    for logical_block_size in [0, 1, 256, 513, 1000, 4097, 65535] {
        let rsp = OpenRsp {
            logical_block_size,
            ..open_rsp()
        };
        let result = OpenRsp::parse(&rsp.to_bytes().unwrap(), 0);
        assert!(result.is_err(), "block size {logical_block_size}");
    }
    for (nsectors, ok) in [
        (OpenRsp::MAX_NSECTORS, true),
        (OpenRsp::MAX_NSECTORS + 1, false),
        (u64::MAX, false),
    ] {
        let rsp = OpenRsp {
            nsectors,
            ..open_rsp()
        };
        let result = OpenRsp::parse(&rsp.to_bytes().unwrap(), 0);
        assert_eq!(result.is_ok(), ok, "{nsectors} sectors");
    }
}

#[test]
fn open_rsp_with_a_senseless_physical_block_size_uses_the_logical_one() {
    for physical_block_size in [0, 256, 3000, 65535] {
        let rsp = OpenRsp {
            physical_block_size,
            ..open_rsp()
        };
        let parsed = OpenRsp::parse(&rsp.to_bytes().unwrap(), 0).unwrap();
        assert_eq!(parsed.physical_block_size, 512, "{physical_block_size}");
    }
}

#[test]
fn any_secure_discard_counts() {
    let mut bytes = open_rsp().to_bytes().unwrap();
    for (value, expected) in [(0u16, false), (1, true), (0x8000, true)] {
        bytes[42..44].copy_from_slice(&value.to_le_bytes());
        assert_eq!(OpenRsp::parse(&bytes, 0).unwrap().secure_discard, expected);
    }
}

#[test]
fn answers_that_are_cut_or_of_another_type_are_refused() {
    let open = open_rsp().to_bytes().unwrap();
    let info = C_INFO.to_rsp_bytes();
    assert!(OpenRsp::parse(&open[..55], 0).is_err());
    assert!(C_INFO.parse_rsp(&info[..35]).is_err());
    assert!(
        OpenRsp::parse(&[0; 56], 0).is_err(),
        "a buffer nobody filled"
    );
    assert!(C_INFO.parse_rsp(&[0; 36]).is_err(), "nobody filled");
    assert!(C_INFO.parse_rsp(&open).is_err());
}

#[test]
fn access_modes_have_names() {
    for (mode, name) in [
        (AccessMode::Ro, "ro"),
        (AccessMode::Rw, "rw"),
        (AccessMode::Migration, "migration"),
    ] {
        assert_eq!(mode.as_str(), name);
        assert_eq!(AccessMode::from_name(name.as_bytes()), Some(mode));
        assert_eq!(AccessMode::try_from(mode.to_wire()), Ok(mode));
    }
    for name in ["", "r", "RW", "rw ", "migrations"] {
        assert_eq!(AccessMode::from_name(name.as_bytes()), None, "{name:?}");
    }
}
