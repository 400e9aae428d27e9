// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs-group.h` that send requests. `symbols.c` exports them.

use kernel_ext::{
    c_caller::{
        Handle,
        LentList,
        RawValueCallback,
        RawVector,
        ValueCallback,
        Vectors, //
    },
    prelude::*,
    rdma::Direction,
    scatterlist::ScatterTable, //
};
use rtrs_client::MAX_USER_HEADER;
use rtrs_group::Members;

use crate::{
    callbacks::{
        Confirmation,
        RawResult, //
    },
    functions::status,
    handles,
    user_group::Target, //
};

kernel_ext::export_to_c! {
    /// C: `rtrs_group_write`.
    fn rtrs_group_write(
        group: Handle = (group: *const c_void),
        permit: Handle = (permit: *const c_void),
        confirmation: Option<ValueCallback<RawResult>> = (ops: *const RawValueCallback<RawResult>),
        message: Vectors<'_> = (vec: *const RawVector, nr: usize),
        len: usize = (len: usize),
        list: LentList<'_> = (sg: *mut kernel::bindings::scatterlist, sg_cnt: u32),
    ) -> i32 = write;

    /// C: `rtrs_group_write_each`.
    fn rtrs_group_write_each(
        group: Handle = (group: *const c_void),
        permit: Handle = (permit: *const c_void),
        confirmation: Option<ValueCallback<RawResult>> = (ops: *const RawValueCallback<RawResult>),
        messages: Vectors<'_> = (messages: *const RawVector, count: usize),
        len: usize = (len: usize),
        list: LentList<'_> = (sg: *mut kernel::bindings::scatterlist, sg_cnt: u32),
    ) -> i32 = write_each;

    /// C: `rtrs_group_write_to`.
    fn rtrs_group_write_to(
        group: Handle = (group: *const c_void),
        member: u32 = (member: u32),
        permit: Handle = (permit: *const c_void),
        confirmation: Option<ValueCallback<RawResult>> = (ops: *const RawValueCallback<RawResult>),
        message: Vectors<'_> = (vec: *const RawVector, nr: usize),
        len: usize = (len: usize),
        list: LentList<'_> = (sg: *mut kernel::bindings::scatterlist, sg_cnt: u32),
    ) -> i32 = write_to;

    /// C: `rtrs_group_read`.
    fn rtrs_group_read(
        group: Handle = (group: *const c_void),
        except: u32 = (except: u32),
        permit: Handle = (permit: *const c_void),
        confirmation: Option<ValueCallback<RawResult>> = (ops: *const RawValueCallback<RawResult>),
        message: Vectors<'_> = (vec: *const RawVector, nr: usize),
        len: usize = (len: usize),
        list: LentList<'_> = (sg: *mut kernel::bindings::scatterlist, sg_cnt: u32),
    ) -> i32 = read;
}

/// The data of a request.
struct Data<'call> {
    len: usize,
    list: LentList<'call>,
}

fn write(
    group: Handle,
    permit: Handle,
    confirmation: Option<ValueCallback<RawResult>>,
    message: Vectors<'_>,
    len: usize,
    list: LentList<'_>,
) -> i32 {
    let mut room = [0; MAX_USER_HEADER];
    let data = Data { len, list };
    status(message.gather(&mut room).and_then(|message| {
        let target = Target::All(message);
        request(group, permit, target, confirmation, &data)
    }))
}

fn write_each(
    group: Handle,
    permit: Handle,
    confirmation: Option<ValueCallback<RawResult>>,
    messages: Vectors<'_>,
    len: usize,
    list: LentList<'_>,
) -> i32 {
    let all = || {
        let members = handles::with_group(group, |group| Ok(group.group().members().len()))?;
        if messages.count() != members {
            return Err(EINVAL);
        }
        for member in 0..members {
            messages.piece(member)?;
        }
        let target = Target::Each(&messages);
        request(group, permit, target, confirmation, &Data { len, list })
    };
    status(all())
}

fn write_to(
    group: Handle,
    member: u32,
    permit: Handle,
    confirmation: Option<ValueCallback<RawResult>>,
    message: Vectors<'_>,
    len: usize,
    list: LentList<'_>,
) -> i32 {
    let mut room = [0; MAX_USER_HEADER];
    let data = Data { len, list };
    status(message.gather(&mut room).and_then(|message| {
        let target = Target::Member(member as usize, message);
        request(group, permit, target, confirmation, &data)
    }))
}

fn read(
    group: Handle,
    except: u32,
    permit: Handle,
    confirmation: Option<ValueCallback<RawResult>>,
    message: Vectors<'_>,
    len: usize,
    list: LentList<'_>,
) -> i32 {
    let mut room = [0; MAX_USER_HEADER];
    let data = Data { len, list };
    status(message.gather(&mut room).and_then(|message| {
        let target = Target::ReadExcept(Members::from_bits(except), message);
        request(group, permit, target, confirmation, &data)
    }))
}

/// Sends a request. By the type invariant of `Opened` a table is not used after the request before
/// it is filled or emptied again. So memory is lent until the confirmation, as the header says.
fn request(
    group: Handle,
    permit: Handle,
    target: Target<'_>,
    confirmation: Option<ValueCallback<RawResult>>,
    data: &Data<'_>,
) -> Result {
    let confirmation = Confirmation::new(confirmation.ok_or(EINVAL)?);
    let direction = match target {
        Target::ReadExcept(..) => Direction::FromDevice,
        Target::All(_) | Target::Each(_) | Target::Member(..) => Direction::ToDevice,
    };
    let has_data = data.list.count() != 0;
    if !has_data && data.len != 0 {
        return Err(EINVAL);
    }
    let fill = has_data.then_some(|table: &mut ScatterTable| {
        data.list.lend(table, direction)?;
        if table.byte_len() == data.len {
            Ok(())
        } else {
            Err(EINVAL)
        }
    });
    handles::with_group(group, |group| {
        group.request(permit, target, confirmation, fill)
    })
}
