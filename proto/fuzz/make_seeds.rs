// SPDX-License-Identifier: GPL-2.0

//! Writes the seeds of the fuzz targets: `cargo run --example make_seeds`.
//!
//! The seeds are a valid input of each kind, and the edges of the checks. Inputs that a fuzzer
//! finds later are added by hand.

use std::{
    fs,
    io,
    path::{
        Path,
        PathBuf, //
    }, //
};

use proto::{
    auth_keys::{
        payload,
        Key,
        Secret, //
    },
    client_id::ClientId,
    name::{
        Name,
        SessName, //
    },
    reservation::Table,
    reservation_state::{
        self,
        MachineName, //
    },
    rnbd::{
        self,
        AccessMode,
        CachePolicy,
        IoFlags,
        Op,
        Rw, //
    },
    rtrs::{
        auth::{
            AuthReq,
            AuthRsp, //
        },
        ConnAccept,
        ConnReject,
        ConnReq,
        Imm,
        InfoReq,
        InfoRsp,
        ReadMsg,
        RkeyRsp,
        SgDesc,
        WriteMsg, //
    },
    Errno, //
};

const CHUNK: u32 = 131_072;
const DEPTH: u32 = 512;

struct Corpus(PathBuf);

impl Corpus {
    fn put(&self, target: &str, seed: &str, parts: &[&[u8]]) -> io::Result<()> {
        let dir = self.0.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(seed), parts.concat())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus"))
}

/// Writes all seeds into `folder`, which gets a folder for each target.
pub fn write(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Corpus(folder.to_owned());
    connection(&corpus)?;
    requests(&corpus)?;
    block_messages(&corpus)?;
    text(&corpus)?;
    states(&corpus)?;
    Ok(())
}

fn connection(corpus: &Corpus) -> Result<(), Box<dyn std::error::Error>> {
    let req = ConnReq {
        cid: 1,
        cid_num: 9,
        recon_cnt: 1,
        sess_uuid: *b"0123456789abcdef",
        paths_uuid: *b"fedcba9876543210",
        first_conn: true,
        features: 0,
        given_up: 0,
    };
    corpus.put("conn_req", "valid", &[&req.to_bytes()])?;
    let last = ConnReq {
        cid: 4095,
        cid_num: 4096,
        features: u32::MAX,
        ..req
    };
    corpus.put("conn_req", "last_connection", &[&last.to_bytes()])?;

    let accept = ConnAccept {
        queue_depth: DEPTH as u16,
        max_io_size: CHUNK - 4096,
        max_hdr_size: 4096,
        new_rkey: true,
        features: 0,
    };
    corpus.put("conn_accept", "valid", &[&accept.to_bytes()])?;
    let wraps = ConnAccept {
        max_io_size: u32::MAX,
        ..accept
    };
    corpus.put("conn_accept", "sum_wraps", &[&wraps.to_bytes()])?;
    let reject = ConnReject {
        errno: Errno::EBUSY,
    };
    corpus.put("conn_accept", "refused", &[&reject.to_bytes()])?;
    corpus.put("conn_reject", "valid", &[&reject.to_bytes()])?;
    corpus.put("conn_reject", "no_errno", &[&accept.to_bytes()])?;

    let proof = AuthReq {
        key: 7,
        nonce: [1; 32],
        client: ClientId::new(b"web1")?,
        code: [2; 32],
    };
    corpus.put("auth_req", "valid", &[&proof.to_bytes()])?;
    corpus.put(
        "auth_rsp",
        "accepted",
        &[&AuthRsp::Accepted([3; 32]).to_bytes()],
    )?;
    corpus.put(
        "auth_rsp",
        "refused",
        &[&AuthRsp::Refused(Errno::EKEYREJECTED).to_bytes()],
    )?;
    let key = Key {
        number: 7,
        secret: Secret::new([4; Secret::LEN]),
    };
    let mut text = String::new();
    key.write(&mut text)?;
    corpus.put("auth_keys", "key", &[text.as_bytes()])?;
    corpus.put("auth_keys", "client_id", &[b"nqn.2026-11:web1@x_y-z"])?;
    let mut keys = Vec::new();
    payload(&proof.client, &[key], |piece| keys.extend_from_slice(piece))?;
    corpus.put("auth_keys", "keyring", &[&keys])?;

    let info = InfoReq {
        sessname: SessName::new(b"node-1")?,
    };
    corpus.put("info_req", "valid", &[&info.to_bytes()])?;
    let longest = InfoReq {
        sessname: SessName::new(&[b'x'; 254])?,
    };
    corpus.put("info_req", "longest", &[&longest.to_bytes()])?;

    let (depth, size) = (4u32, 8192u32);
    let layout = [depth.to_le_bytes(), size.to_le_bytes()].concat();
    for descs in [1, 2, 4u16] {
        let len = depth / u32::from(descs) * size;
        let mut bytes = vec![0; InfoRsp::size(descs)];
        let list = (0..descs).map(|i| SgDesc {
            addr: 0xffff_8880_0000_0000 + u64::from(i) * 0x10_0000,
            key: 0x1000 + u32::from(i),
            len,
        });
        InfoRsp::write(&mut bytes, list)?;
        corpus.put("info_rsp", &format!("{descs}_descs"), &[&layout, &bytes])?;
    }
    Ok(())
}

fn requests(corpus: &Corpus) -> Result<(), Box<dyn std::error::Error>> {
    let layout = [DEPTH.to_le_bytes(), CHUNK.to_le_bytes()].concat();
    let values = [
        ("io_req", (511 << 19) | 4128),
        ("outside", (511 << 19) | CHUNK),
        ("hb_msg", Imm::HbMsg.encode()),
        ("hb_ack", Imm::HbAck.encode()),
        ("path_end", Imm::PathEnd { path: 0x0123_4567 }.encode()),
        ("path_ended", Imm::PathEnded { path: 0x0123_4567 }.encode()),
        (
            "doorbell",
            Imm::Doorbell {
                number: 0x0123_4567,
            }
            .encode(),
        ),
        ("unknown", 0xf000_0001),
        (
            "io_rsp",
            Imm::IoRsp {
                msg_id: 511,
                errno: -5,
                invalidated: true,
            }
            .encode(),
        ),
    ];
    for (seed, value) in values {
        corpus.put("imm", seed, &[&layout, &value.to_le_bytes()])?;
    }
    for (seed, buf_id) in [("valid", 511), ("outside", 512)] {
        let rsp = RkeyRsp {
            buf_id,
            rkey: 0x1234,
        };
        corpus.put("rkey_rsp", seed, &[&layout, &rsp.to_bytes()])?;
    }

    let frame = |off: u32| [CHUNK.to_le_bytes(), off.to_le_bytes()].concat();
    let write = WriteMsg { usr_len: 32 }.to_bytes();
    let put = |seed, off, msg: &[u8]| corpus.put("server_request", seed, &[&frame(off), msg]);
    put("write", 4096 + 32, &write)?;
    put("write_without_data", 32, &write)?;
    put("usr_len_beyond_offset", 31, &write)?;
    put("write_past_chunk", CHUNK - 3, &write)?;
    for (seed, len) in [
        ("read", Some(4096)),
        ("target_too_long", Some(4097)),
        ("flush", None),
    ] {
        let mut bytes = [0; ReadMsg::MAX_SIZE];
        let msg = ReadMsg {
            usr_len: 32,
            need_inval: true,
            desc: len.map(|len| SgDesc {
                addr: 0xffff_8880_1234_5000,
                key: 0x1234,
                len,
            }),
        };
        let size = msg.write(&mut bytes)?;
        put(seed, 4096 + 32, &bytes[..size])?;
    }
    Ok(())
}

fn block_messages(corpus: &Corpus) -> Result<(), Box<dyn std::error::Error>> {
    let put = |seed: &str, is_read: bool, data_len: u32, msg: &[u8]| {
        let frame = [u32::from(is_read).to_le_bytes(), data_len.to_le_bytes()].concat();
        corpus.put("rnbd_request", seed, &[&frame, msg])
    };
    let info = rnbd::SessInfo::new(rnbd::FEATURE_NEWS, 0x0123_4567_89ab_cdef);
    put("sess_info_extended", true, 36, &info.to_bytes())?;
    let c_info = rnbd::SessInfo {
        ver: 2,
        extension: None,
    };
    put("sess_info", true, 36, &c_info.to_bytes())?;
    let news = rnbd::News {
        since: 1,
        first_device_id: 1,
    };
    put("news", true, 4048, &news.to_bytes())?;
    let discover = rnbd::Discover {
        after: Some(Name::new(b"dev/sda")?),
    };
    put("discover", true, 4096, &discover.to_bytes())?;
    let host = rnbd::Host::from_text(b"01234567-89ab-cdef-0123-456789abcdef").ok_or("no UUID")?;
    put("host", false, 0, &host.to_bytes())?;
    let preempt = rnbd::Command::Preempt {
        key: 1,
        victim: 2,
        kind: rnbd::Kind::WriteExclusive,
    };
    let preempt = rnbd::Reservation::of(1, 7, &preempt, true);
    put("reservation", false, 0, &preempt.to_bytes())?;
    let report = rnbd::Reservation::report(1).to_bytes();
    put("reservation_report", true, 536, &report)?;
    let open = rnbd::Open {
        access_mode: AccessMode::Migration,
        io_mode: Some(rnbd::IoMode::Buffered),
        dev_name: Name::new(b"/dev/sda")?,
    };
    put("open", true, 56, &open.to_bytes())?;
    put("close", false, 0, &rnbd::Close { device_id: 1 }.to_bytes())?;
    let ops = [
        ("read", Op::Read, true, 4096, 4096),
        ("write", Op::Write, false, 4096, 4096),
        ("write_without_data", Op::Write, false, 4096, 0),
        ("flush", Op::Flush, true, 0, 0),
        ("discard", Op::Discard, false, 1 << 20, 0),
        ("secure_erase", Op::SecureErase, false, 1 << 20, 0),
        ("write_zeroes", Op::WriteZeroes, false, 1 << 20, 0),
    ];
    for (seed, op, is_read, bi_size, data_len) in ops {
        let io = rnbd::Io {
            device_id: 1,
            sector: 8,
            rw: Rw {
                op,
                flags: IoFlags::SYNC | IoFlags::FUA,
            },
            bi_size,
            prio: 4,
        };
        put(seed, is_read, data_len, &io.to_bytes())?;
        put(
            &format!("{seed}_without_prio"),
            is_read,
            data_len,
            &io.to_bytes()[..24],
        )?;
    }

    let rsp = rnbd::OpenRsp {
        device_id: 1,
        nsectors: 1 << 32,
        max_hw_sectors: 2560,
        max_write_zeroes_sectors: 65535,
        max_discard_sectors: 1 << 22,
        discard_granularity: 512,
        discard_alignment: 0,
        physical_block_size: 4096,
        logical_block_size: 512,
        max_segments: 128,
        secure_discard: true,
        cache_policy: CachePolicy {
            fua: true,
            writeback: true,
        },
        io_mode: None,
    };
    corpus.put("rnbd_response", "open", &[&rsp.to_bytes()?])?;
    corpus.put("rnbd_response", "sess_info", &[&c_info.to_rsp_bytes()])?;
    corpus.put(
        "rnbd_response",
        "sess_info_extended",
        &[&info.to_rsp_bytes()],
    )?;
    for (seed, count, more, first, drain_ms) in [
        ("news", 2, true, 1, None),
        ("news_of_last", 1, true, u32::MAX, None),
        ("news_of_drain", 1, false, 1, Some(600_000)),
    ] {
        let header = rnbd::NewsHeader {
            sequence: 7,
            count,
            more,
            drain_ms,
        };
        let records = (0..u32::from(count)).flat_map(|index| {
            rnbd::DeviceNews {
                device_id: first + index,
                read_only: true,
                nsectors: 1 << 32,
                physical_block_size: 4096,
                logical_block_size: 512,
                ..rnbd::DeviceNews::default()
            }
            .to_bytes()
        });
        let records: Vec<u8> = records.collect();
        corpus.put("rnbd_response", seed, &[&header.to_bytes(), &records])?;
    }
    let mut room = [0; rnbd::DiscoverRsp::MAX_SIZE];
    let mut writer = rnbd::DiscoverRspWriter::new(&mut room).ok_or("no room")?;
    for path in [&b"dev/sda"[..], b"dev/sda1", b"images/a b.img"] {
        writer.push(&rnbd::FoundDisk {
            path,
            wwid: rnbd::Wwid::from_text(b"naa.5000c500").ok_or("no name")?,
            nsectors: 1 << 32,
            logical_block_size: 4096,
            sessions: 2,
            modes: rnbd::Modes::NONE.with(AccessMode::Ro),
            is_file: true,
            is_own: true,
            is_used: true,
        });
    }
    let len = writer.finish(true);
    corpus.put("rnbd_response", "discover", &[&room[..len]])?;
    let held = Some((rnbd::Kind::ExclusiveAccess, 1));
    let report = rnbd::Report::new(3, held, [1, 2].into_iter());
    corpus.put("rnbd_response", "reservation", &[&report.to_bytes()])?;
    corpus.put("rnbd_response", "nobody_filled", &[&[0; 56]])?;
    Ok(())
}

fn text(corpus: &Corpus) -> Result<(), Box<dyn std::error::Error>> {
    let paths = [
        ("v4", "ip:192.168.122.1"),
        ("v6", "ip:fe80::200:5aee:feaa:20a2%eth0"),
        ("mapped", "ip:::ffff:10.0.0.1"),
        ("isatap", "ip:fe80::5efe:10.0.0.1"),
        ("gid", "gid:fe80:0000:0000:0000:0002:c903:0045:e3c1"),
        ("pair", "ip:10.0.0.1@ip:10.0.0.2"),
        ("comma", "ip:10.0.0.1,gid:fe80::1"),
        ("bad", "ip:10.0.0.1@tcp:x"),
    ];
    for (seed, text) in paths {
        corpus.put("addr", seed, &[text.as_bytes()])?;
    }

    let lines = [
        ("short", "sessname=s device_path=/dev/sda"),
        (
            "full",
            "dest_port=0x4d2 sessname=node-1 path=ip:10.0.0.1@ip:10.0.0.2 path=ip:fe80::2%eth0 \
             device_path=/dev/vdb access_mode=migration io_mode=buffered nr_poll_queues=-1\n",
        ),
        ("doubled", "sessname=s sessname=s device_path=d"),
        ("unknown", "pth=x"),
        ("bad_io_mode", "io_mode=fileio"),
        ("bad_port", "dest_port=65536"),
    ];
    for (seed, line) in lines {
        corpus.put("map_options", seed, &[line.as_bytes()])?;
    }

    let policies = [
        (
            "full",
            "web1\0ip:192.0.2.7\0/dev/vg0/data 1\0policy 165\n# comment\n\n\
             allow session=* client=ip:192.0.2.0/24 device=/dev/vg0/**\\0401 mode=ro,rw\n\
             \tallow session=web* client=gid:fe80::/10 device=/dev/disk/by-id/* mode=migration\n",
        ),
        ("clear", "s\0ip:::1\0/dev/vdb\0clear\n"),
        (
            "host_bits",
            "s\0x\0/dev/vdb\0policy 60\nallow session=s client=ip:10.0.0.1/8 device=/x mode=rw\n",
        ),
        (
            "mapped",
            "s\0ip:::ffff:10.1.2.3\0/dev/vdb\0policy 99\n\
             allow mode=ro device=/dev/* client=ip:::ffff:10.0.0.0/104 session=s\n",
        ),
    ];
    for (seed, text) in policies {
        corpus.put("export_policy", seed, &[text.as_bytes()])?;
    }

    let search = [
        ("root", "/\0node-1\0/dev/sda"),
        ("session", "/srv/%SESSNAME%/x\0node-1\0//a//b"),
        ("out", "/srv\n\0s\0../x"),
    ];
    for (seed, text) in search {
        corpus.put("search_path", seed, &[text.as_bytes()])?;
    }
    Ok(())
}

fn states(corpus: &Corpus) -> Result<(), Box<dyn std::error::Error>> {
    let disk = rnbd::Wwid::from_text(b"naa.5000").ok_or("no name")?;
    let put = |seed: &str, table: &Table<MachineName>| {
        let mut bytes = vec![0; reservation_state::size(table.registrants().count())];
        reservation_state::write(table, &disk, |machine| machine, &mut bytes);
        corpus.put("reservation_state", seed, &[&bytes])
    };
    put("empty", &Table::new())?;
    let host = rnbd::Host::from_text(b"01234567-89ab-cdef-0123-456789abcdef").ok_or("no UUID")?;
    let host = MachineName::Host(host);
    let registrants = [
        (host, 1),
        (MachineName::Session(SessName::new(b"node-1")?), 2),
    ];
    let held = Some((rnbd::Kind::ExclusiveAccess, 1));
    let mut reserved = Table::new();
    reserved
        .restore(3, held, registrants.into_iter())
        .ok_or("no table")?;
    put("reserved", &reserved)?;
    Ok(())
}
