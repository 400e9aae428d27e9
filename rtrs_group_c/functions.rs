// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs-group.h` for groups and their permits. The header says what
//! callers may rely on. `symbols.c` exports them.

use kernel_ext::{
    c_caller::{
        error_pointer,
        Handle,
        HandleList,
        Place,
        RawValueCallback,
        ValueCallback, //
    },
    pr_err_ratelimited,
    prelude::*, //
};
use rtrs_client_c::RawAttrs;
use rtrs_group::{
    ReadPolicy,
    MAX_MEMBERS, //
};

use crate::{
    callbacks::{
        FailureCallback,
        RawFailure, //
    },
    handles, //
};

/// C: `RTRS_GROUP_MAX_MEMBERS`, which `symbols.c` compares, too.
const _: () = assert!(MAX_MEMBERS == 16);

/// C: `enum rtrs_group_read_policy`.
const ROUND_ROBIN: u32 = 0;
const LEAST_LATENCY: u32 = 1;
const FIXED: u32 = 2;

kernel_ext::export_to_c! {
    /// C: `rtrs_group_open`.
    fn rtrs_group_open(
        fell_behind: Option<ValueCallback<RawFailure>> = (ops: *const RawValueCallback<RawFailure>),
        sessions: HandleList<'_> = (sessions: *const *const c_void, count: c_uint),
    ) -> *const c_void = open;

    /// C: `rtrs_group_close`.
    fn rtrs_group_close(group: Handle = (group: *const c_void)) = handles::close;

    /// C: `rtrs_group_query`.
    fn rtrs_group_query(
        group: Handle = (group: *const c_void),
        attrs: Place<'_, RawAttrs> = (attr: *mut RawAttrs),
    ) -> i32 = query;

    /// C: `rtrs_group_get_permit`.
    fn rtrs_group_get_permit(
        group: Handle = (group: *const c_void),
        wait: u32 = (wait: u32),
    ) -> *const c_void = get_permit;

    /// C: `rtrs_group_put_permit`.
    fn rtrs_group_put_permit(
        group: Handle = (group: *const c_void),
        permit: Handle = (permit: *const c_void),
    ) = put_permit;

    /// C: `rtrs_group_set_read_policy`.
    fn rtrs_group_set_read_policy(
        group: Handle = (group: *const c_void),
        policy: u32 = (policy: u32),
        member: u32 = (member: u32),
    ) -> i32 = set_read_policy;
}

/// The value that a function in C returns: 0, or a negative errno.
pub(crate) fn status(result: Result) -> i32 {
    result.map_or_else(Error::to_errno, |()| 0)
}

fn open(fell_behind: Option<ValueCallback<RawFailure>>, sessions: HandleList<'_>) -> *const c_void {
    let count = sessions.count();
    if count == 0 || count > MAX_MEMBERS {
        return error_pointer(EINVAL);
    }
    let opened = handles::open(|group| {
        let sessions = (0..count).map(|index| sessions.read(index));
        group.open(sessions, fell_behind.map(FailureCallback::new))
    });
    opened.map_or_else(error_pointer, Handle::to_c)
}

fn query(group: Handle, attrs: Place<'_, RawAttrs>) -> i32 {
    let found = handles::with_group(group, |group| {
        let group = group.group();
        Ok(RawAttrs {
            queue_depth: group.queue_depth(),
            max_io_size: group.max_io_size(),
            max_segments: group.max_segments(),
        })
    });
    status(found.and_then(|found| attrs.write(found)))
}

fn get_permit(group: Handle, wait: u32) -> *const c_void {
    let permit = match handles::with_group(group, |group| Ok(group.permits().get(false))) {
        Ok(None) if wait != 0 => {
            handles::find(group).and_then(|group| group.opened().ok()?.permits().get_waiting(false))
        }
        found => found.ok().flatten(),
    };
    permit.unwrap_or(Handle::NULL).to_c()
}

fn put_permit(group: Handle, permit: Handle) {
    if let Err(error) = handles::with_group(group, |group| group.permits().put(permit)) {
        pr_err_ratelimited!(
            "rtrs_group_put_permit: {}\n",
            match error {
                ENODEV => "the group is closed",
                EBUSY => "the request of the permit has not ended: the permit is not put back",
                _ => "the group has not given out this permit, or it was put back already",
            }
        );
    }
}

fn set_read_policy(group: Handle, policy: u32, member: u32) -> i32 {
    let policy = match policy {
        ROUND_ROBIN => Ok(ReadPolicy::RoundRobin),
        LEAST_LATENCY => Ok(ReadPolicy::LeastLatency),
        FIXED if (member as usize) < MAX_MEMBERS => Ok(ReadPolicy::Fixed(member as usize)),
        _ => Err(EINVAL),
    };
    status(policy.and_then(|policy| {
        handles::with_group(group, |group| {
            group.group().set_read_policy(policy);
            Ok(())
        })
    }))
}
