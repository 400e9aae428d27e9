// SPDX-License-Identifier: GPL-2.0

//! The properties of parsers that hold for any input: one function per parser, which panics if a
//! property does not hold.
//!
//! The fuzz targets, the test over the seeds and the property tests share these functions.

use proto::{
    addr::{
        Address,
        PathAddress, //
    },
    export_policy::{
        self,
        Query,
        Start,
        Subject, //
    },
    map_options,
    name::{
        Name,
        SessName, //
    },
    reservation_state::{
        self,
        SavedState, //
    },
    rnbd::{
        self,
        AccessMode,
        BlockOp,
        IoError, //
    },
    rtrs::{
        request::{
            Direction,
            MAX_MSG_SIZE, //
        },
        ChunkLayout,
        ConnAccept,
        ConnReject,
        ConnReq,
        Imm,
        InfoReq,
        InfoRsp,
        ReadMsg,
        Request,
        RkeyRsp,
        WriteMsg,
        MAX_HDR_SIZE, //
    },
    search_path,
    sysfs_name,
    PATH_MAX, //
};

mod auth;
mod responses;

pub use auth::{
    auth_keys,
    auth_req,
    auth_rsp, //
};

/// A function for one parser.
#[allow(dead_code)] // As below.
pub type Check = fn(&[u8]);

/// The functions and their names, which are also the names of the fuzz targets and of the folders
/// with their seeds.
#[allow(dead_code)] // A fuzz target uses one of the functions only.
pub const ALL: &[(&str, Check)] = &[
    ("addr", addr),
    ("auth_keys", auth_keys),
    ("auth_req", auth_req),
    ("auth_rsp", auth_rsp),
    ("conn_accept", conn_accept),
    ("conn_reject", conn_reject),
    ("conn_req", conn_req),
    ("export_policy", export_policy),
    ("imm", imm),
    ("info_req", info_req),
    ("info_rsp", info_rsp),
    ("map_options", map_options),
    ("reservation_state", reservation_state),
    ("rkey_rsp", rkey_rsp),
    ("rnbd_request", rnbd_request),
    ("rnbd_response", rnbd_response),
    ("search_path", search_path),
    ("server_request", server_request),
];

/// Checks text that may go to a log.
fn check_message(message: &str) {
    assert!(!message.is_empty());
    assert!(message.chars().all(|c| c == ' ' || c.is_ascii_graphic()));
}

/// The leading bytes as a number; missing bytes are zero.
fn take_u32(data: &mut &[u8]) -> u32 {
    let (head, rest) = data.split_at(data.len().min(4));
    *data = rest;
    let mut bytes = [0; 4];
    bytes[..head.len()].copy_from_slice(head);
    u32::from_le_bytes(bytes)
}

/// A layout from the leading bytes; `None` if they do not make a layout.
fn take_layout(data: &mut &[u8]) -> Option<ChunkLayout> {
    let queue_depth = take_u32(data);
    let chunk_size = take_u32(data);
    ChunkLayout::new(queue_depth, chunk_size)
        .map_err(|error| check_message(error.message().as_str()))
        .ok()
}

/// A path's address, as in `map_device` and `add_path`.
pub fn addr(data: &[u8]) {
    match PathAddress::parse(data) {
        Ok(path) => {
            let text = path.to_text();
            assert!(!text.is_cut());
            let again = PathAddress::parse(text.as_bytes()).expect("own text");
            assert!(again.dst.same_as(&path.dst));
            match (again.src, path.src) {
                (None, None) => (),
                (Some(a), Some(b)) => assert!(a.same_as(&b)),
                _ => panic!("source lost"),
            }
            assert_eq!(again.to_text(), text);
        }
        Err(error) => check_message(error.message().as_str()),
    }
    if let Ok(Address::V6 { scope, .. }) = Address::parse(data) {
        assert!(scope.as_bytes().iter().all(u8::is_ascii_graphic));
        let _ = scope.index();
    }
}

/// A client's connection request.
pub fn conn_req(data: &[u8]) {
    match ConnReq::parse(data) {
        Ok(req) => {
            assert!(req.cid < req.cid_num && req.cid_num <= 4096);
            assert_eq!(ConnReq::parse(&req.to_bytes()), Ok(req));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A server's response to an accepted connection.
pub fn conn_accept(data: &[u8]) {
    match ConnAccept::parse(data) {
        Ok(accept) => {
            let layout = accept.layout().expect("checked by parse");
            assert!(layout.total_size() <= 1 << 28);
            assert_eq!(ConnAccept::parse(&accept.to_bytes()), Ok(accept));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A server's response to a refused connection.
pub fn conn_reject(data: &[u8]) {
    match ConnReject::parse(data) {
        Ok(reject) => {
            assert!((-4095..0).contains(&reject.errno.to_kernel()));
            assert_eq!(ConnReject::parse(&reject.to_bytes()), Ok(reject));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// An immediate: queue depth, chunk size, value.
pub fn imm(mut data: &[u8]) {
    let layout = take_layout(&mut data);
    let value = take_u32(&mut data);
    let imm = Imm::decode(value);
    assert_eq!(Imm::decode(imm.encode()), imm);
    match imm {
        // The payload of heartbeats has no meaning.
        Imm::HbMsg | Imm::HbAck => (),
        _ => assert_eq!(imm.encode(), value),
    }
    let (Some(layout), Imm::IoReq { payload }) = (layout, imm) else {
        return;
    };
    match layout.decode(payload) {
        Ok((msg_id, off)) => {
            assert!(msg_id < layout.queue_depth() && off < layout.chunk_size());
            assert_eq!(layout.encode(msg_id, off), Some(payload));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A client's info request, which names the session.
pub fn info_req(data: &[u8]) {
    match InfoReq::parse(data) {
        Ok(req) => {
            check_name(&req.sessname);
            assert!(!req.sessname.as_bytes().contains(&b'/'));
            assert_eq!(InfoReq::parse(&req.to_bytes()), Ok(req));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A server's chunks: queue depth, chunk size, message.
pub fn info_rsp(mut data: &[u8]) {
    let Some(layout) = take_layout(&mut data) else {
        return;
    };
    match InfoRsp::parse(data, &layout) {
        Ok(rsp) => {
            let bufs = rsp.remote_bufs().count();
            assert_eq!(bufs, layout.queue_depth() as usize);
            let size = u64::from(layout.chunk_size());
            assert!(rsp
                .remote_bufs()
                .all(|buf| buf.addr.checked_add(size).is_some()));
            let descs: Vec<_> = rsp.descs().collect();
            let mut again = vec![0; InfoRsp::size(descs.len() as u16)];
            InfoRsp::write(&mut again, descs.iter().copied()).expect("room");
            let again = InfoRsp::parse(&again, &layout).expect("own message");
            assert!(again.descs().eq(descs));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// The line written to `map_device`.
pub fn map_options(data: &[u8]) {
    const CPUS: u32 = 8;
    match map_options::parse(data, CPUS) {
        Ok(options) => {
            check_name(&options.sessname);
            check_name(&options.device_path);
            assert!(options.nr_poll_queues <= CPUS);
            assert!(options.paths().count() <= map_options::MAX_PATHS);
            let mut link = [0xff; sysfs_name::DEVICE_LINK_LEN];
            let link = sysfs_name::device_link(&options.device_path, &options.sessname, &mut link);
            assert!(!link.to_bytes().contains(&b'/'));
        }
        Err(error) => {
            check_message(error.message().as_str());
            assert!(error.errno().to_kernel() < 0);
        }
    }
}

/// The state of the reservations of a disk whose name is `naa.5000`.
pub fn reservation_state(data: &[u8]) {
    let Some(disk) = rnbd::Wwid::from_text(b"naa.5000") else {
        return;
    };
    match SavedState::parse(data, &disk) {
        Ok(saved) => {
            let mut table = proto::reservation::Table::new();
            saved
                .restore(&mut table, saved.registrants())
                .expect("a table");
            let mut bytes = vec![0; data.len()];
            assert!(reservation_state::write(
                &table,
                &disk,
                |machine| machine,
                &mut bytes
            ));
            assert_eq!(bytes, data);
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A fresh key: queue depth, chunk size, message.
pub fn rkey_rsp(mut data: &[u8]) {
    let Some(layout) = take_layout(&mut data) else {
        return;
    };
    match RkeyRsp::parse(data, &layout) {
        Ok(rsp) => {
            assert!(u32::from(rsp.buf_id) < layout.queue_depth());
            assert_eq!(RkeyRsp::parse(&rsp.to_bytes(), &layout), Ok(rsp));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A client's RNBD message: direction, size of the data, message.
pub fn rnbd_request(mut data: &[u8]) {
    let is_read = take_u32(&mut data) & 1 != 0;
    let data_len = take_u32(&mut data);
    let parse = |bytes: &[u8]| rnbd::Request::parse(bytes, rnbd::KNOWN_FEATURES);
    let request = match parse(data) {
        Ok(request) => request,
        Err(error) => return check_message(error.message().as_str()),
    };
    let without = rnbd::Request::parse(data, 0);
    let is_extension = matches!(
        request,
        rnbd::Request::News(_)
            | rnbd::Request::Discover(_)
            | rnbd::Request::Host(_)
            | rnbd::Request::Reservation(_)
    );
    assert_eq!(without.is_err(), is_extension);
    match &request {
        rnbd::Request::SessInfo(info) => {
            let answer = info.answer(rnbd::FEATURE_NEWS);
            assert!(answer.ver <= 2 && answer.features() & !info.features() == 0);
            assert_eq!(info.parse_rsp(&answer.to_rsp_bytes()), Ok(answer));
        }
        rnbd::Request::Open(open) => {
            check_name(&open.dev_name);
            assert_eq!(parse(&open.to_bytes()), Ok(request));
        }
        rnbd::Request::Close(close) => {
            assert_eq!(parse(&close.to_bytes()), Ok(request));
        }
        rnbd::Request::News(news) => {
            assert_eq!(parse(&news.to_bytes()), Ok(request));
        }
        rnbd::Request::Discover(discover) => {
            assert_eq!(parse(&discover.to_bytes()), Ok(request));
        }
        rnbd::Request::Host(host) => {
            assert_eq!(parse(&host.to_bytes()), Ok(request));
            assert_eq!(
                rnbd::Host::from_text(host.to_string().as_bytes()),
                Some(*host)
            );
        }
        rnbd::Request::Reservation(message) => {
            assert_eq!(parse(&message.to_bytes()), Ok(request));
            match message.command() {
                Ok(Some(command)) => check_command(message, &command),
                Ok(None) => {}
                Err(error) => check_message(error.message().as_str()),
            }
        }
        rnbd::Request::Io(io) => {
            assert_eq!(parse(&io.to_bytes()), Ok(request));
            let op = io.block_op(is_read, data_len);
            if io.is_plain(is_read, data_len) {
                let whole = !matches!(op, Ok(BlockOp::Flush | BlockOp::Range { .. }));
                assert!(whole && (op.is_ok() || matches!(op, Err(IoError::Range { .. }))));
            }
            match op {
                Ok(op) => check_block_op(op, is_read, data_len),
                Err(error) => check_message(error.message().as_str()),
            }
        }
    }
}

/// Checks that a command is the same after another way over the wire, and that it keeps the
/// invariants of a table.
fn check_command(message: &rnbd::Reservation, command: &rnbd::Command) {
    let again = rnbd::Reservation::of(message.device_id, message.sequence, command, false);
    assert_eq!(again.command(), Ok(Some(*command)));
    let mut table = proto::reservation::Table::new();
    for who in 0..3u8 {
        let result = table.execute(&who, command);
        if let Err(refused) = result {
            check_message(refused.message().as_str());
        }
        assert!(table.registrants().all(|(_, key)| key != 0));
        assert!(table.reservation().is_none() || !table.is_empty());
    }
}

fn check_block_op(op: BlockOp, is_read: bool, data_len: u32) {
    let (sector, len) = match op {
        BlockOp::Read { sector, len } => {
            assert!(is_read && len == data_len);
            (sector, len)
        }
        BlockOp::Write { sector, len } => {
            assert!(!is_read && len == data_len);
            (sector, len)
        }
        BlockOp::Range { sector, len, .. } => {
            assert_eq!(data_len, 0);
            (sector, len)
        }
        BlockOp::Flush => return assert_eq!(data_len, 0),
    };
    assert!(len > 0 && len % 512 == 0);
    assert!(sector.checked_add(u64::from(len / 512)).is_some());
}

/// A server's RNBD response, parsed as each kind of response.
pub fn rnbd_response(data: &[u8]) {
    let asked = rnbd::SessInfo::new(
        rnbd::FEATURE_NEWS | rnbd::FEATURE_IDENTITY,
        0x0123_4567_89ab_cdef,
    );
    match asked.parse_rsp(data) {
        Ok(info) => {
            assert_eq!(info.features() & !asked.features(), 0);
            assert_eq!(asked.parse_rsp(&info.to_rsp_bytes()), Ok(info));
        }
        Err(error) => check_message(error.message().as_str()),
    }
    responses::news(data);
    responses::discover(data);
    responses::reservation(data);
    match rnbd::OpenRsp::parse(data, rnbd::KNOWN_FEATURES) {
        Ok(rsp) => {
            assert!(rsp.logical_block_size.is_power_of_two());
            assert!(rsp.logical_block_size >= 512);
            assert!(rsp.physical_block_size.is_power_of_two());
            assert!(rsp.physical_block_size >= rsp.logical_block_size);
            assert!(rsp.nsectors.checked_mul(512).is_some());
            let bytes = rsp.to_bytes().expect("block size from 16 bits");
            assert_eq!(rnbd::OpenRsp::parse(&bytes, rnbd::KNOWN_FEATURES), Ok(rsp));
        }
        Err(error) => check_message(error.message().as_str()),
    }
    match rnbd::Identity::parse(data) {
        Ok(identity) => {
            let name = identity.wwid.to_string();
            assert_eq!(name.as_bytes(), identity.wwid.as_bytes());
            assert!(!name.contains(|character: char| "/\\ \0\n".contains(character)));
            assert_eq!(rnbd::Identity::parse(&identity.to_bytes()), Ok(identity));
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A policy: session, NUL, address, NUL, device, NUL, the text that is written to the server.
pub fn export_policy(data: &[u8]) {
    let mut parts = data.splitn(4, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or(&[]);
    let (session, client, device, written) = (part(), part(), part(), part());
    let text = match Start::parse(written) {
        Ok(Start::Clear) => return,
        Ok(Start::Policy { len, text }) => {
            assert!(text.len() <= len && len <= export_policy::MAX_LEN);
            text
        }
        Err(error) => return check_message(error.message().as_str()),
    };
    let rules = export_policy::check(text);
    if let Err(error) = &rules {
        check_message(error.message().as_str());
        assert!(error.line <= 1 + text.split(|&byte| byte == b'\n').count());
    }
    let Ok(session) = SessName::new(session) else {
        return;
    };
    let client = Address::parse(client).ok();
    for mode in [AccessMode::Ro, AccessMode::Rw, AccessMode::Migration] {
        let subject = Subject {
            session: &session,
            client_id: None,
            client,
        };
        let query = Query {
            subject,
            device,
            mode,
        };
        let allowed = export_policy::allows(text, &query);
        assert!(!allowed || rules != Ok(0));
        // The early checks do not refuse a session that may open a device.
        assert!(!allowed || export_policy::is_about(text, &subject));
        assert!(!allowed || export_policy::admits(text, client));
        // Each line works on its own.
        let each = text
            .split(|&byte| byte == b'\n')
            .any(|line| export_policy::allows(line, &query));
        assert_eq!(allowed, each);
    }
}

/// A device below the search path: the path, NUL, session, NUL, device.
pub fn search_path(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or(&[]);
    let search = match search_path::parse_param(part()) {
        Ok(search) => search,
        Err(error) => return check_message(error.message().as_str()),
    };
    let (Ok(sess), Ok(dev)) = (SessName::new(part()), Name::new(part())) else {
        return;
    };
    let mut out = Box::new([0xff; PATH_MAX]);
    match search_path::full_path(search, &sess, &dev, &mut out) {
        Ok(path) => {
            let path = path.to_bytes();
            assert!(path.len() < PATH_MAX);
            assert!(!path.windows(2).any(|pair| pair == b"//"));
            let below = path.strip_prefix(squeeze(search).as_slice());
            if let Some(below) = below.filter(|_| !contains(search, b"%SESSNAME%")) {
                assert!(!contains(below, b".."), "out of the search path");
            }
        }
        Err(error) => check_message(error.message().as_str()),
    }
}

fn squeeze(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    path.dedup_by(|a, b| *a == b'/' && *b == b'/');
    path
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A request in a chunk: chunk size, offset, the copy of the message.
pub fn server_request(mut data: &[u8]) {
    let chunk_size = take_u32(&mut data);
    let off = take_u32(&mut data);
    let range = Request::msg_range(chunk_size, off);
    assert!(range.start <= range.end && range.end <= chunk_size as usize);
    let parsed = Request::parse(chunk_size, off, data);
    if let (Some(msg), true) = (data.first_chunk(), range.len() == MAX_MSG_SIZE) {
        match Request::parse_usual(off, msg) {
            Some(usual) => assert_eq!(parsed, Ok(usual)),
            // A request that `parse_usual` leaves to `parse` has neither a target nor data.
            None => assert!(parsed.is_err() || parsed.is_ok_and(|req| req.transfer_len() == 0)),
        }
    }
    let req = match parsed {
        Ok(req) => req,
        Err(error) => {
            check_message(error.message().as_str());
            return assert!(error.errno().to_kernel() < 0);
        }
    };
    assert!(off < chunk_size);
    assert_eq!(req.data_len() + req.usr_len(), off);
    assert!(req.usr_len() <= MAX_HDR_SIZE);
    assert_eq!(
        req.usr_range(),
        req.data_len() as usize..off as usize,
        "between data and message"
    );
    let usr_len = u16::try_from(req.usr_len()).expect("16 bits on the wire");
    let mut again = [0; 24];
    let size = match req.direction() {
        Direction::Read { target, need_inval } => {
            assert!(!need_inval || target.is_some());
            assert!(target.is_none_or(|desc| (1..=req.data_len()).contains(&desc.len)));
            let msg = ReadMsg {
                usr_len,
                need_inval,
                desc: target,
            };
            msg.write(&mut again).expect("room")
        }
        Direction::Write => {
            again[..4].copy_from_slice(&WriteMsg { usr_len }.to_bytes());
            4
        }
    };
    assert!(size <= range.len(), "the message ends in the chunk");
    assert_eq!(Request::parse(chunk_size, off, &again[..size]), Ok(req));
}

fn check_name(name: &Name) {
    let bytes = name.as_bytes();
    assert!((1..=Name::MAX_LEN).contains(&bytes.len()));
    assert!(!bytes.iter().any(u8::is_ascii_control));
    assert_eq!(name.as_cstr().to_bytes(), bytes);
}
