// SPDX-License-Identifier: GPL-2.0

//! Answers a monitoring system's requests.
//!
//! Clients of the port may be hostile. Requests have a largest size and a longest time, the number
//! of connections is limited, and an invalid request changes nothing. A single thread reads sysfs,
//! however many requests there are; requests that arrive while it reads share the next read.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::header::HeaderValue;
use hyper::header::ACCEPT;
use hyper::header::ALLOW;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::Method;
use hyper::Request;
use hyper::Response;
use hyper::StatusCode;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use tokio::runtime::Builder;
use tokio::sync::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::text;

/// The most connections that are served side by side. Further connections wait until one ends.
const CONNECTIONS: usize = 32;
/// The most bytes of a request's head.
const HEAD_BYTES: usize = 16 * 1024;
/// The most headers of a request.
const HEADERS: usize = 64;
/// The longest time for a request to arrive, and for the kernel to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time of a connection, with request and answer.
const CONNECTION_TIME: Duration = Duration::from_secs(20);
/// The wait after a connection could not be accepted, for example because too many files are open.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// Returns the metrics as OpenMetrics text, or the reason why not. May block.
pub type Source = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Serves until `stop` is ready.
///
/// Only the start can fail: later on, no client can end the service.
pub fn serve(
    listener: TcpListener,
    source: Source,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let exporter = Arc::new(Exporter {
            source,
            last: Arc::default(),
        });
        tokio::spawn(accept(listener, exporter));
        stop.await;
        Ok(())
    });
    // A thread that is still reading from the kernel must not keep the program from ending.
    runtime.shutdown_background();
    result
}

async fn accept(listener: tokio::net::TcpListener, exporter: Arc<Exporter>) {
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
        let exporter = Arc::clone(&exporter);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let exporter = Arc::clone(&exporter);
                async move { Ok::<_, Infallible>(exporter.answer(&request).await) }
            };
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_headers(HEADERS)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // Clients that break off or send nonsense are not reported.
            let _ = timeout(CONNECTION_TIME, connection).await;
            drop(place);
        });
    }
}

/// An answer of the source, and the time when the source was called.
type Read = (Instant, Arc<str>);

struct Exporter {
    source: Source,
    /// The last answer of the source; locked while the source is called.
    last: Arc<Mutex<Option<Read>>>,
}

type Answer = Response<Full<Bytes>>;

impl Exporter {
    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        let head_only = request.method() == Method::HEAD;
        if !head_only && request.method() != Method::GET {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(request.headers()).await,
            "/" => html("<html><title>RNBD</title><a href=\"/metrics\">Metrics</a></html>\n"),
            _ => plain(StatusCode::NOT_FOUND, "only /metrics\n"),
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let asked = Instant::now();
        let text = match timeout(PATIENCE, self.read(asked)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
            }
            Err(_) => {
                return plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the kernel takes too long to respond\n",
                )
            }
        };
        let wants = |value: &HeaderValue| {
            value
                .to_str()
                .is_ok_and(|text| text.contains("application/openmetrics-text"))
        };
        match headers.get_all(ACCEPT).iter().any(wants) {
            true => with_type(text.to_string(), text::OPENMETRICS_CONTENT_TYPE),
            false => with_type(text::from_openmetrics(&text), text::CONTENT_TYPE),
        }
    }

    /// Returns an answer of the source that is not older than the request.
    async fn read(&self, asked: Instant) -> Result<Arc<str>, String> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| *at >= asked) {
            return Ok(Arc::clone(text));
        }
        let source = Arc::clone(&self.source);
        // The thread goes on, and keeps the lock, when the client has run out of patience. So there
        // is never more than one thread in the kernel.
        let read = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let text: Arc<str> = source()?.into();
            *last = Some((begun, Arc::clone(&text)));
            Ok(text)
        });
        read.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    let value = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, value);
    answer
}

fn html(text: &'static str) -> Answer {
    with_type(text.to_owned(), "text/html; charset=utf-8")
}

fn with_type(text: String, content_type: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Whether other machines can reach the address.
pub fn is_public(address: &SocketAddr) -> bool {
    !address.ip().is_loopback()
}
