//! The HTTP server of metrics. It serves one document, and limits the number and the duration of connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::place::Place;
use super::{Snapshot, text};
use crate::access::{Groups, Visitor};
use crate::args::METRICS;
use crate::shared::Shared;
use crate::socket::{self, Socket};

/// Maximum number of connections at a time. A monitoring system sends a few requests per minute.
pub const CONNECTIONS_MAX: usize = 8;

/// Time limit of a connection from its acceptance to the last byte of the answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a request with its headers; the smallest limit that hyper permits.
const REQUEST_BYTES_MAX: usize = 8192;

/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;

/// Wait after a connection could not be accepted, because descriptors do not become free immediately.
const PAUSE: Duration = Duration::from_millis(100);

enum Listener {
    Unix(UnixListener, Socket),
    Tcp(TcpListener),
}

/// A listener for requests of metrics, which are answered while it is [served](Self::serve).
pub struct Metrics(Listener);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Listens.
///
/// # Errors
/// The address cannot be used.
pub async fn listen(place: &Place, groups: Groups) -> Result<Metrics, String> {
    Ok(Metrics(match place {
        Place::Unix(path) => {
            let (listener, socket) = socket::listen(path, METRICS, groups)?;
            Listener::Unix(listener, socket)
        }
        Place::Loopback(address) => {
            let listener = TcpListener::bind(address).await;
            Listener::Tcp(listener.map_err(|error| cannot_listen(address, &error))?)
        }
    }))
}

/// Creates the folder of a socket, and refuses, before any other step of the start, an address on which [`listen`]
/// would fail.
///
/// # Errors
/// The address cannot be used.
pub fn prepare(place: &Place) -> Result<(), String> {
    match place {
        Place::Unix(path) => socket::prepare(path, METRICS),
        Place::Loopback(address) => {
            let bound = std::net::TcpListener::bind(address).map(drop);
            bound.map_err(|error| cannot_listen(address, &error))
        }
    }
}

fn cannot_listen(address: &SocketAddr, error: &io::Error) -> String {
    format!("cannot listen on {address}: {error}; choose another place with {METRICS}")
}

impl Metrics {
    /// Returns the address as text, with the port that the kernel chose if none was given.
    pub fn place(&self) -> String {
        match &self.0 {
            Listener::Unix(_, socket) => format!("unix:{}", socket.path().display()),
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string())
            }
        }
    }

    /// Answers requests, without an end.
    pub async fn serve(self, shared: Shared) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let stream = match self.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection for metrics could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let answering = answer_all(stream, shared.clone());
            tokio::spawn(async move {
                let _place = place;
                // A client that exceeds the time limit is not logged.
                let _ = tokio::time::timeout(CONNECTION_TIME_MAX, answering).await;
            });
        }
    }

    /// Accepts the next permitted client.
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match &self.0 {
            Listener::Tcp(listener) => Ok(Box::new(listener.accept().await?.0)),
            Listener::Unix(listener, socket) => loop {
                let (stream, _) = listener.accept().await?;
                match socket.admission().identify(&stream) {
                    Ok(Visitor::Known(_)) => return Ok(Box::new(stream)),
                    Ok(Visitor::Stranger(who)) => {
                        tracing::warn!(uid = who.uid, "refused a connection for metrics");
                    }
                    Err(who) => tracing::warn!(%who, "refused a connection for metrics"),
                }
            },
        }
    }
}

async fn answer_all(stream: Box<dyn Stream>, shared: Shared) {
    let service = service_fn(move |request| {
        let (refused, shared) = (refusal(&request), shared.clone());
        async move {
            Ok::<_, Infallible>(match refused {
                Some(response) => response,
                None => document(&shared).await,
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a request for metrics failed");
    }
}

/// Returns the answer to a request for anything other than the metrics; `None` for a request for the metrics.
fn refusal(request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
    if request.uri().path() != "/metrics" {
        return Some(plain(StatusCode::NOT_FOUND, "there is nothing but /metrics\n"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can be read only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    None
}

async fn document(shared: &Shared) -> Response<Full<Bytes>> {
    let socket = Arc::clone(&shared.socket);
    let taken = shared.run(move |manager| Ok(Snapshot::take(manager, &socket))).await;
    match taken {
        Ok(snapshot) => {
            let mut response = Response::new(Full::from(snapshot.text()));
            let kind = HeaderValue::from_static(text::CONTENT_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
