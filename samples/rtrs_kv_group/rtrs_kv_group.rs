// SPDX-License-Identifier: GPL-2.0

//! A value on several other machines: how `rtrs_group` is used (`Documentation/rtrs-api.md`).
//!
//! `/sys/class/rtrs-kv-group/KEY/` has the value, which all servers get, and the members' states.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, unsafe_code)]

use kernel::new_mutex;
use kernel::str::{BStr, CString};
use kernel::sync::{Arc, Mutex};
use kernel_ext::device::class::{Class, ClassDevice};
use kernel_ext::module_param::ParameterString;
use kernel_ext::prelude::*;
use kernel_ext::sysfs::{Attribute, BinaryAttribute, SysfsOutput};
use rtrs_client::{OpenParams, PathAddress};
use rtrs_group::{Member, ReadPolicy, State, SyncGroup};

kernel_ext::module_parameter! {
    static SERVERS: ParameterString = ParameterString::new(c"");
    name: "servers",
    description: "Addresses of the servers, such as ip:192.0.2.10,ip:192.0.2.11",
}

kernel_ext::module_parameter! {
    static KEY: ParameterString = ParameterString::new(c"colour");
    name: "key",
    description: "The key (default: colour)",
}

module! {
    type: KvGroup,
    name: "rtrs_kv_group",
    authors: ["The RNBD in Rust developers"],
    description: "A value on several other machines: a sample for rtrs_group",
    license: "GPL",
}

/// The module: the folder of the key. Dropping it closes the sessions.
struct KvGroup(#[expect(dead_code)] ClassDevice<Key>);

impl kernel::Module for KvGroup {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let mut members = KVec::new();
        for (index, server) in SERVERS
            .get()
            .as_bytes()
            .split(|byte| *byte == b',')
            .enumerate()
        {
            let path = PathAddress::parse(server).map_err(|_| EINVAL)?;
            let name = CString::try_from_fmt(fmt!("kv-group-{}", index))?;
            let member = Member::open(&OpenParams::new(&name, &[path], 1235))?;
            members.push(member, GFP_KERNEL)?;
        }
        let group = SyncGroup::open(members, ReadPolicy::RoundRobin)?;
        let name = CString::try_from_fmt(fmt!("{}", BStr::from_bytes(KEY.get().as_bytes())))?;
        let turn = Arc::pin_init(new_mutex!((), "rtrs_kv_group::Key::turn"), GFP_KERNEL)?;
        let key = Arc::new(Key { group, name, turn }, GFP_KERNEL)?;
        let class = Class::new(c"rtrs-kv-group")?;
        let folder = class.device(&key.name, FILES, key.clone())?;
        folder.add_file(&VALUE)?;
        Ok(Self(folder))
    }
}

/// The files of the folder, except the value.
const FILES: &[Attribute<Key>] = &[
    Attribute::read_only(c"members", Key::show_members),
    Attribute::read_only(c"limits", |key, out| {
        let (depth, bytes) = (key.group.queue_depth(), key.group.max_io_size());
        out.print(fmt!("{} requests, {} bytes\n", depth, bytes))
    }),
    Attribute::read_only(c"times_mapped", |key, out| {
        out.print(fmt!("{}\n", key.group.times_mapped()))
    }),
    Attribute::new(
        c"read_policy",
        0o200,
        None,
        Some(|key, _, text| {
            key.group
                .set_read_policy(ReadPolicy::parse(text).map_err(|_| EINVAL)?);
            Ok(())
        }),
    ),
    Attribute::new(
        c"rejoin",
        0o200,
        None,
        Some(|key, _, text| key.group.rejoin(number(text)?)),
    ),
    Attribute::new(
        c"repair",
        0o200,
        None,
        Some(|key, _, text| key.repair(number(text)?)),
    ),
];

/// The value, which fits in one request, and is written by one call.
static VALUE: BinaryAttribute<Key> = BinaryAttribute::new(
    c"value",
    |key, at, out| {
        out.write_bytes(key.get()?.get(at as usize..).unwrap_or(&[]));
        Ok(())
    },
    |key, _, at, bytes| match at {
        0 => key.put(bytes),
        _ => Err(EFBIG),
    },
);

struct Key {
    group: Arc<SyncGroup>,
    name: CString,
    /// One write at a time: a repair must not bring back a value that was replaced meanwhile.
    turn: Arc<Mutex<()>>,
}

impl Key {
    /// Fetches the value from a member that is in sync. A response is the length of the value, and
    /// the value.
    fn get(&self) -> Result<KVVec<u8>> {
        let mut response = KVVec::from_elem(0, self.group.max_io_size() as usize, GFP_KERNEL)?;
        self.group.read(self.name.to_bytes(), &mut response)?;
        let (len, bytes) = response.split_first_chunk().ok_or(EIO)?;
        let bytes = bytes.get(..u32::from_le_bytes(*len) as usize).ok_or(EIO)?;
        let mut value = KVVec::new();
        value.extend_from_slice(bytes, GFP_KERNEL)?;
        Ok(value)
    }

    /// Sends the value to all members. The list of a member has the writes that it has not
    /// confirmed.
    fn put(&self, bytes: &[u8]) -> Result {
        let _turn = self.turn.lock();
        self.group.write(self.name.to_bytes(), bytes).map(drop)
    }

    /// Sends a member that has rejoined the value that it has missed. There is only one: the last
    /// value.
    fn repair(&self, member: usize) -> Result {
        let _turn = self.turn.lock();
        let missing = self.group.missing(member)?.ranges;
        if !missing.is_empty() {
            self.group
                .write_to(member, self.name.to_bytes(), &self.get()?)?;
        }
        for range in &missing {
            self.group.resolved(member, range.first, range.last)?;
        }
        self.group.in_sync(member)
    }

    /// A line for each member: its number, its state, the writes that it has not confirmed.
    fn show_members(self: &Arc<Self>, out: &mut SysfsOutput<'_>) -> Result {
        for member in 0..self.group.members().len() {
            let missing = self.group.missing(member)?;
            out.print(fmt!("{} {}", member, State::as_str(missing.state)))?;
            for range in &missing.ranges {
                out.print(fmt!(" {}-{}", range.first, range.last))?;
            }
            out.print(fmt!("{}\n", if missing.is_exact { "" } else { " inexact" }))?;
        }
        Ok(())
    }
}

/// The number of a member.
fn number(text: &[u8]) -> Result<usize> {
    let text = core::str::from_utf8(text.trim_ascii()).map_err(|_| EINVAL)?;
    text.parse().map_err(|_| EINVAL)
}
