// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs-group.h` for the states of members. `symbols.c` exports them.

use kernel_ext::{
    c_caller::{
        Handle,
        Place,
        Places, //
    },
    prelude::*, //
};
use rtrs_group::State;

use crate::{
    functions::status,
    handles, //
};

/// C: `struct rtrs_group_range`. Only C reads it.
#[allow(dead_code)]
#[repr(C)]
struct RawRange {
    first: u64,
    last: u64,
}

/// C: `struct rtrs_group_missing`. Only C reads it.
#[allow(dead_code)]
#[repr(C)]
struct RawMissing {
    state: u32,
    is_exact: u32,
    count: u32,
}

kernel_ext::export_to_c! {
    /// C: `rtrs_group_missing`.
    fn rtrs_group_missing(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
        found: Place<'_, RawMissing> = (missing: *mut RawMissing),
        ranges: Places<'_, RawRange> = (ranges: *mut RawRange, room: c_uint),
    ) -> i32 = missing_of;

    /// C: `rtrs_group_leave_out`.
    fn rtrs_group_leave_out(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
    ) -> i32 = leave_out;

    /// C: `rtrs_group_rejoin`.
    fn rtrs_group_rejoin(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
    ) -> i32 = rejoin;

    /// C: `rtrs_group_resolved`.
    fn rtrs_group_resolved(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
        first: u64 = (first: u64),
        last: u64 = (last: u64),
    ) -> i32 = resolved;

    /// C: `rtrs_group_in_sync`.
    fn rtrs_group_in_sync(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
    ) -> i32 = in_sync;
}

fn missing_of(
    group: Handle,
    member: u32,
    found: Place<'_, RawMissing>,
    ranges: Places<'_, RawRange>,
) -> i32 {
    let look = || {
        let group = handles::find(group).ok_or(ENODEV)?;
        let missing = group.opened()?.group().missing(member as usize)?;
        for (index, range) in missing.ranges.iter().take(ranges.count()).enumerate() {
            let (first, last) = (range.first, range.last);
            ranges.write(index, RawRange { first, last })?;
        }
        found.write(RawMissing {
            state: match missing.state {
                State::InSync => 0,
                State::Behind => 1,
                State::CatchingUp => 2,
            },
            is_exact: u32::from(missing.is_exact),
            // There are no more ranges than the group has tags, or 64.
            count: missing.ranges.len() as u32,
        })
    };
    status(look())
}

fn leave_out(group: Handle, member: u32) -> i32 {
    status(handles::with_group(group, |group| {
        group.group().leave_out(member as usize)
    }))
}

fn rejoin(group: Handle, member: u32) -> i32 {
    status(handles::with_group(group, |group| {
        group.group().rejoin(member as usize)
    }))
}

fn resolved(group: Handle, member: u32, first: u64, last: u64) -> i32 {
    status(handles::with_group(group, |group| {
        group.group().resolved(member as usize, first, last)
    }))
}

fn in_sync(group: Handle, member: u32) -> i32 {
    status(handles::with_group(group, |group| {
        group.group().in_sync(member as usize)
    }))
}
