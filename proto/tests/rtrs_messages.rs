// SPDX-License-Identifier: GPL-2.0

//! The RTRS messages, against bytes as the C modules send them.

use std::cmp::Ordering;

use proto::{
    name::{
        NameError,
        SessName, //
    },
    rtrs::{
        segments_of,
        ChunkLayout,
        ConnAccept,
        ConnReject,
        ConnReq,
        InfoReq,
        InfoRsp,
        RemoteBuf,
        RkeyRsp,
        SgDesc,
        DEFAULT_MAX_CHUNK_SIZE,
        MAX_HDR_SIZE, //
    },
    Errno,
    ProtoError, //
};

fn conn_req() -> ConnReq {
    ConnReq {
        cid: 3,
        cid_num: 9,
        recon_cnt: 0x0102,
        sess_uuid: *b"sess-uuid-16-byt",
        paths_uuid: *b"path-uuid-16-byt",
        first_conn: true,
        features: 0,
        given_up: 0,
    }
}

#[test]
fn conn_req_is_what_c_sends() {
    let mut expected = vec![0, 0, 0xbd, 0x1b, 0x00, 0x02, 3, 0, 9, 0, 0x02, 0x01];
    expected.extend(b"sess-uuid-16-byt");
    expected.extend(b"path-uuid-16-byt");
    expected.push(1);
    expected.resize(56, 0);
    assert_eq!(conn_req().to_bytes().as_slice(), expected);
}

#[test]
fn conn_req_comes_back() {
    let req = ConnReq {
        features: 0x8000_0001,
        given_up: 0x0102_0304,
        ..conn_req()
    };
    assert_eq!(ConnReq::parse(&req.to_bytes()), Ok(req));
    // The RDMA CM pads private data.
    let mut longer = req.to_bytes().to_vec();
    longer.resize(92, 0xff);
    assert_eq!(ConnReq::parse(&longer), Ok(req));
}

#[test]
fn given_up_requests_are_counted_modulo_two_to_the_32() {
    for (now, then, order) in [
        (0, 0, Ordering::Equal),
        (7, 6, Ordering::Greater),
        (6, 7, Ordering::Less),
        (3, u32::MAX - 3, Ordering::Greater),
        (u32::MAX - 3, 3, Ordering::Less),
    ] {
        let req = ConnReq {
            given_up: now,
            ..conn_req()
        };
        assert_eq!(req.given_up_since(then), order, "{now} after {then}");
    }
}

#[test]
fn conn_req_of_another_minor_version_is_taken() {
    let mut bytes = conn_req().to_bytes();
    bytes[4] = 7;
    assert_eq!(ConnReq::parse(&bytes), Ok(conn_req()));
}

#[test]
fn conn_req_reserved_bits_do_not_count() {
    let mut bytes = conn_req().to_bytes();
    bytes[44] = 0xfe;
    bytes[45] = 0xff;
    let req = ConnReq::parse(&bytes).unwrap();
    assert!(!req.first_conn);
}

#[test]
fn a_path_may_have_4096_connections() {
    let req = ConnReq {
        cid: 4095,
        cid_num: 4096,
        ..conn_req()
    };
    assert_eq!(ConnReq::parse(&req.to_bytes()), Ok(req));
}

#[test]
fn bad_conn_reqs_are_refused_with_econnreset() {
    let change = |at: usize, value: u8| {
        let mut bytes = conn_req().to_bytes();
        bytes[at] = value;
        bytes
    };
    let cases: &[(&str, &[u8], &str)] = &[
        (
            "empty",
            &[],
            "connection request is too short: 0 of 56 bytes",
        ),
        (
            "cut",
            &conn_req().to_bytes()[..55],
            "connection request is too short: 55 of 56 bytes",
        ),
        ("magic", &change(2, 0), "not an RTRS peer: magic 0x1b00"),
        (
            "major version",
            &change(5, 1),
            "RTRS version 1.0 is not supported, expected 2.x",
        ),
        (
            "4097 connections",
            &{
                let mut bytes = conn_req().to_bytes();
                bytes[8..10].copy_from_slice(&4097u16.to_le_bytes());
                bytes
            },
            "cid_num of the connection request has bad value 4097",
        ),
        (
            "connection number",
            &change(6, 9),
            "cid of the connection request has bad value 9",
        ),
        (
            "no connections",
            &change(8, 0),
            "cid of the connection request has bad value 3",
        ),
    ];
    for (what, bytes, message) in cases {
        let error = ConnReq::parse(bytes).expect_err(what);
        assert_eq!(error.message().as_str(), *message, "{what}");
        assert_eq!(error.connect_errno(), Errno::ECONNRESET, "{what}");
    }
}

fn conn_accept() -> ConnAccept {
    ConnAccept {
        queue_depth: 512,
        max_io_size: 126976,
        max_hdr_size: 4096,
        new_rkey: true,
        features: 0,
    }
}

#[test]
fn conn_accept_is_what_c_sends() {
    let mut expected = vec![0xbd, 0x1b, 0x00, 0x02, 0, 0, 0x00, 0x02];
    expected.extend([0x00, 0xf0, 0x01, 0x00]);
    expected.extend([0x00, 0x10, 0x00, 0x00]);
    expected.extend([2, 0, 0, 0]);
    expected.resize(56, 0);
    assert_eq!(conn_accept().to_bytes().as_slice(), expected);
}

#[test]
fn conn_accept_comes_back_with_its_layout() {
    let accept = ConnAccept {
        features: 5,
        ..conn_accept()
    };
    assert_eq!(ConnAccept::parse(&accept.to_bytes()), Ok(accept));
    let layout = accept.layout().unwrap();
    assert_eq!(layout, ChunkLayout::new(512, 128 << 10).unwrap());
}

#[test]
fn conn_accept_with_impossible_chunks_is_refused() {
    let base = conn_accept();
    let cases = [
        ConnAccept {
            queue_depth: 0,
            ..base
        },
        ConnAccept {
            max_io_size: 0,
            ..base
        },
        ConnAccept {
            max_hdr_size: 0,
            ..base
        },
        // The sum wraps around in C.
        ConnAccept {
            max_io_size: u32::MAX,
            ..base
        },
        ConnAccept {
            max_io_size: 1 << 20,
            queue_depth: 512,
            ..base
        },
        ConnAccept {
            queue_depth: 65535,
            ..base
        },
    ];
    for accept in cases {
        let result = ConnAccept::parse(&accept.to_bytes());
        assert!(
            matches!(result, Err(ProtoError::BadField { .. })),
            "{accept:?} gives {result:?}"
        );
    }
}

#[test]
fn an_established_connection_with_an_errno_is_refused() {
    let mut bytes = conn_accept().to_bytes();
    bytes[4..6].copy_from_slice(&(-16i16).to_le_bytes());
    assert_eq!(
        ConnAccept::parse(&bytes),
        Err(ProtoError::Refused(Errno::EBUSY))
    );
}

#[test]
fn conn_reject_carries_the_errno() {
    for errno in [Errno::EBUSY, Errno::ECONNRESET, Errno::ENOMEM] {
        let reject = ConnReject { errno };
        let bytes = reject.to_bytes();
        assert_eq!(bytes[4..6], (errno.to_kernel() as i16).to_le_bytes());
        assert_eq!(ConnReject::parse(&bytes), Ok(reject));
    }
}

#[test]
fn a_reject_without_a_usable_errno_is_econnreset() {
    for value in [0i16, 1, 104, i16::MAX, i16::MIN, -4096, -4095, -529, -512] {
        let mut bytes = ConnReject { errno: Errno::EIO }.to_bytes();
        bytes[4..6].copy_from_slice(&value.to_le_bytes());
        let errno = ConnReject::parse(&bytes).map(|reject| reject.errno);
        assert_eq!(errno, Ok(Errno::ECONNRESET), "errno {value}");
    }
    assert!(ConnReject::parse(&[0; 56]).is_err(), "no magic");
    assert!(ConnReject::parse(&[]).is_err(), "no data");
}

#[test]
fn info_req_comes_back() {
    let sessname = SessName::new(b"node-1").unwrap();
    let bytes = InfoReq { sessname }.to_bytes();
    assert_eq!(bytes.len(), 272);
    assert_eq!(bytes[..9], *b"\0\0node-1\0");
    assert!(bytes[9..].iter().all(|&byte| byte == 0));
    assert_eq!(InfoReq::parse(&bytes).unwrap().sessname, sessname);
}

#[test]
fn info_req_with_a_bad_name_is_refused() {
    let with_name = |name: &[u8]| {
        let mut bytes = [0; 272];
        bytes[2..2 + name.len()].copy_from_slice(name);
        InfoReq::parse(&bytes)
    };
    let field = "session name of the info request";
    let cases: &[(&[u8], NameError)] = &[
        (b"", NameError::Empty),
        (b"a/b", NameError::BadByte(b'/')),
        (b"a.b", NameError::BadByte(b'.')),
        (b"a\nb", NameError::BadByte(b'\n')),
        (&[b'x'; 255], NameError::TooLong(255)),
    ];
    for &(name, error) in cases {
        assert_eq!(
            with_name(name),
            Err(ProtoError::BadName { field, error }),
            "{}",
            name.escape_ascii()
        );
    }
    assert!(with_name(&[b'x'; 254]).is_ok(), "the longest name");
}

#[test]
fn info_req_of_another_type_or_size_is_refused() {
    let mut bytes = [0; 272];
    bytes[2] = b'x';
    assert!(InfoReq::parse(&bytes).is_ok());
    assert!(InfoReq::parse(&bytes[..271]).is_err());
    bytes[0] = 1;
    assert!(InfoReq::parse(&bytes).is_err());
}

fn desc(addr: u64, key: u32, len: u32) -> SgDesc {
    SgDesc { addr, key, len }
}

fn info_rsp(descs: &[SgDesc]) -> Vec<u8> {
    let mut bytes = vec![0xaa; InfoRsp::size(descs.len() as u16)];
    let size = InfoRsp::write(&mut bytes, descs.iter().copied()).unwrap();
    assert_eq!(size, bytes.len());
    bytes
}

#[test]
fn info_rsp_is_what_c_sends() {
    let bytes = info_rsp(&[desc(0x1122_3344_5566_7788, 0x0102_0304, 8192)]);
    let mut expected = vec![1, 0, 1, 0, 0, 0, 0, 0];
    expected.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    expected.extend([4, 3, 2, 1]);
    expected.extend([0, 0x20, 0, 0]);
    assert_eq!(bytes, expected);
}

#[test]
fn info_rsp_with_a_descriptor_per_chunk() {
    let layout = ChunkLayout::new(2, 8192).unwrap();
    let bytes = info_rsp(&[desc(0x10_0000, 7, 8192), desc(0x90_0000, 8, 8192)]);
    let rsp = InfoRsp::parse(&bytes, &layout).unwrap();
    let bufs: Vec<_> = rsp.remote_bufs().collect();
    assert_eq!(
        bufs,
        [
            RemoteBuf {
                addr: 0x10_0000,
                rkey: 7
            },
            RemoteBuf {
                addr: 0x90_0000,
                rkey: 8
            },
        ]
    );
}

#[test]
fn info_rsp_with_several_chunks_per_descriptor() {
    let layout = ChunkLayout::new(6, 8192).unwrap();
    let bytes = info_rsp(&[desc(0x10_0000, 7, 3 * 8192), desc(0x90_0000, 8, 3 * 8192)]);
    let rsp = InfoRsp::parse(&bytes, &layout).unwrap();
    let addrs: Vec<_> = rsp.remote_bufs().map(|buf| (buf.addr, buf.rkey)).collect();
    assert_eq!(
        addrs,
        [
            (0x10_0000, 7),
            (0x10_2000, 7),
            (0x10_4000, 7),
            (0x90_0000, 8),
            (0x90_2000, 8),
            (0x90_4000, 8),
        ]
    );
}

#[test]
fn info_rsp_that_does_not_cover_the_chunks_is_refused() {
    let layout = ChunkLayout::new(4, 8192).unwrap();
    let whole = 4 * 8192;
    let cases: &[(&str, &[SgDesc])] = &[
        ("no descriptor", &[]),
        (
            "not a divisor",
            &[desc(0, 0, 8192), desc(0, 0, 8192), desc(0, 0, 16384)],
        ),
        ("empty one", &[desc(0, 0, 0), desc(0, 0, whole)]),
        ("part of a chunk", &[desc(0, 0, whole - 1)]),
        ("too little", &[desc(0, 0, whole - 8192)]),
        ("too much", &[desc(0, 0, whole + 8192)]),
        (
            "sum wraps in C",
            &[desc(0, 0, 1 << 31), desc(0, 0, (1 << 31) + whole)],
        ),
        ("address wraps", &[desc(u64::MAX - 8192, 0, whole)]),
    ];
    for (what, descs) in cases {
        let result = InfoRsp::parse(&info_rsp(descs), &layout).map(|_| ());
        assert!(
            matches!(result, Err(ProtoError::BadField { .. })),
            "{what}: {result:?}"
        );
    }
}

#[test]
fn info_rsp_says_why_a_client_is_refused() {
    let layout = ChunkLayout::new(4, 8192).unwrap();
    let refusal = InfoRsp::refusal(Errno::EACCES);
    assert_eq!(refusal, [1, 0, 0, 0, 0xf3, 0xff, 0, 0]);
    let refused = |bytes: &[u8]| InfoRsp::parse(bytes, &layout).map(|_| ()).unwrap_err();
    assert_eq!(refused(&refusal), ProtoError::Refused(Errno::EACCES));
    // An error number that only the kernel uses stops the machine when a driver returns it.
    for number in [1i16, -512, i16::MIN] {
        let mut strange = refusal;
        strange[4..6].copy_from_slice(&number.to_le_bytes());
        let error = ProtoError::Refused(Errno::ECONNRESET);
        assert_eq!(refused(&strange), error, "number {number}");
    }
    // In a message with descriptors the field has no meaning.
    let mut bytes = info_rsp(&[desc(0, 0, 4 * 8192)]);
    bytes[4] = 0xf3;
    assert!(InfoRsp::parse(&bytes, &layout).is_ok());
}

#[test]
fn info_rsp_that_is_cut_or_of_another_type_is_refused() {
    let layout = ChunkLayout::new(1, 8192).unwrap();
    let mut bytes = info_rsp(&[desc(0, 0, 8192)]);
    assert!(InfoRsp::parse(&bytes, &layout).is_ok());
    for len in 0..bytes.len() {
        let result = InfoRsp::parse(&bytes[..len], &layout).map(|_| ());
        assert!(
            matches!(result, Err(ProtoError::TooShort { .. })),
            "{len} bytes: {result:?}"
        );
    }
    bytes[0] = 4;
    assert!(matches!(
        InfoRsp::parse(&bytes, &layout),
        Err(ProtoError::BadType { found: 4, .. })
    ));
}

#[test]
fn info_rsp_needs_room() {
    let mut small = [0; 23];
    let error = InfoRsp::write(&mut small, [desc(0, 0, 1)].into_iter()).unwrap_err();
    assert_eq!(error.errno(), Errno::EMSGSIZE);
}

#[test]
fn rkey_rsp_comes_back_if_the_chunk_exists() {
    let layout = ChunkLayout::new(512, 8192).unwrap();
    let rsp = RkeyRsp {
        buf_id: 511,
        rkey: 0xdead_beef,
    };
    let bytes = rsp.to_bytes();
    assert_eq!(bytes, [4, 0, 0xff, 0x01, 0xef, 0xbe, 0xad, 0xde]);
    assert_eq!(RkeyRsp::parse(&bytes, &layout), Ok(rsp));
    assert!(RkeyRsp::parse(&bytes[..7], &layout).is_err(), "cut");
    let outside = RkeyRsp { buf_id: 512, ..rsp };
    assert!(RkeyRsp::parse(&outside.to_bytes(), &layout).is_err());
    let mut other = bytes;
    other[0] = 3;
    assert!(RkeyRsp::parse(&other, &layout).is_err(), "type");
}

#[test]
fn data_has_a_segment_more_than_pages() {
    // A part of a page at the beginning, whole pages, and a part at the end.
    for (bytes, segments) in [
        (1, 2),
        (4096, 2),
        (4097, 3),
        (31 * 4096, 32),
        (u32::MAX, (1 << 20) + 1),
    ] {
        assert_eq!(segments_of(bytes), segments, "{bytes} bytes");
    }
    assert_eq!(
        segments_of(DEFAULT_MAX_CHUNK_SIZE - MAX_HDR_SIZE),
        32,
        "of the default chunks"
    );
}
