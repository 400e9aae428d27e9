// SPDX-License-Identifier: GPL-2.0

//! Properties of values and inputs made at random.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use proto::{
    addr::{
        Address,
        PathAddress,
        Scope, //
    },
    map_options,
    name::{
        Name,
        SessName, //
    },
    rnbd::{
        self,
        AccessMode,
        CachePolicy,
        IoFlags,
        IoMode,
        Op, //
    },
    rtrs::{
        request::Direction,
        ChunkLayout,
        ConnAccept,
        ConnReq,
        Imm,
        InfoReq,
        InfoRsp,
        ReadMsg,
        Request,
        SgDesc, //
    }, //
};

use crate::checks;

fn sg_desc() -> impl Strategy<Value = SgDesc> {
    any::<(u64, u32, u32)>().prop_map(|(addr, key, len)| SgDesc { addr, key, len })
}

fn name() -> impl Strategy<Value = Name> {
    vec(
        any::<u8>().prop_filter("no control character", |b| !b.is_ascii_control()),
        1..=254,
    )
    .prop_map(|bytes| Name::new(&bytes).unwrap())
}

fn sessname() -> impl Strategy<Value = SessName> {
    "[a-zA-Z0-9@:!_-]{1,254}".prop_map(|name| SessName::new(name.as_bytes()).unwrap())
}

fn layout() -> impl Strategy<Value = ChunkLayout> {
    (1..=65535u32, 0..=28u32).prop_flat_map(|(queue_depth, bits)| {
        let mem_bits = ChunkLayout::new(queue_depth, 1).unwrap().mem_bits();
        (1..=1u32 << bits.min(mem_bits))
            .prop_map(move |size| ChunkLayout::new(queue_depth, size).unwrap())
    })
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(Address::V4),
        any::<[u8; 16]>().prop_map(|addr| Address::V6 {
            addr,
            scope: Scope::NONE
        }),
        // Many zeroes, so that the text leaves words out.
        vec(select(&[0u8, 0, 0, 1, 0xff, 0x5e, 0xfe][..]), 16).prop_map(|addr| Address::V6 {
            addr: addr.try_into().unwrap(),
            scope: Scope::NONE
        }),
        any::<[u8; 16]>().prop_map(Address::Gid),
    ]
}

proptest! {
    #[test]
    fn no_input_breaks_a_parser(data in vec(any::<u8>(), 0..600)) {
        for (_, check) in checks::ALL {
            check(&data);
        }
    }

    #[test]
    fn no_line_breaks_map_options(
        words in vec(
            select(&[
                "sessname=", "device_path=", "path=", "dest_port=", "access_mode=",
                "nr_poll_queues=", "s", "/dev/sda", "ip:1.2.3.4", "gid:fe80::1", "ip:fe80::1%",
                "@", ",", "rw", "migration", "1234", "-1", "0x", " ", " ", " ", "\n", "\0", "%",
            ][..]),
            0..30,
        )
    ) {
        checks::map_options(words.concat().as_bytes());
        checks::addr(words.concat().as_bytes());
    }

    #[test]
    fn conn_req_comes_back(
        cid_num in 1..=4096u16,
        cid in any::<prop::sample::Index>(),
        recon_cnt: u16,
        sess_uuid: [u8; 16],
        paths_uuid: [u8; 16],
        first_conn: bool,
        features: u32,
        given_up: u32,
    ) {
        let cid = cid.index(cid_num.into()) as u16;
        let req = ConnReq {
            cid, cid_num, recon_cnt, sess_uuid, paths_uuid, first_conn, features, given_up,
        };
        prop_assert_eq!(ConnReq::parse(&req.to_bytes()), Ok(req));
    }

    #[test]
    fn conn_accept_is_taken_exactly_if_its_chunks_fit(
        queue_depth: u16,
        max_io_size in prop_oneof![any::<u32>(), 0..1u32 << 22],
        max_hdr_size in prop_oneof![any::<u32>(), 0..10_000u32],
        new_rkey: bool,
        features: u32,
    ) {
        let accept = ConnAccept { queue_depth, max_io_size, max_hdr_size, new_rkey, features };
        let result = ConnAccept::parse(&accept.to_bytes());
        let chunk = u64::from(max_io_size) + u64::from(max_hdr_size);
        let fits = queue_depth > 0 && max_io_size > 0 && max_hdr_size > 0 && {
            let msg_ids = u64::from(queue_depth).next_power_of_two();
            chunk.next_power_of_two() * msg_ids <= 1 << 28
        };
        prop_assert_eq!(result.is_ok(), fits);
        if let Ok(parsed) = result {
            prop_assert_eq!(parsed, accept);
            prop_assert_eq!(u64::from(parsed.layout().unwrap().chunk_size()), chunk);
        }
    }

    #[test]
    fn every_place_in_the_chunks_has_an_immediate_of_its_own(
        layout in layout(),
        a in any::<(prop::sample::Index, prop::sample::Index)>(),
        b in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let place = |(id, off): (prop::sample::Index, prop::sample::Index)| (
            id.index(layout.queue_depth() as usize) as u32,
            off.index(layout.chunk_size() as usize) as u32,
        );
        let (a, b) = (place(a), place(b));
        let encode = |(id, off)| Imm::encode_io_req(&layout, id, off).unwrap();
        let Imm::IoReq { payload } = Imm::decode(encode(a)) else {
            panic!("another immediate");
        };
        prop_assert_eq!(layout.decode(payload), Ok(a));
        prop_assert_eq!(encode(a) == encode(b), a == b);
    }

    #[test]
    fn answers_come_back(msg_id in 0..1u32 << 19, errno in -511..=0i32, invalidated: bool) {
        let imm = Imm::IoRsp { msg_id, errno, invalidated };
        prop_assert_eq!(Imm::decode(imm.encode()), imm);
    }

    #[test]
    fn info_req_comes_back(sessname in sessname()) {
        let req = InfoReq { sessname };
        prop_assert_eq!(InfoReq::parse(&req.to_bytes()), Ok(req));
    }

    #[test]
    fn info_rsp_gives_each_chunk_its_place(
        descs in 1..=64u32,
        chunks in 1..=64u32,
        chunk_size in 1..=65536u32,
        base in 0..1u64 << 62,
    ) {
        let layout = ChunkLayout::new(descs * chunks, chunk_size);
        prop_assume!(layout.is_ok());
        let layout = layout.unwrap();
        let len = chunks * chunk_size;
        let addr = |i: u32| base + u64::from(i) * 0x1_0000_0000;
        let list = (0..descs).map(|i| SgDesc { addr: addr(i), key: i, len });
        let mut bytes = vec![0; InfoRsp::size(descs as u16)];
        InfoRsp::write(&mut bytes, list.collect::<Vec<_>>().into_iter()).unwrap();
        let rsp = InfoRsp::parse(&bytes, &layout).unwrap();
        prop_assert_eq!(rsp.remote_bufs().count() as u32, descs * chunks);
        for (i, buf) in rsp.remote_bufs().enumerate() {
            let (desc, chunk) = (i as u64 / u64::from(chunks), i as u64 % u64::from(chunks));
            prop_assert_eq!(u64::from(buf.rkey), desc);
            let addr = base + desc * 0x1_0000_0000 + chunk * u64::from(chunk_size);
            prop_assert_eq!(buf.addr, addr);
        }
    }

    #[test]
    fn requests_are_taken_exactly_if_they_stay_in_their_place(
        chunk_size in 1..=200_000u32,
        off in 0..=200_000u32,
        usr_len in prop_oneof![0..=300u16, any::<u16>()],
        need_inval: bool,
        desc in proptest::option::of(sg_desc()),
        len in prop_oneof![any::<u32>(), 0..=200_000u32],
    ) {
        let desc = desc.map(|desc| SgDesc { len, ..desc });
        let msg = ReadMsg { usr_len, need_inval, desc };
        let mut bytes = [0; 24];
        let size = msg.write(&mut bytes).unwrap();
        let result = Request::parse(chunk_size, off, &bytes[..size]);
        let data_len = i64::from(off) - i64::from(usr_len);
        let valid = off as usize + size <= chunk_size as usize
            && data_len >= 0
            && usr_len <= 4096
            && (desc.is_none() || len > 0 && i64::from(len) <= data_len);
        prop_assert_eq!(result.is_ok(), valid);
        if off.saturating_add(24) <= chunk_size {
            let usual = Request::parse_usual(off, &bytes);
            prop_assert_eq!(usual, result.ok().filter(|_| desc.is_some()));
        }
        if let Ok(req) = result {
            prop_assert_eq!(i64::from(req.data_len()), data_len);
            let need_inval = need_inval && desc.is_some();
            prop_assert_eq!(req.direction(), Direction::Read { target: desc, need_inval });
        }
    }

    #[test]
    fn open_comes_back(
        access_mode in select(&[AccessMode::Ro, AccessMode::Rw, AccessMode::Migration][..]),
        io_mode in select(&[None, Some(IoMode::Direct), Some(IoMode::Buffered)][..]),
        dev_name in name(),
    ) {
        let open = rnbd::Open { access_mode, io_mode, dev_name };
        let parsed = rnbd::Request::parse(&open.to_bytes(), rnbd::FEATURE_IO_MODE);
        prop_assert_eq!(parsed, Ok(rnbd::Request::Open(open)));
    }

    #[test]
    fn io_comes_back(
        device_id: u32,
        sector: u64,
        op in select(&[
            Op::Read, Op::Write, Op::Flush, Op::Discard, Op::SecureErase, Op::WriteZeroes,
        ][..]),
        flags: [bool; 4],
        bi_size: u32,
        prio: u16,
    ) {
        let flags = IoFlags::NONE
            .with_if(IoFlags::SYNC, flags[0])
            .with_if(IoFlags::FUA, flags[1])
            .with_if(IoFlags::PREFLUSH, flags[2])
            .with_if(IoFlags::NOUNMAP, flags[3]);
        let rw = rnbd::Rw { op, flags };
        let io = rnbd::Io { device_id, sector, rw, bi_size, prio };
        prop_assert_eq!(rnbd::Request::parse(&io.to_bytes(), 0), Ok(rnbd::Request::Io(io)));
        let is_plain = flags == IoFlags::NONE.with_if(IoFlags::SYNC, flags.contains(IoFlags::SYNC))
            && bi_size != 0;
        prop_assert_eq!(io.is_plain(true, bi_size), is_plain && op == Op::Read);
        prop_assert_eq!(io.is_plain(false, bi_size), is_plain && op == Op::Write);
        prop_assert!(!io.is_plain(op == Op::Read, bi_size.wrapping_add(1)));
    }

    #[test]
    fn open_rsp_comes_back(
        device_id: u32,
        nsectors in 0..=rnbd::OpenRsp::MAX_NSECTORS,
        sectors: [u32; 5],
        logical in 9..=15u32,
        physical in 0..=6u32,
        max_segments: u16,
        flags: [bool; 3],
        io_mode in select(&[None, Some(IoMode::Direct), Some(IoMode::Buffered)][..]),
    ) {
        let rsp = rnbd::OpenRsp {
            device_id,
            nsectors,
            max_hw_sectors: sectors[0],
            max_write_zeroes_sectors: sectors[1],
            max_discard_sectors: sectors[2],
            discard_granularity: sectors[3],
            discard_alignment: sectors[4],
            logical_block_size: 1 << logical,
            physical_block_size: 1 << (logical + physical).min(15),
            max_segments: max_segments.into(),
            secure_discard: flags[0],
            cache_policy: CachePolicy { fua: flags[1], writeback: flags[2] },
            io_mode,
        };
        let bytes = rsp.to_bytes().unwrap();
        prop_assert_eq!(rnbd::OpenRsp::parse(&bytes, rnbd::FEATURE_IO_MODE), Ok(rsp));
    }

    #[test]
    fn paths_are_read_as_they_are_shown(
        src in proptest::option::of(address()),
        dst in address(),
    ) {
        let path = PathAddress { src, dst };
        let text = path.to_text();
        prop_assert_eq!(PathAddress::parse(text.as_bytes()), Ok(path));
    }

    #[test]
    fn map_options_come_back(
        sessname in sessname(),
        device in "[a-zA-Z0-9/._-]{1,254}",
        mode in select(&["ro", "rw", "migration"][..]),
        io_mode in select(&[None, Some(IoMode::Direct), Some(IoMode::Buffered)][..]),
        port: u16,
        queues in 0..=8u32,
        paths in vec(address(), 0..=6),
        first in any::<bool>(),
    ) {
        // Longer names do not fit into the name of a link in sysfs.
        prop_assume!(sessname.as_bytes().len() + device.len() < 255);
        let mut words = vec![
            format!("sessname={}", String::from_utf8_lossy(sessname.as_bytes())),
            format!("device_path={device}"),
            format!("access_mode={mode}"),
            format!("dest_port={port}"),
            format!("nr_poll_queues={queues}"),
        ];
        words.extend(io_mode.map(|io_mode| format!("io_mode={}", io_mode.as_str())));
        words.extend(paths.iter().map(|path| format!("path={}", path.to_text().as_str())));
        if first {
            words.reverse();
        }
        let line = words.join(" ");
        let options = map_options::parse(line.as_bytes(), 8).unwrap();
        prop_assert_eq!(options.sessname, sessname);
        prop_assert_eq!(options.device_path.as_bytes(), device.as_bytes());
        prop_assert_eq!(options.access_mode.as_str(), mode);
        prop_assert_eq!(options.io_mode, io_mode);
        prop_assert_eq!(options.dest_port, port);
        prop_assert_eq!(options.nr_poll_queues, queues);
        let mut got: Vec<_> = options.paths().map(|path| path.dst).collect();
        if first {
            got.reverse();
        }
        prop_assert_eq!(got, paths);
    }
}
