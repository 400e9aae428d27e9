// SPDX-License-Identifier: GPL-2.0

//! Requests for connections.
//!
//! The first connection of a path makes the path, and the first one of a client its session. What
//! is refused is refused with the errno that the C module gives.

use core::cmp::Ordering;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pr_err_ratelimited,
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
        ConnAccept,
        ConnReject,
        ConnReq,
        CONNECT_TIMEOUT_MS,
        MAX_HDR_SIZE,
        MAX_PATHS_NUM,
        SERVICE_CON_QUEUE_DEPTH, //
    },
    Errno, //
};
use rtrs_core::{
    connection::{
        QueueSizes,
        SERVICE_CID, //
    },
    error::to_errno, //
};

use crate::{
    connection::{
        Connection,
        MAX_BURST, //
    },
    info,
    listener::Listening,
    origin::Origin,
    path::{
        Path,
        Setup, //
    },
    session::Session,
    work::WorkKind, //
};

/// Receives the requests for connections.
pub(crate) struct Acceptor(Arc<Listening>);

impl Acceptor {
    /// Makes one for the sessions of `listening`.
    pub(crate) fn new(listening: Arc<Listening>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(listening), GFP_KERNEL)?)
    }
}

impl cm::Handler for Acceptor {
    fn event(&self, event: cm::Event<'_>) {
        match event {
            cm::Event::ConnectRequest { id, private_data } => {
                connect(&self.0, id, private_data);
            }
            cm::Event::DeviceRemoval => {}
            _ => pr_err_ratelimited!("unexpected event while listening\n"),
        }
    }
}

/// Refuses a connection that has not been taken.
fn reject(id: NewId<'_>, errno: Errno) {
    if let Err(error) = id.reject(&ConnReject { errno }.to_bytes()) {
        pr_err_ratelimited!("refusing a connection failed: {:?}\n", error);
    }
}

/// A client wants a connection.
fn connect(listening: &Arc<Listening>, id: NewId<'_>, private_data: &[u8]) {
    let request = match ConnReq::parse(private_data) {
        Ok(request) => request,
        Err(error) => {
            pr_err_ratelimited!("{}: {}\n", id.peer_address(), error.message().as_str());
            reject(id, error.connect_errno());
            return;
        }
    };
    // The session that is found may be forgotten before it gets its path, if another path that was to
    // be its first one could not be made.
    let unused = connect_to_session(listening, &request, id)
        .or_else(|id| connect_to_session(listening, &request, id));
    if let Err(id) = unused {
        reject(id, Errno::ECONNRESET);
    }
}

/// Makes a connection for the session that the client means, or refuses it. Gives `id` back if the
/// session is gone.
fn connect_to_session<'a>(
    listening: &Arc<Listening>,
    request: &ConnReq,
    id: NewId<'a>,
) -> Result<(), NewId<'a>> {
    let session = match find_or_make_session(listening, request, &id) {
        Ok(session) => session,
        Err(error) => {
            pr_err_ratelimited!("{}: no session: {:?}\n", id.peer_address(), error);
            reject(id, to_errno(error));
            return Ok(());
        }
    };
    let mut paths = session.paths().lock();
    if session.is_gone() {
        return Err(id);
    }
    match find_or_make_path(&session, &mut paths, request, &id) {
        Ok(path) => {
            path.touch();
            make_connection(&path, id, request.cid);
        }
        Err(error) => reject(id, to_errno(error)),
    }
    drop(paths);
    // A session is not kept for a path that could not be made.
    session.remove_if_unused();
    Ok(())
}

/// The session that the client means; its first connection makes it.
fn find_or_make_session(
    listening: &Arc<Listening>,
    request: &ConnReq,
    id: &NewId<'_>,
) -> Result<Arc<Session>> {
    let session = match listening.find_session(&request.paths_uuid) {
        Some(session) => session,
        None if request.first_conn => {
            // Without the lock, as it takes long.
            let session = Session::new(listening, request, id.device().numa_node())?;
            listening.add_session(session)?
        }
        None => {
            pr_err_ratelimited!("the session of a connection request does not exist\n");
            return Err(ENXIO);
        }
    };
    if request.cid == SERVICE_CID {
        check_given_up(&session, request, id)?;
    }
    Ok(session)
}

/// `ECONNRESET` if the client has given up requests since `session` was made. Closes the session then.
///
/// They may still be at work here, or be on their way, and the client uses their chunks for others. So
/// it needs a session with other chunks; it comes again, and finds this one gone when no request is
/// at work any more.
fn check_given_up(session: &Session, request: &ConnReq, id: &NewId<'_>) -> Result {
    match request.given_up_since(session.given_up()) {
        Ordering::Equal => return Ok(()),
        Ordering::Greater if session.had_path_from(&Origin::of_request(id)) => {
            pr_err_ratelimited!(
                "<{}>: the client has lost all paths and given up requests, closing the session\n",
                session.name()
            );
            session.close();
        }
        // Nobody may close it who comes from where no path of it came from.
        Ordering::Greater => pr_err_ratelimited!(
            "<{}>: {} is another address than the client's, or one that is new after it has lost all \
             paths: the session is in use until these are closed\n",
            session.name(),
            id.peer_address()
        ),
        // It has been overtaken by a later one of the client, which has made the session.
        Ordering::Less => {}
    }
    Err(ECONNRESET)
}

/// The path that the client means; its first connection makes it.
fn find_or_make_path(
    session: &Arc<Session>,
    paths: &mut KVec<Arc<Path>>,
    request: &ConnReq,
    id: &NewId<'_>,
) -> Result<Arc<Path>> {
    if let Some(path) = paths.iter().find(|path| *path.uuid() == request.sess_uuid) {
        check_known(path, request, id)?;
        return Ok(path.clone());
    }
    make_path(session, paths, request, id)
}

/// `ECONNRESET` unless `path`, which the client names, is one that still gets connections, and this
/// one belongs to it. Closes a path that the client has given up.
fn check_known(path: &Arc<Path>, request: &ConnReq, id: &NewId<'_>) -> Result {
    if Origin::of_path(path) != Origin::of_request(id) {
        // Whoever decides by the path's address has to know that all of it comes from there. Nor
        // may anybody else close it.
        pr_err_ratelimited!(
            "<{}>: connection of another client, {}\n",
            path,
            id.peer_address()
        );
        return Err(ECONNRESET);
    }
    if request.recon_cnt != path.recon_cnt() {
        // The client has given its old connections up, which was not noticed here. It comes
        // again, and then finds them gone. Other connections than the first may be late.
        if request.cid == SERVICE_CID && path.close() {
            pr_err_ratelimited!("<{}>: the client connects again, closing the path\n", path);
        }
        return Err(ECONNRESET);
    }
    if path.state() != ServerState::Connecting {
        pr_err_ratelimited!(
            "<{}>: connection for a path that is {}\n",
            path,
            path.state().as_str()
        );
        return Err(ECONNRESET);
    }
    if request.cid_num != path.num_connections() {
        pr_err_ratelimited!(
            "<{}>: the client changed the number of connections from {} to {}\n",
            path,
            path.num_connections(),
            request.cid_num
        );
        return Err(ECONNRESET);
    }
    Ok(())
}

/// Makes a path and adds it to `paths`, those of `session`.
fn make_path(
    session: &Arc<Session>,
    paths: &mut KVec<Arc<Path>>,
    request: &ConnReq,
    id: &NewId<'_>,
) -> Result<Arc<Path>> {
    if paths.len() >= MAX_PATHS_NUM {
        pr_err_ratelimited!("too many paths of one session\n");
        return Err(ECONNRESET);
    }
    let (local, peer) = (id.local_address(), id.peer_address());
    if let Some(path) = paths
        .iter()
        .find(|path| path.local().same_address(&local) && path.peer().same_address(&peer))
    {
        pr_err_ratelimited!(
            "<{}>: a path with the same addresses exists, {} for {} ms\n",
            path,
            path.state().as_str(),
            path.idle_ms()
        );
        if path.state() == ServerState::Connecting && path.idle_ms() > i64::from(CONNECT_TIMEOUT_MS)
        {
            path.close();
        }
        return Err(EEXIST);
    }
    paths.reserve(1, GFP_KERNEL)?;
    let path = Path::new(session, request, id)
        .inspect_err(|error| pr_err_ratelimited!("making a path failed: {:?}\n", error))?;
    // There is room.
    let _ = paths.push_within_capacity(path.clone());
    Ok(path)
}

/// Makes connection `cid` of `path`, or closes the path.
fn make_connection(path: &Arc<Path>, id: NewId<'_>, cid: u16) {
    let mut setup = path.setup().lock();
    // The path may have been closed since it was found, and then gives nothing back any more.
    let checked = match setup.queue_pairs.get(usize::from(cid)) {
        None => Err(ECONNRESET),
        Some(Some(_)) => {
            pr_err_ratelimited!("<{}>: connection {} exists already\n", path, cid);
            Err(ECONNRESET)
        }
        Some(None) if path.state() != ServerState::Connecting => Err(ECONNRESET),
        Some(None) => Ok(()),
    };
    if let Err(error) = checked {
        reject(id, to_errno(error));
        return;
    }
    if let Err((id, error)) = try_make_connection(path, &mut setup, id, cid) {
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
        drop(setup);
        path.close();
    }
}

/// What is left of a connection that could not be made.
enum Rejectable<'a> {
    New(NewId<'a>),
    Taken(cm::Id<Connection>),
    /// There is nothing to reject.
    Done,
}

/// Makes and accepts connection `cid`.
fn try_make_connection<'a>(
    path: &Arc<Path>,
    setup: &mut Setup,
    id: NewId<'a>,
    cid: u16,
) -> Result<(), (Rejectable<'a>, Error)> {
    let session = path.session();
    let prepared = || -> Result<_> {
        let domain = setup.domain.clone().ok_or(ENOTCONN)?;
        let num_regions = setup
            .memory
            .as_ref()
            .map_or(0, |memory| memory.regions.len());
        let needs = Needs::new(path, id.device(), cid, num_regions)?;
        let completions = CompletionQueue::in_bursts(
            id.device(),
            needs.sizes.completions(id.device())?,
            // Requests of the client's CPU n come by connection n + 1.
            u32::from(cid.saturating_sub(1)),
            &session.context().completions,
        )?;
        let connection = Connection::new(path.clone(), cid, needs.answers, needs.receives)?;
        Ok((domain, needs, completions, connection))
    };
    let (domain, needs, completions, connection) = match prepared() {
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
            &domain,
            &completions,
            &capabilities,
            WorkKind::count(session.queue_depth()),
        )
        .map_err(|(id, error)| (Rejectable::Taken(id), error))?;
    accept(path, setup, &mut queue_pair, cid).map_err(|error| (Rejectable::Done, error))?;
    if let Some(place) = setup.queue_pairs.get_mut(usize::from(cid)) {
        *place = Some(queue_pair);
    }
    Ok(())
}

/// Accepts a connection. If that fails, dropping the queue pair refuses it.
fn accept(
    path: &Path,
    setup: &mut Setup,
    queue_pair: &mut QueuePair<Connection>,
    cid: u16,
) -> Result {
    if cid == SERVICE_CID {
        info::post_request(setup, queue_pair)?;
    }
    let session = path.session();
    let response = ConnAccept {
        // At most 65535, see `ChunkLayout`.
        queue_depth: session.queue_depth() as u16,
        max_io_size: session.max_io_size(),
        max_hdr_size: MAX_HDR_SIZE,
        new_rkey: session.context().settings.always_invalidate,
        features: path.features(),
    };
    let parameters = ConnectionParameters {
        ack_timeout_ms: session.context().settings.ack_timeout_ms,
        ..ConnectionParameters::default()
    };
    queue_pair.accept(&response.to_bytes(), &parameters)
}

/// How many answers a send queue has room for at least, if there are as many chunks. Those that find
/// none wait for their turn, as they do for the wire anyway when a client asks for so many at a time.
const MIN_ANSWERS: u32 = 96;
/// The entries of a send queue that nobody else gets: one that drains it, and the one that soft-RoCE
/// keeps empty.
const RESERVED: u32 = 2;

/// How long to make a send queue that needs `at_least` entries, beside `receives`.
///
/// Devices make queues of a power of two entries, so one more than that would double a queue, and
/// what is left up to it costs nothing.
fn send_entries(at_least: u32, receives: u32) -> u32 {
    let rounded = |entries: u32| {
        let reserved = entries.saturating_add(RESERVED);
        reserved.checked_next_power_of_two().unwrap_or(u32::MAX)
    };
    let most = rounded(at_least).saturating_sub(RESERVED);
    // As many as fit into the shortest queue that has room for the completions, too.
    let completions = rounded(at_least.saturating_add(receives).saturating_add(RESERVED));
    let left = completions.saturating_sub(receives);
    most.min(left.saturating_sub(RESERVED).saturating_sub(RESERVED))
}

/// What a connection needs of its queue pair.
struct Needs {
    sizes: QueueSizes,
    max_send_sge: u32,
    /// How many answers the send queue has room for.
    answers: u32,
    /// How many receives are posted.
    receives: u32,
}

impl Needs {
    /// Computes it for connection `cid`; `num_regions` registrations are made on the first one.
    fn new(path: &Path, device: &Device, cid: u16, num_regions: usize) -> Result<Self> {
        let is_service = cid == SERVICE_CID;
        let queue_depth = path.session().queue_depth();
        let limit = device.max_qp_wr();

        let requests = if is_service {
            SERVICE_CON_QUEUE_DEPTH
        } else {
            queue_depth
        };
        // Whose requests are more than the device has receives for sends some of them again.
        let posted = requests
            .saturating_add(MAX_BURST)
            .min(limit.saturating_sub(1));
        // One for the information request, or that nobody gets.
        let receives = posted.saturating_add(1);

        // Per answer: the data, and two of invalidation, registration and immediate. The invalidation
        // of a chunk takes the room of an answer.
        let per_answer = path.writes_per_answer().saturating_add(2);
        let at_least = queue_depth.saturating_sub(queue_depth / 4).min(MIN_ANSWERS);
        let others = if is_service {
            // Before the first request: all registrations, and the information response.
            u32::try_from(num_regions)?.saturating_add(1)
        } else {
            0
        };
        let entries = others.saturating_add(at_least.saturating_mul(per_answer));
        let entries = send_entries(entries, receives).min(limit);
        let room = entries.saturating_sub(others);
        let answers = queue_depth.min(room.checked_div(per_answer).unwrap_or(0));
        if answers == 0 {
            pr_err_ratelimited!(
                "queue pairs of {} have room for {} work requests, which is too few\n",
                device.name(),
                limit
            );
            return Err(EINVAL);
        }
        Ok(Self {
            sizes: QueueSizes {
                send: entries,
                receive: receives,
            },
            max_send_sge: path.max_send_sge() as u32,
            answers,
            receives: posted,
        })
    }
}
