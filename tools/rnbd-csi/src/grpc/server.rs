// SPDX-License-Identifier: GPL-2.0

//! Serves calls on a Unix socket.
//!
//! Only root can connect. Requests have a largest size and a longest time to arrive. A call that
//! blocks runs on a thread of its own, and goes on if its client gives up: the same call comes
//! again, and finds what this one has done.

use std::convert::Infallible;
use std::future::ready;
use std::future::Future;
use std::future::Ready;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::WithTrailers;
use http_body_util::BodyExt;
use http_body_util::Full;
use http_body_util::Limited;
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::header::HeaderValue;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::Method;
use hyper::Request;
use hyper::Response;
use hyper::StatusCode;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use rustix::fs::Mode;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::frame;
use super::Code;
use super::Result;
use super::Status;

/// The most connections that are served side by side; others wait until one ends.
const CONNECTIONS: usize = 64;
/// The most calls of a connection side by side.
const CALLS: u32 = 256;
/// The longest time for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long calls may go on when the program is told to end.
const END_TIME: Duration = Duration::from_secs(20);
/// The wait after a connection could not be accepted, as when there are too many open files.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What answers calls.
pub(crate) trait Service: Send + Sync + 'static {
    /// Whether a call never blocks.
    fn is_quick(&self, path: &str) -> bool;

    /// Answers the call of `path`, as `/csi.v1.Node/NodeGetInfo`, with the request's message.
    fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>>;
}

/// Listens at `path`, for root only. The socket of a driver that was killed is replaced; that of
/// one that is there is not, as two drivers do not know of each other's calls. Must be called while
/// the program has one thread only.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::other("a driver listens already; end it first")),
            Err(_) => std::fs::remove_file(path)?,
        },
        Ok(_) => return Err(io::Error::other("the file is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(error),
    }
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let listener = made_folder(path).and_then(|()| UnixListener::bind(path));
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes the folder of a socket if it is not there: `/run` is empty when a machine has booted.
fn made_folder(socket: &Path) -> io::Result<()> {
    match socket.parent().map(std::fs::create_dir) {
        Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Serves until the program is told to end. Calls that go on then have some time to end.
pub(crate) fn serve(listener: UnixListener, service: Arc<dyn Service>) -> io::Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let stop = told_to_end()?;
        let accepting = tokio::spawn(accept(listener, service));
        stop.await;
        accepting.abort();
        Ok(())
    });
    runtime.shutdown_timeout(END_TIME);
    result
}

/// Ends when the program is told to end.
fn told_to_end() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::signal;
    use tokio::signal::unix::SignalKind;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut terminated = Box::pin(terminate.recv());
        let mut interrupted = Box::pin(interrupt.recv());
        std::future::poll_fn(|context| {
            let is_told = terminated.as_mut().poll(context).is_ready()
                || interrupted.as_mut().poll(context).is_ready();
            match is_told {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    })
}

async fn accept(listener: tokio::net::UnixListener, service: Arc<dyn Service>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let respond = |request: Request<Incoming>| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(respond(service, request).await) }
            };
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(CALLS)
                .serve_connection(TokioIo::new(stream), service_fn(respond));
            // Clients that break off or talk nonsense are no news.
            let _ = connection.await;
            drop(place);
        });
    }
}

type Trailers = Ready<Option<std::result::Result<HeaderMap, Infallible>>>;
type Body = WithTrailers<Full<Bytes>, Trailers>;

async fn respond(service: Arc<dyn Service>, request: Request<Incoming>) -> Response<Body> {
    if !is_grpc(&request) {
        let mut response = Response::new(body(Vec::new(), None));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let path = request.uri().path().to_owned();
    let result = call(service, path, request).await;
    let framed = result.and_then(|message| frame::framed(&message).map_err(Status::internal));
    let mut response = match framed {
        Ok(frame) => Response::new(body(frame, Some(&Ok(())))),
        Err(status) => Response::new(body(Vec::new(), Some(&Err(status)))),
    };
    let kind = HeaderValue::from_static(super::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    request.method() == Method::POST
        && kind.is_some_and(|kind| kind.starts_with(super::CONTENT_TYPE))
}

async fn call(
    service: Arc<dyn Service>,
    path: String,
    request: Request<Incoming>,
) -> Result<Vec<u8>> {
    let encoding = request.headers().get(super::ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        let why = "compressed requests are not supported";
        return Err(Status::new(Code::Unimplemented, why));
    }
    let limited = Limited::new(request.into_body(), super::MESSAGE_BYTES);
    let body = match timeout(PATIENCE, limited.collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) => {
            let why = format!("the request cannot be read: {error}");
            return Err(Status::new(Code::ResourceExhausted, why));
        }
        Err(_) => return Err(Status::invalid("the request has not arrived in time")),
    };
    let is_quick = service.is_quick(&path);
    let run = move || {
        let message = frame::unframed(&body).map_err(Status::internal)?;
        service.call(&path, message)
    };
    // So questions whether the driver lives are answered while all threads wait for a server.
    if is_quick {
        return run();
    }
    tokio::task::spawn_blocking(run)
        .await
        .unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

/// A body with the status of a call in its trailers.
fn body(bytes: Vec<u8>, status: Option<&Result>) -> Body {
    let trailers = status.map(|status| Ok(trailers(status)));
    Full::new(Bytes::from(bytes)).with_trailers(ready(trailers))
}

fn trailers(status: &Result) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let number = status
        .as_ref()
        .err()
        .map_or(0, |status| status.code.number());
    trailers.insert(super::STATUS, HeaderValue::from(u16::from(number)));
    if let Err(status) = status {
        // It is printable ASCII then.
        if let Ok(message) = HeaderValue::from_str(&frame::escaped(&status.message)) {
            trailers.insert(super::MESSAGE, message);
        }
    }
    trailers
}
