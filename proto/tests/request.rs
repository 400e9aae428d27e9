// SPDX-License-Identifier: GPL-2.0

//! Requests as a server finds them in a chunk, well-formed and hostile.

use proto::{
    rtrs::{
        request::{
            Direction,
            RequestError,
            MAX_MSG_SIZE, //
        },
        ReadMsg,
        Request,
        SgDesc,
        WriteMsg,
        MAX_HDR_SIZE, //
    },
    Errno, //
};

const CHUNK: u32 = 131_072;

fn desc(len: u32) -> SgDesc {
    SgDesc {
        addr: 0xffff_8880_0000_1000,
        key: 0x1234,
        len,
    }
}

fn read_msg(usr_len: u16, desc: Option<SgDesc>) -> Vec<u8> {
    let mut bytes = vec![0xaa; MAX_MSG_SIZE];
    let msg = ReadMsg {
        usr_len,
        need_inval: true,
        desc,
    };
    let size = msg.write(&mut bytes).unwrap();
    assert_eq!(size, msg.size());
    bytes.truncate(size);
    bytes
}

fn raw_read(usr_len: u16, flags: u16, sg_cnt: u16, desc: SgDesc) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [3, usr_len, flags, sg_cnt] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(desc.to_bytes());
    bytes
}

#[test]
fn read_is_what_c_sends() {
    let bytes = read_msg(32, Some(desc(4096)));
    let mut expected = vec![3, 0, 32, 0, 1, 0, 1, 0];
    expected.extend([0x00, 0x10, 0, 0, 0x80, 0x88, 0xff, 0xff]);
    expected.extend([0x34, 0x12, 0, 0]);
    expected.extend([0, 0x10, 0, 0]);
    assert_eq!(bytes, expected);
    // Without a target there is nothing to invalidate.
    assert_eq!(read_msg(32, None), [3, 0, 32, 0, 0, 0, 0, 0]);
}

#[test]
fn write_is_what_c_sends() {
    assert_eq!(WriteMsg { usr_len: 0x120 }.to_bytes(), [2, 0, 0x20, 0x01]);
}

#[test]
fn a_write_with_data() {
    let msg = WriteMsg { usr_len: 32 }.to_bytes();
    let req = Request::parse(CHUNK, 4096 + 32, &msg).unwrap();
    assert_eq!(req.direction(), Direction::Write);
    assert_eq!((req.data_len(), req.usr_len()), (4096, 32));
    assert_eq!(req.usr_range(), 4096..4128);
}

#[test]
fn the_short_way_takes_the_same_requests() {
    let mut msg = [0xee; MAX_MSG_SIZE];
    msg[..WriteMsg::SIZE].copy_from_slice(&WriteMsg { usr_len: 32 }.to_bytes());
    let req = Request::parse_usual(4096 + 32, &msg);
    assert_eq!(req, Request::parse(CHUNK, 4096 + 32, &msg).ok());
    assert_eq!(req.map(|req| req.transfer_len()), Some(4096));
    // The user's message is longer than the bytes before the RTRS message.
    assert_eq!(Request::parse_usual(31, &msg), None);

    let msg: [u8; MAX_MSG_SIZE] = read_msg(32, Some(desc(512))).try_into().unwrap();
    let req = Request::parse_usual(4096 + 32, &msg);
    assert_eq!(req, Request::parse(CHUNK, 4096 + 32, &msg).ok());
    assert_eq!(req.map(|req| req.transfer_len()), Some(512));
    assert_eq!(req.and_then(|req| req.only_target().copied()), None);
    // The target is longer than the data area.
    assert_eq!(Request::parse_usual(511 + 32, &msg), None);
    for wrong in [
        raw_read(32, 0, 2, desc(512)),
        raw_read(32, 0, 0, desc(512)),
        raw_read(32, 0, 1, desc(0)),
        raw_read(MAX_HDR_SIZE as u16 + 1, 0, 1, desc(512)),
    ] {
        let wrong: [u8; MAX_MSG_SIZE] = wrong.try_into().unwrap();
        assert_eq!(Request::parse_usual(8192, &wrong), None);
    }
    let msg: [u8; MAX_MSG_SIZE] = raw_read(32, 0, 1, desc(512)).try_into().unwrap();
    let req = Request::parse_usual(4096, &msg).unwrap();
    assert_eq!(req.only_target(), Some(&desc(512)));
    assert_eq!(Request::parse_usual(4096, &[0; MAX_MSG_SIZE]), None);
}

#[test]
fn a_write_without_data() {
    let msg = WriteMsg { usr_len: 32 }.to_bytes();
    let req = Request::parse(CHUNK, 32, &msg).unwrap();
    assert_eq!((req.data_len(), req.usr_range()), (0, 0..32));
}

#[test]
fn a_read_with_a_target() {
    let msg = read_msg(32, Some(desc(4096)));
    let req = Request::parse(CHUNK, 4096 + 32, &msg).unwrap();
    assert_eq!(
        req.direction(),
        Direction::Read {
            target: Some(desc(4096)),
            need_inval: true,
        }
    );
    assert!(req.is_read());
    assert_eq!(req.data_len(), 4096);
}

#[test]
fn a_read_without_a_target_needs_no_invalidation() {
    let req = Request::parse(CHUNK, 32, &raw_read(32, 1, 0, desc(0))[..8]).unwrap();
    assert_eq!(
        req.direction(),
        Direction::Read {
            target: None,
            need_inval: false,
        }
    );
}

#[track_caller]
fn assert_answered(result: Result<Request, RequestError>, message: &str) {
    match result {
        Err(error @ RequestError::Respond(_)) => {
            assert_eq!(error.message().as_str(), message);
            assert_eq!(error.errno(), Errno::EINVAL);
        }
        other => panic!("not answered: {other:?}"),
    }
}

#[track_caller]
fn assert_closed(result: Result<Request, RequestError>) {
    assert!(
        matches!(result, Err(RequestError::Close(_))),
        "not closed: {result:?}"
    );
}

// CVE-2026-97413: the data's length was the offset minus an unchecked usr_len.
#[test]
fn usr_len_beyond_the_offset_is_answered() {
    let message = "usr_len of an IO request has bad value 33";
    let write = WriteMsg { usr_len: 33 }.to_bytes();
    assert_answered(Request::parse(CHUNK, 32, &write), message);
    let read = read_msg(33, Some(desc(1)));
    assert_answered(Request::parse(CHUNK, 32, &read), message);
}

#[test]
fn usr_len_beyond_what_the_server_takes_is_answered() {
    let usr_len = MAX_HDR_SIZE as u16 + 1;
    let msg = WriteMsg { usr_len }.to_bytes();
    assert_answered(
        Request::parse(CHUNK, 100_000, &msg),
        "usr_len of an IO request has bad value 4097",
    );
}

// CVE-2026-64269: the target's length was taken as the length of local memory.
#[test]
fn a_target_longer_than_the_data_area_is_answered() {
    for len in [4097, CHUNK, CHUNK + 1, u32::MAX] {
        let msg = read_msg(32, Some(desc(len)));
        assert_answered(
            Request::parse(CHUNK, 4096 + 32, &msg),
            &format!("target length of a read request has bad value {len}"),
        );
    }
}

#[test]
fn an_empty_target_is_answered() {
    let msg = read_msg(32, Some(desc(0)));
    assert_answered(
        Request::parse(CHUNK, 4096 + 32, &msg),
        "target length of a read request has bad value 0",
    );
}

// C drops such a request without a response, so that the client hangs.
#[test]
fn several_targets_are_answered() {
    for sg_cnt in [2, 256, u16::MAX] {
        let msg = raw_read(32, 1, sg_cnt, desc(4096));
        assert_answered(
            Request::parse(CHUNK, 4096 + 32, &msg),
            &format!("sg_cnt of a read request has bad value {sg_cnt}"),
        );
    }
}

#[test]
fn other_types_close_the_path() {
    for msg_type in [0, 1, 4, 5, 0x0203, u16::MAX] {
        let mut msg = read_msg(32, Some(desc(4096)));
        msg[..2].copy_from_slice(&u16::to_le_bytes(msg_type));
        assert_closed(Request::parse(CHUNK, 4096 + 32, &msg));
    }
}

// C checks that the message starts in the chunk, not that it ends there.
#[test]
fn a_message_that_runs_past_the_chunk_closes_the_path() {
    let read = read_msg(32, Some(desc(4096)));
    let write = WriteMsg { usr_len: 32 }.to_bytes();
    // The bytes behind the chunk are copied, too.
    for missing in 1..24 {
        assert_closed(Request::parse(CHUNK, CHUNK - 24 + missing, &read));
    }
    for missing in 1..4 {
        assert_closed(Request::parse(CHUNK, CHUNK - 4 + missing, &write));
    }
    assert!(Request::parse(CHUNK, CHUNK - 24, &read).is_ok());
    assert!(Request::parse(CHUNK, CHUNK - 4, &write).is_ok());
}

#[test]
fn an_offset_outside_the_chunk_closes_the_path() {
    let write = WriteMsg { usr_len: 0 }.to_bytes();
    for off in [CHUNK, CHUNK + 1, u32::MAX] {
        assert_closed(Request::parse(CHUNK, off, &write));
        assert!(Request::msg_range(CHUNK, off).is_empty());
    }
}

#[test]
fn a_copy_that_is_too_short_closes_the_path() {
    let read = read_msg(32, Some(desc(4096)));
    for len in 0..read.len() {
        assert_closed(Request::parse(CHUNK, 4096 + 32, &read[..len]));
    }
}

#[test]
fn the_part_to_copy_stays_in_the_chunk() {
    assert_eq!(Request::msg_range(CHUNK, 0), 0..24);
    assert_eq!(Request::msg_range(CHUNK, 4128), 4128..4152);
    let chunk = CHUNK as usize;
    assert_eq!(Request::msg_range(CHUNK, CHUNK - 3), chunk - 3..chunk);
}

#[test]
fn messages_need_room() {
    let msg = ReadMsg {
        usr_len: 0,
        need_inval: false,
        desc: Some(desc(1)),
    };
    assert!(msg.write(&mut [0; 23]).is_err());
    assert_eq!(msg.write(&mut [0; 24]), Ok(24));
}
