// SPDX-License-Identifier: GPL-2.0

//! The connections of a path, which the client asks for one by one.

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        cm::{
            self,
            ConnectionParameters,
            NewId, //
        },
        Capabilities,
        CompletionQueue,
        Device,
        QueuePair, //
    }, //
};
use proto::{
    path_state::ServerState,
    rtrs::{
        auth::{
            self,
            ConnectionCode, //
        },
        ConnAccept,
        ConnReject,
        MAX_HDR_SIZE, //
    },
    Errno, //
};
use rtrs_core::{
    address::RESOURCE_OWNER,
    connection::{
        QueueSizes,
        RESERVED,
        SERVICE_CID, //
    },
    error::to_errno,
    identity::KernelMac, //
};

use crate::{
    connection::{
        Connection,
        MAX_BURST, //
    },
    establish::{
        self,
        OTHERS_PER_RESPONSE,
        REGISTRATIONS_AT_A_TIME, //
    },
    operation::PathIo,
    path::{
        Path,
        PathState,
        Setup, //
    },
    wr_kind::WrKind, //
};

/// Refuses a connection that has not been taken.
pub(crate) fn reject(id: NewId<'_>, errno: Errno) {
    if let Err(error) = id.reject(&ConnReject { errno }.to_bytes()) {
        pr_err_ratelimited!("refusing a connection failed: {:?}\n", error);
    }
}

/// Makes connection `cid` of `path`, or closes the path. `code` proves that the connection belongs
/// to the path, if the client has offered a proof of its identity. Sleeps.
pub(crate) fn make_connection(path: &Arc<Path>, id: NewId<'_>, cid: u16, code: &ConnectionCode) {
    let mut state = path.state().lock();
    let checked = match &mut *state {
        PathState::Connecting(setup) if path.core().state() == ServerState::Connecting => {
            let next = setup.queue_pairs.len();
            if usize::from(cid) != next {
                pr_err_ratelimited!(
                    "<{}>: refused: connection {}, as connection {} is the next\n",
                    path,
                    cid,
                    next
                );
                Err(ECONNRESET)
            } else if may_be_made(path, setup, &id, cid, code) {
                Ok(setup)
            } else {
                Err(EKEYREJECTED)
            }
        }
        // The path has been closed or established since it was found.
        _ => Err(ECONNRESET),
    };
    let setup = match checked {
        Ok(setup) => setup,
        Err(error) => return reject(id, to_errno(error)),
    };
    if let Err((id, error)) = try_make_connection(path, setup, id, cid) {
        pr_err_ratelimited!(
            "<{}>: making connection {} failed: {:?}\n",
            path,
            cid,
            error
        );
        let errno = to_errno(error);
        match id {
            Rejectable::New(id) => reject(id, errno),
            Rejectable::Taken(mut id) => {
                let _ = id.reject(&ConnReject { errno }.to_bytes());
            }
            Rejectable::Done => {}
        }
        drop(state);
        path.close();
    }
}

/// Whether connection `cid` belongs to the path. The path stays if it does not: a stranger must not
/// be able to close the path.
fn may_be_made(
    path: &Path,
    setup: &Setup,
    id: &NewId<'_>,
    cid: u16,
    code: &ConnectionCode,
) -> bool {
    let Some(handshake) = &setup.handshake else {
        return true;
    };
    if cid == SERVICE_CID || handshake.admits(&KernelMac, cid, id.queue_pair(), code) {
        return true;
    }
    path.context().admission.count_auth_failure();
    pr_err_ratelimited!(
        "<{}>: refused: connection {} without a proof that it belongs to the path\n",
        path,
        cid
    );
    false
}

/// The means by which a connection that could not be made is rejected.
enum Rejectable<'a> {
    New(NewId<'a>),
    Taken(cm::Id<Connection<PathIo>>),
    /// There is nothing left to reject.
    Done,
}

/// Makes and accepts connection `cid`.
fn try_make_connection<'a>(
    path: &Arc<Path>,
    setup: &mut Setup,
    id: NewId<'a>,
    cid: u16,
) -> Result<(), (Rejectable<'a>, Error)> {
    let queue_depth = path.context().settings.layout.queue_depth();
    let mut prepare = || -> Result<_> {
        if cid != SERVICE_CID {
            // The first connection was counted with the path.
            path.ticket().connection()?;
        }
        setup.queue_pairs.reserve(1, GFP_KERNEL)?;
        let needs = Needs::new(path, id.device(), cid)?;
        let completions = CompletionQueue::in_bursts(
            id.device(),
            RESOURCE_OWNER,
            needs.sizes.completions(id.device())?,
            // Requests of the client's CPU n come by connection n + 1.
            cid.checked_sub(1).map_or(0, u32::from),
            &path.context().completions,
        )?;
        let (send_entries, receives) = (needs.send_entries, needs.receives);
        let connection = Connection::new(path.core(), path.clone(), cid, send_entries, receives)?;
        Ok((needs, completions, connection))
    };
    let (needs, completions, connection) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Err((Rejectable::New(id), error)),
    };
    let id = match id.take(connection) {
        Ok(id) => id,
        Err(error) => return Err((Rejectable::Done, error)),
    };
    let capabilities = Capabilities {
        max_send_wr: needs.sizes.send,
        max_recv_wr: needs.sizes.receive,
        max_send_sge: needs.max_send_sge,
        max_recv_sge: 1,
    };
    let mut queue_pair = id
        .create_queue_pair(
            &setup.domain,
            &completions,
            &capabilities,
            WrKind::count(queue_depth),
        )
        .map_err(|(id, error)| (Rejectable::Taken(id), error))?;
    accept(path, setup, &mut queue_pair, cid).map_err(|error| (Rejectable::Done, error))?;
    // There is room.
    let _ = setup.queue_pairs.push_within_capacity(queue_pair);
    Ok(())
}

/// Accepts a connection. If that fails, dropping the queue pair refuses it.
fn accept(
    path: &Path,
    setup: &mut Setup,
    queue_pair: &mut QueuePair<Connection<PathIo>>,
    cid: u16,
) -> Result {
    if cid == SERVICE_CID {
        establish::post_requests(setup, queue_pair)?;
    }
    let settings = &path.context().settings;
    let response = ConnAccept {
        // At most 65535, see `ChunkLayout`.
        queue_depth: settings.layout.queue_depth() as u16,
        max_io_size: settings.max_io_size,
        max_hdr_size: MAX_HDR_SIZE,
        new_rkey: settings.always_invalidate,
        features: path.core().features(),
    };
    let parameters = ConnectionParameters {
        ack_timeout_ms: settings.ack_timeout_ms,
        ..ConnectionParameters::default()
    };
    let mut response = response.to_bytes();
    if let Some(nonce) = setup.handshake.as_ref().and_then(|it| it.nonce()) {
        auth::put_nonce(&mut response, nonce);
    }
    queue_pair.accept(&response, &parameters)
}

/// The least number of responses that a send queue has room for, if there are as many chunks.
/// Further responses wait for room. A client that asks for so many at a time makes responses wait
/// for the wire anyway.
const MIN_RESPONSES: u32 = 96;
/// The same for the service connection, which any peer gets and which carries few requests.
const MIN_SERVICE_RESPONSES: u32 = 8;
/// The receives of the service connection. A client that sends more service requests at a time has
/// to send some of them again.
const SERVICE_RECEIVES: u32 = 128;
/// Returns the length of a send queue that needs `at_least` entries, on a connection with
/// `receives` receives. `EOVERFLOW` if the length has more than 32 bits.
///
/// The length is a power of two without [`RESERVED`]: the entries up to it cost nothing.
fn send_entries(at_least: u32, receives: u32) -> Result<u32> {
    let rounded = |entries: u32| {
        let reserved = sum(entries, RESERVED)?;
        let rounded = reserved.checked_next_power_of_two().ok_or(EOVERFLOW)?;
        difference(rounded, RESERVED)
    };
    // The send queue gets no longer than the shortest completion queue has room for, beside the
    // receives.
    let completions = rounded(sum(sum(at_least, receives)?, RESERVED)?)?;
    let left = difference(difference(completions, receives)?, RESERVED)?;
    Ok(rounded(at_least)?.min(left))
}

fn sum(a: u32, b: u32) -> Result<u32> {
    a.checked_add(b).ok_or(EOVERFLOW)
}

fn difference(a: u32, b: u32) -> Result<u32> {
    a.checked_sub(b).ok_or(EINVAL)
}

/// The needs of a connection's queue pair.
struct Needs {
    sizes: QueueSizes,
    max_send_sge: u32,
    /// The entries of the send queue that responses and invalidations may use.
    send_entries: u32,
    /// How many receives are posted.
    receives: u32,
}

impl Needs {
    /// Computes the needs of connection `cid`.
    fn new(path: &Path, device: &Device, cid: u16) -> Result<Self> {
        let is_service = cid == SERVICE_CID;
        let queue_depth = path.context().settings.layout.queue_depth();
        let limit = device.max_qp_wr();

        let (requests, min_responses) = if is_service {
            (SERVICE_RECEIVES, MIN_SERVICE_RESPONSES)
        } else {
            (queue_depth, MIN_RESPONSES)
        };
        // If the device has fewer receives than the client has requests, the client sends some of
        // them again.
        let posted = sum(requests, MAX_BURST)?.min(difference(limit, 1)?);
        // One more for the information request; only the service connection uses it.
        let receives = sum(posted, 1)?;

        // The work requests of a response whose chunk is one block of memory: one for the data, and
        // the others.
        let per_response = sum(1, OTHERS_PER_RESPONSE)?;
        let at_least = difference(queue_depth, queue_depth / 4)?.min(min_responses);
        let others = if is_service {
            // Before the first request: registrations, and the information response.
            sum(u32::try_from(REGISTRATIONS_AT_A_TIME)?, 1)?
        } else {
            0
        };
        let entries = at_least.checked_mul(per_response).ok_or(EOVERFLOW)?;
        // Room for one response at least, if its chunk is made of single pages.
        let pages = path.context().settings.layout.chunk_size() as usize / PAGE_SIZE;
        let writes = u32::try_from(pages.div_ceil(path.max_send_sge()))?;
        let entries = entries.max(sum(writes, OTHERS_PER_RESPONSE)?);
        let entries = send_entries(sum(others, entries)?, receives)?.min(limit);
        // The device may not even have room for `others`, or for one response.
        let room = entries.checked_sub(others);
        let Some(room) = room.filter(|&room| room >= per_response) else {
            pr_err_ratelimited!(
                "queue pairs of {} have room for {} work requests, which is too few: load \
                 rtrs_server with a smaller sess_queue_depth or max_chunk_size\n",
                device.name(),
                limit
            );
            return Err(EINVAL);
        };
        Ok(Self {
            sizes: QueueSizes {
                send: entries,
                receive: receives,
            },
            max_send_sge: path.max_send_sge() as u32,
            send_entries: room,
            receives: posted,
        })
    }
}
