// SPDX-License-Identifier: GPL-2.0

//! Makes a call, as an orchestrator does.

use std::path::Path;
use std::time::Duration;

use http_body_util::BodyExt;
use http_body_util::Full;
use http_body_util::Limited;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::HeaderMap;
use hyper::header::CONTENT_TYPE;
use hyper::header::TE;
use hyper::Request;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use super::frame;
use super::Code;

/// How long a driver may be silent before it is asked for a sign of life, and how long it may take
/// to give the sign. A call itself may take longer: the driver gives the sign meanwhile.
const SILENCE: Duration = Duration::from_secs(10);

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With a message.
    Response(Vec<u8>),
    /// With the name of a code, and a text.
    Failed(&'static str, String),
}

/// Calls `method`, as `/csi.v1.Node/NodeGetInfo`, at the socket `socket`.
///
/// The error is in words, and means that it is not known how the call ended.
pub(crate) fn call(socket: &Path, method: &str, request: &[u8]) -> Result<Ended, String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(exchange(socket, method, frame::framed(request)?))
}

async fn exchange(socket: &Path, method: &str, frame: Vec<u8>) -> Result<Ended, String> {
    let text = |error: hyper::Error| format!("{}: {error}", socket.display());
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| format!("{}: {error}", socket.display()))?;
    // A socket may be carried to another machine, and outlive that machine's power.
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(SILENCE)
        .keep_alive_timeout(SILENCE)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    // It ends with the sender; how is in what the sender gives.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let request = Request::post(format!("http://localhost{method}"))
        .header(CONTENT_TYPE, super::CONTENT_TYPE)
        .header(TE, "trailers")
        .body(Full::new(Bytes::from(frame)))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(text)?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, super::MESSAGE_BYTES)
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    // Without a message the status may be in the headers.
    let headers = match parts.headers.contains_key(super::STATUS) {
        true => parts.headers,
        false => trailers,
    };
    ended(&headers, &body.to_bytes())
        .map_err(|why| format!("{}: {why} (HTTP status {})", socket.display(), parts.status))
}

fn ended(headers: &HeaderMap, body: &[u8]) -> Result<Ended, String> {
    let status: usize = headers
        .get(super::STATUS)
        .and_then(|status| status.to_str().ok()?.parse().ok())
        .ok_or("the response has no status of gRPC")?;
    match status {
        0 => frame::unframed(body).map(|message| Ended::Response(message.to_vec())),
        number => {
            let message = headers.get(super::MESSAGE);
            let message = message.map(|message| frame::unescaped(message.as_bytes()));
            Ok(Ended::Failed(
                Code::name_of(number),
                message.unwrap_or_default(),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::super::server;
    use super::super::server::Service;
    use super::super::Result;
    use super::super::Status;
    use super::*;

    struct Echo;

    impl Service for Echo {
        fn is_quick(&self, path: &str) -> bool {
            path == "/quick"
        }

        fn call(&self, path: &str, request: &[u8]) -> Result<Vec<u8>> {
            match path {
                "/quick" | "/slow" => Ok(request.to_vec()),
                _ => Err(Status::not_found("no 100%: \u{e4}")),
            }
        }
    }

    #[test]
    fn calls_go_over_a_socket_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rnbd-csi/csi.sock");
        drop(server::listen(&socket).unwrap());
        // Only root can come in.
        for path in [&socket, socket.parent().unwrap()] {
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{path:?}");
        }
        // What a killed driver has left is replaced.
        let listener = server::listen(&socket).unwrap();
        std::thread::spawn(move || server::serve(listener, Arc::new(Echo)));
        for path in ["/quick", "/slow"] {
            for message in [&b""[..], b"abc", &[7; 100_000]] {
                let ended = call(&socket, path, message);
                assert_eq!(ended, Ok(Ended::Response(message.to_vec())), "{path}");
            }
        }
        let ended = call(&socket, "/other", b"");
        assert_eq!(
            ended,
            Ok(Ended::Failed("NOT_FOUND", "no 100%: \u{e4}".into()))
        );
        let ended = call(&socket, "/quick", &vec![0; super::super::MESSAGE_BYTES]);
        assert!(
            matches!(ended, Ok(Ended::Failed("RESOURCE_EXHAUSTED", _)) | Err(_)),
            "{ended:?}"
        );
        // The next driver does not push it aside.
        assert!(server::listen(&socket).is_err());
        assert!(call(&socket, "/quick", b"").is_ok());
        let missing = call(&folder.path().join("nothing"), "/quick", b"");
        assert!(missing.is_err_and(|why| why.contains("nothing")));
    }

    #[test]
    fn what_is_no_socket_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("precious");
        std::fs::write(&file, "x").unwrap();
        assert!(server::listen(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
    }
}
