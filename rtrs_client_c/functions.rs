// SPDX-License-Identifier: GPL-2.0

//! The functions of `include/rtrs.h` for clients. The header says what callers may rely on.
//! `symbols.c` exports them.

use core::fmt::Write as _;
use kernel_ext::{
    c_caller::{
        error_pointer,
        Address,
        AddressPair,
        AddressPairs,
        Buffer,
        Bytes,
        Handle,
        LentList,
        NumberCallback,
        Place,
        RawAddressPair,
        RawNumberCallback,
        RawVector,
        Text,
        Vectors, //
    },
    cpu,
    pr_err_ratelimited,
    prelude::*,
    rdma::Direction,
    scatterlist::ScatterTable, //
};
use proto::{
    addr::{
        PathAddress,
        PATH_TEXT_LEN, //
    },
    text, //
};
use rtrs_client::{
    Kind,
    OpenParams,
    Reconnect,
    MAX_USER_HEADER, //
};
use rtrs_core::{
    address::socket_address,
    error::from_errno, //
};

use crate::{
    addresses,
    callbacks::{
        Confirmation,
        LinkCallback, //
    },
    client::Client,
    handles, //
};

/// C: `RTRS_CLT_MAX_MESSAGE`, which `symbols.c` compares, too.
const _: () = assert!(MAX_USER_HEADER == 384);

/// C: `enum rtrs_clt_con_type`.
const ADMIN_CON: u32 = 0;
const IO_CON: u32 = 1;

/// C: `READ` and `WRITE`.
const READ: i32 = 0;
const WRITE: i32 = 1;

/// C: `struct rtrs_attrs`.
#[repr(C)]
pub struct RawAttrs {
    /// The number of permits.
    pub queue_depth: u32,
    /// The most data of one request, in bytes.
    pub max_io_size: u32,
    /// The most entries of a request's list.
    pub max_segments: u32,
}

/// The parameters of a session's connections.
struct Connecting {
    port: u16,
    delay_sec: u8,
    max_attempts: i16,
    num_poll_queues: u32,
}

kernel_ext::export_to_c! {
    /// C: `rtrs_clt_open`.
    fn rtrs_clt_open(
        link: Option<NumberCallback> = (ops: *const RawNumberCallback),
        name: Text<'_> = (pathname: *const c_char),
        paths: AddressPairs<'_> = (paths: *const RawAddressPair, path_cnt: usize),
        port: u16 = (port: u16),
        unused: usize = (pdu_sz: usize),
        delay_sec: u8 = (reconnect_delay_sec: u8),
        max_attempts: i16 = (max_reconnect_attempts: i16),
        num_poll_queues: u32 = (nr_poll_queues: u32),
    ) -> *const c_void = open;

    /// C: `rtrs_clt_close`.
    fn rtrs_clt_close(session: Handle = (clt: *const c_void)) = handles::close;

    /// C: `rtrs_clt_get_permit`.
    fn rtrs_clt_get_permit(
        session: Handle = (sess: *const c_void),
        con_type: u32 = (con_type: u32),
        wait: u32 = (wait: u32),
    ) -> *const c_void = get_permit;

    /// C: `rtrs_clt_put_permit`.
    fn rtrs_clt_put_permit(
        session: Handle = (sess: *const c_void),
        permit: Handle = (permit: *const c_void),
    ) = put_permit;

    /// C: `rtrs_clt_request`.
    fn rtrs_clt_request(
        dir: i32 = (dir: i32),
        confirmation: Option<NumberCallback> = (ops: *const RawNumberCallback),
        session: Handle = (sess: *const c_void),
        permit: Handle = (permit: *const c_void),
        message: Vectors<'_> = (vec: *const RawVector, nr: usize),
        len: usize = (len: usize),
        list: LentList<'_> = (sg: *mut kernel::bindings::scatterlist, sg_cnt: u32),
    ) -> i32 = request;

    /// C: `rtrs_clt_rdma_cq_direct`.
    fn rtrs_clt_rdma_cq_direct(
        session: Handle = (clt: *const c_void),
        index: u32 = (index: u32),
    ) -> i32 = poll;

    /// C: `rtrs_clt_query`.
    fn rtrs_clt_query(
        session: Handle = (sess: *const c_void),
        attrs: Place<'_, RawAttrs> = (attr: *mut RawAttrs),
    ) -> i32 = query;

    /// C: `rtrs_addr_to_sockaddr`.
    fn rtrs_addr_to_sockaddr(
        text: Bytes<'_> = (str: *const u8, len: usize),
        port: u16 = (port: u16),
        path: AddressPair<'_> = (addr: *mut RawAddressPair),
    ) -> i32 = read_text;

    /// C: `sockaddr_to_str`.
    fn sockaddr_to_str(
        address: Address<'_> = (addr: *const u8),
        to: Buffer<'_> = (buf: *mut u8, len: usize),
    ) -> i32 = write_address;

    /// C: `rtrs_addr_to_str`.
    fn rtrs_addr_to_str(
        path: AddressPair<'_> = (addr: *mut RawAddressPair),
        to: Buffer<'_> = (buf: *mut u8, len: usize),
    ) -> i32 = write_path;
}

/// The value that a function in C returns: 0, or a negative errno.
fn status(result: Result) -> i32 {
    result.map_or_else(Error::to_errno, |()| 0)
}

// As many arguments as in C.
#[allow(clippy::too_many_arguments)]
fn open(
    link: Option<NumberCallback>,
    name: Text<'_>,
    paths: AddressPairs<'_>,
    port: u16,
    _unused: usize,
    delay_sec: u8,
    max_attempts: i16,
    num_poll_queues: u32,
) -> *const c_void {
    let connecting = Connecting {
        port,
        delay_sec,
        max_attempts,
        num_poll_queues,
    };
    try_open(link, &name, &paths, &connecting).map_or_else(error_pointer, Handle::to_c)
}

fn try_open(
    link: Option<NumberCallback>,
    name: &Text<'_>,
    paths: &AddressPairs<'_>,
    connecting: &Connecting,
) -> Result<Handle> {
    let link = LinkCallback::new(link.ok_or(EINVAL)?);
    let paths = addresses::of_paths(paths, connecting.port)?;
    let params = OpenParams {
        name: name.get()?,
        paths: &paths,
        port: connecting.port,
        num_poll_queues: connecting.num_poll_queues,
        reconnect: Some(Reconnect {
            delay_ms: u32::from(connecting.delay_sec).wrapping_mul(1000),
            max_attempts: i32::from(connecting.max_attempts),
        }),
    };
    handles::insert(Client::open(&params, link)?)
}

fn get_permit(session: Handle, con_type: u32, wait: u32) -> *const c_void {
    let by_service_connection = match con_type {
        ADMIN_CON => true,
        IO_CON => false,
        other => {
            pr_err_ratelimited!("rtrs_clt_get_permit: no connections of type {}\n", other);
            return Handle::NULL.to_c();
        }
    };
    let get = |client: &Client| Ok(client.permits().get(by_service_connection));
    let permit = match handles::with_client(session, get) {
        Ok(None) if wait != 0 => handles::client(session)
            .and_then(|client| client.permits().get_waiting(by_service_connection)),
        found => found.ok().flatten(),
    };
    permit.unwrap_or(Handle::NULL).to_c()
}

fn put_permit(session: Handle, permit: Handle) {
    if let Err(error) = handles::with_client(session, |client| client.permits().put(permit)) {
        pr_err_ratelimited!(
            "rtrs_clt_put_permit: {}\n",
            match error {
                ENODEV => "the session is closed",
                EBUSY => "the request of the permit has not ended: the permit is not put back",
                _ => "the session has not given out this permit, or it was put back already",
            }
        );
    }
}

/// The kind of a request of direction `dir` with `count` segments, and how the device accesses the
/// data.
fn kind(dir: i32, count: u32) -> Result<(Kind, Direction)> {
    match (dir, count) {
        (READ, _) => Ok((Kind::Read, Direction::FromDevice)),
        (WRITE, 0) => Ok((Kind::HeaderOnly, Direction::ToDevice)),
        (WRITE, _) => Ok((Kind::Write, Direction::ToDevice)),
        _ => Err(EINVAL),
    }
}

fn request(
    dir: i32,
    confirmation: Option<NumberCallback>,
    session: Handle,
    permit: Handle,
    message: Vectors<'_>,
    len: usize,
    list: LentList<'_>,
) -> i32 {
    let request = || {
        let confirmation = Confirmation::new(confirmation.ok_or(EINVAL)?);
        let mut room = [0; MAX_USER_HEADER];
        let header = message.gather(&mut room)?;
        let (kind, direction) = kind(dir, list.count())?;
        // By the type invariant of `Client` the table is not used after the request before it is
        // filled or emptied again.
        let fill = |table: &mut ScatterTable| {
            list.lend(table, direction)?;
            if table.byte_len() == len {
                Ok(())
            } else {
                Err(EINVAL)
            }
        };
        handles::with_client(session, |client| {
            client.request(permit, kind, header, confirmation, fill)
        })
    };
    status(request())
}

fn poll(session: Handle, index: u32) -> i32 {
    let found = handles::with_client(session, |client| {
        let transport = client.transport();
        // C's users number a queue for each CPU before the polled queues.
        let polled = index.checked_sub(cpu::nr_cpu_ids());
        let polled = polled.filter(|polled| *polled < u32::from(transport.num_poll_queues()));
        match polled {
            Some(polled) if transport.is_connected() => Ok(transport.poll(polled)),
            _ => Err(EINVAL),
        }
    });
    found.map_or(-1, |found| found.min(i32::MAX.unsigned_abs()) as i32)
}

fn query(session: Handle, attrs: Place<'_, RawAttrs>) -> i32 {
    let found = handles::with_client(session, |client| {
        let transport = client.transport();
        if !transport.is_connected() {
            return Err(ECOMM);
        }
        Ok(RawAttrs {
            queue_depth: transport.queue_depth(),
            max_io_size: transport.max_io_size(),
            max_segments: u32::from(transport.max_segments()),
        })
    });
    status(
        found
            .map_err(|_| ECOMM)
            .and_then(|found| attrs.write(found)),
    )
}

fn read_text(text: Bytes<'_>, port: u16, path: AddressPair<'_>) -> i32 {
    let read = || {
        let text = text.get()?;
        if path.is_null() {
            return Err(EINVAL);
        }
        let parsed = PathAddress::parse(text).map_err(|error| from_errno(error.errno()))?;
        let source = parsed.src.as_ref().map(|source| socket_address(source, 0));
        let destination = socket_address(&parsed.dst, port)?;
        path.write(source.transpose()?.as_ref(), &destination)
    };
    status(read())
}

/// Writes `text`, and returns the number of bytes written. The longest text fits into an `i32`.
fn write_text(to: &Buffer<'_>, text: &[u8]) -> i32 {
    to.write_text(text) as i32
}

fn write_address(address: Address<'_>, to: Buffer<'_>) -> i32 {
    write_text(
        &to,
        addresses::text(address.read().ok().as_ref()).as_bytes(),
    )
}

fn write_path(path: AddressPair<'_>, to: Buffer<'_>) -> i32 {
    let Ok((source, destination)) = path.read() else {
        return 0;
    };
    let text = text::Text::<PATH_TEXT_LEN>::from_fn(|out| {
        if let Some(source) = source {
            write!(out, "{}@", addresses::text(source.ok().as_ref()).as_str())?;
        }
        write!(
            out,
            "{}",
            addresses::text(destination.ok().as_ref()).as_str()
        )
    });
    write_text(&to, text.as_bytes())
}
