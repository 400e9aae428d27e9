// SPDX-License-Identifier: GPL-2.0

//! The properties of responses with a list that hold for any input.

use proto::{
    name::Name,
    rnbd, //
};

use super::check_message;

/// A response that tells how a disk is reserved.
pub(super) fn reservation(data: &[u8]) {
    match rnbd::Report::parse(data) {
        Ok(report) => assert_eq!(rnbd::Report::parse(&report.to_bytes()), Ok(report)),
        Err(error) => check_message(error.message().as_str()),
    }
}

/// A page of disks.
pub(super) fn discover(data: &[u8]) {
    let asked = rnbd::Discover {
        after: Some(Name::new(b"a").expect("a name")),
    };
    let rsp = match rnbd::DiscoverRsp::parse(data, &asked) {
        Ok(rsp) => rsp,
        Err(error) => return check_message(error.message().as_str()),
    };
    let mut last = b"a".to_vec();
    let mut room = [0; rnbd::DiscoverRsp::MAX_SIZE];
    let mut writer = rnbd::DiscoverRspWriter::new(&mut room).expect("room");
    let mut fits = true;
    for disk in rsp.disks() {
        assert!(disk.path > last.as_slice() && Name::new(disk.path).is_ok());
        assert!(!disk.path.windows(2).any(|pair| pair == b".."));
        assert!(disk.logical_block_size.is_power_of_two() && disk.logical_block_size >= 512);
        assert!(disk.nsectors.checked_mul(512).is_some());
        let mut line = [0; rnbd::FoundDisk::MAX_LINE];
        let len = disk.write_line(&mut line).expect("room for a line");
        assert_eq!(line[..len].iter().filter(|byte| **byte == b'\n').count(), 1);
        last = disk.path.to_vec();
        fits &= writer.push(&disk);
    }
    let rest = rsp.rest(&asked);
    if let Some(rest) = &rest {
        assert_eq!(rest.after.expect("a path").as_bytes(), last);
    }
    let len = writer.finish(rest.is_some());
    let again = rnbd::DiscoverRsp::parse(&room[..len], &asked).expect("own message");
    assert!(!fits || again.disks().eq(rsp.disks()));
}

/// A response with news of devices.
pub(super) fn news(data: &[u8]) {
    let asked = rnbd::News {
        since: 1,
        first_device_id: 1,
    };
    let rsp = match rnbd::NewsRsp::parse(data, &asked) {
        Ok(rsp) => rsp,
        Err(error) => return check_message(error.message().as_str()),
    };
    assert_eq!(rsp.drain_ms(!rnbd::FEATURE_DRAIN), Ok(None));
    let drain_ms = match rsp.drain_ms(rnbd::FEATURE_DRAIN) {
        Ok(drain_ms) => drain_ms,
        Err(error) => return check_message(error.message().as_str()),
    };
    assert!(drain_ms.is_none_or(|ms| (1..=rnbd::MAX_DRAIN_MS).contains(&ms)));
    let mut least = asked.first_device_id;
    let mut again = Vec::new();
    for news in rsp.devices() {
        assert!(news.device_id >= least);
        assert!(news.logical_block_size.is_power_of_two() && news.logical_block_size >= 512);
        assert!(news.physical_block_size.is_power_of_two());
        assert!(news.physical_block_size >= news.logical_block_size);
        assert!(news.nsectors.checked_mul(512).is_some());
        assert_eq!(rsp.device(news.device_id), Some(news));
        least = news.device_id.saturating_add(1);
        again.push(news);
    }
    assert!(again.len() <= rnbd::NewsRsp::MAX_COUNT);
    if let Some(rest) = rsp.rest(&asked) {
        assert!(rest.since == 1 && rest.first_device_id > again.last().unwrap().device_id);
    }
    let header = rnbd::NewsHeader {
        sequence: rsp.sequence(),
        count: again.len() as u16,
        more: rsp.rest(&asked).is_some(),
        drain_ms,
    };
    let mut bytes = header.to_bytes().to_vec();
    again.iter().for_each(|news| bytes.extend(news.to_bytes()));
    let parsed = rnbd::NewsRsp::parse(&bytes, &asked).expect("own message");
    assert!(parsed.devices().eq(again));
    assert_eq!(parsed.drain_ms(rnbd::FEATURE_DRAIN), Ok(drain_ms));
}
