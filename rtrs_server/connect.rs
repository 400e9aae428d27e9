// SPDX-License-Identifier: GPL-2.0

//! Requests for connections.
//!
//! The first connection of a path makes the path, and the first connection of a client makes its
//! session. A refusal has the errno that the C module gives.
//!
//! A client that has given up requests gets no path of its old session, and a new session when the
//! old one is gone (`check_given_up()`): rule 3 of failover in Documentation/design.md.

use core::cmp::Ordering;
use kernel::sync::Arc;
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::cm::{
        self,
        NewId, //
    }, //
};
use proto::{
    path_state::ServerState,
    rtrs::{
        auth::ConnectionCode,
        ConnReq,
        FEATURE_AUTH,
        MAX_PATHS_NUM, //
    },
    Errno, //
};
use rtrs_core::{
    address::{
        host_address,
        Shown, //
    },
    connection::SERVICE_CID,
    error::to_errno, //
};

use crate::{
    accept::{
        make_connection,
        reject, //
    },
    origin::Origin,
    path::Path,
    session::{
        Session,
        SessionOwner, //
    },
    sessions::Sessions, //
};

/// Receives the requests for connections.
pub(crate) struct Acceptor(Arc<Sessions>);

impl Acceptor {
    /// Makes an acceptor for `sessions`.
    pub(crate) fn new(sessions: Arc<Sessions>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(sessions), GFP_KERNEL)?)
    }
}

impl cm::EventHandler for Acceptor {
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

/// What a client asks for.
struct Asked {
    request: ConnReq,
    /// The proof that the connection belongs to its path, if the client has offered a proof of
    /// identity.
    code: ConnectionCode,
}

/// Handles a client's request for a connection.
fn connect(sessions: &Arc<Sessions>, id: NewId<'_>, private_data: &[u8]) {
    let request = match ConnReq::parse(private_data) {
        Ok(request) => request,
        Err(error) => {
            pr_err_ratelimited!(
                "{}: {}\n",
                Shown(id.peer_address()),
                error.message().as_str()
            );
            reject(id, error.connect_errno());
            return;
        }
    };
    let asked = Asked {
        request,
        code: ConnectionCode::of_request(private_data),
    };
    // The session that is found may be removed before it gets this path, if another path that was
    // to be its first one could not be made. So there is a second attempt.
    let unused = connect_to_session(sessions, &asked, id)
        .or_else(|id| connect_to_session(sessions, &asked, id));
    if let Err(id) = unused {
        reject(id, Errno::ECONNRESET);
    }
}

/// Makes a connection for the session that the client means, or refuses it. Returns `id` if the
/// session is gone.
fn connect_to_session<'a>(
    sessions: &Arc<Sessions>,
    asked: &Asked,
    id: NewId<'a>,
) -> Result<(), NewId<'a>> {
    let request = &asked.request;
    let session = match find_or_make_session(sessions, request, &id) {
        Ok(session) => session,
        Err(error) => {
            if error != EHOSTDOWN && error != ENOKEY {
                pr_err_ratelimited!(
                    "{}: the client gets no session: {:?}\n",
                    Shown(id.peer_address()),
                    error
                );
            }
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
            make_connection(&path, id, request.cid, &asked.code);
        }
        Err(error) => reject(id, to_errno(error)),
    }
    drop(paths);
    // A session is not kept for a path that could not be made.
    session.remove_if_unused();
    Ok(())
}

/// Returns the session that the client means; the client's first connection makes the session.
fn find_or_make_session(
    sessions: &Arc<Sessions>,
    request: &ConnReq,
    id: &NewId<'_>,
) -> Result<Arc<Session>> {
    check_offered(sessions, request, id)?;
    let session = match sessions.find(&request.paths_uuid) {
        Some(session) => session,
        None if request.first_conn && request.cid == SERVICE_CID => {
            let server = sessions.server()?;
            server.admits(id.client().map(host_address))?;
            let (context, needs) = (sessions.context(), server.needs());
            let session = Session::new(sessions.clone(), context, request, needs)?;
            sessions.add(session)?
        }
        None => {
            pr_err_ratelimited!(
                "{}: refused: connection {} of a session that does not exist\n",
                Shown(id.peer_address()),
                request.cid
            );
            return Err(ENXIO);
        }
    };
    if request.cid == SERVICE_CID {
        check_given_up(&session, request, id)?;
    }
    Ok(session)
}

/// `ENOKEY` if clients have to prove their identity and this client does not offer that; this is
/// logged.
fn check_offered(sessions: &Sessions, request: &ConnReq, id: &NewId<'_>) -> Result {
    let context = sessions.context();
    let offers = request.features & FEATURE_AUTH != 0;
    if request.cid != SERVICE_CID || offers || !context.settings.require_auth {
        return Ok(());
    }
    context.admission.count_auth_failure();
    pr_err_ratelimited!(
        "{}: refused: require_auth is set, and the client does not offer a proof of identity; it \
         needs a key (rnbdctl key), which clients of mainline Linux cannot have\n",
        Shown(id.peer_address())
    );
    Err(ENOKEY)
}

/// `ECONNRESET` unless the client tells the count of given up requests with which `session` was
/// made. Closes the session if the count is greater and a path from the client's address was up.
///
/// The requests that were given up may still be at work here, or be on their way, and the client
/// uses their chunks for other requests. So the client needs a session with other chunks. It comes
/// again, and finds this session gone when no request of the session is at work any more.
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
        // A client must not close a session of which no path came from the client's address.
        Ordering::Greater => pr_err_ratelimited!(
            "<{}>: refused: {} is not an address of the session's client, or is new to it after it \
             has lost all paths: wait until the old paths are closed, or write 1 to their \
             disconnect\n",
            session.name(),
            Shown(id.peer_address())
        ),
        // A later connection request of the client has overtaken this one, and has made the
        // session.
        Ordering::Less => {}
    }
    Err(ECONNRESET)
}

/// Returns the path that the client means; the path's first connection makes it.
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
    if request.cid != SERVICE_CID {
        // A client makes the connections in their order, so the path of this connection has been
        // closed.
        pr_err_ratelimited!(
            "<{}>: refused: connection {} of a path that does not exist, from {}\n",
            session.name(),
            request.cid,
            Shown(id.peer_address())
        );
        return Err(ECONNRESET);
    }
    make_path(session, paths, request, id)
}

/// `ECONNRESET` unless `path`, which the client names, still gets connections and this connection
/// belongs to it. Closes a path whose old connections the client has lost.
fn check_known(path: &Arc<Path>, request: &ConnReq, id: &NewId<'_>) -> Result {
    if Origin::of_path(path) != Origin::of_request(id) {
        // A decision by the path's address has to be right for all of its connections. Nor may a
        // client from another address close the path.
        pr_err_ratelimited!(
            "<{}>: refused: a connection from {}, which is not the client of the path\n",
            path,
            Shown(id.peer_address())
        );
        return Err(ECONNRESET);
    }
    if request.recon_cnt != path.recon_cnt() {
        // The client has lost its old connections, which was not noticed here. It comes again,
        // and then finds them gone. A connection other than the first may be late, so it does not
        // close the path.
        if request.cid == SERVICE_CID && path.close() {
            pr_err_ratelimited!("<{}>: the client connects again, closing the path\n", path);
        }
        return Err(ECONNRESET);
    }
    if path.core().state() != ServerState::Connecting {
        pr_err_ratelimited!(
            "<{}>: refused: a connection for a path that is {}\n",
            path,
            path.core().state().as_str()
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

/// Makes a path and adds it to `paths`, the paths of `session`.
fn make_path(
    session: &Arc<Session>,
    paths: &mut KVec<Arc<Path>>,
    request: &ConnReq,
    id: &NewId<'_>,
) -> Result<Arc<Path>> {
    if paths.len() >= MAX_PATHS_NUM {
        pr_err_ratelimited!(
            "<{}>: refused: the session has {} paths already, and may have no more\n",
            session.name(),
            paths.len()
        );
        return Err(ECONNRESET);
    }
    let (local, peer) = (id.local_address(), id.peer_address());
    if let Some(path) = paths
        .iter()
        .find(|path| path.core().local().same_host(&local) && path.core().peer().same_host(&peer))
    {
        pr_err_ratelimited!(
            "<{}>: refused: a path with the same addresses exists, {} for {} ms\n",
            path,
            path.core().state().as_str(),
            path.age_ms()
        );
        return Err(EEXIST);
    }
    paths.reserve(1, GFP_KERNEL)?;
    let path = session.new_path(request, id).inspect_err(|error| {
        pr_err_ratelimited!(
            "<{}>: making a path for {} failed: {:?}\n",
            session.name(),
            Shown(id.peer_address()),
            error
        );
    })?;
    // There is room.
    let _ = paths.push_within_capacity(path.clone());
    Ok(path)
}
