//! Connections with limits on time and on the received bytes.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, io};

use lettre::transport::smtp::client::AsyncTokioStream;
use native_tls::Certificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_native_tls::TlsStream;

use crate::error::Failure;
use crate::limits::{ADDRESSES_MAX, ANSWER_BYTES_MAX};

/// A connection, unencrypted or with TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug> Stream for T {}

/// Connects to one of the addresses of `host`, which may be a name, an IPv4 or an IPv6 address without brackets.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|e| Failure::passing(format!("cannot find the address of {host}: {e}")))?;
    let mut last = None;
    for address in addresses.take(ADDRESSES_MAX) {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "it has no address".to_string(), |e| e.to_string());
    Err(Failure::passing(format!("cannot connect to {host} port {port}: {why}")))
}

/// Returns the address of the peer.
pub(crate) fn peer(stream: &TcpStream) -> Result<SocketAddr, Failure> {
    stream.peer_addr().map_err(|e| Failure::passing(format!("the connection was lost: {e}")))
}

/// Encrypts `stream` with TLS and authenticates the peer. Trusts `roots` and the certificates of the host. These are
/// read again each time, because certificates expire and system updates change them.
pub(crate) async fn secure<S>(
    stream: S,
    host: &str,
    roots: &[Vec<u8>],
) -> Result<TlsStream<S>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |e| {
        Failure::passing(format!(
            "no TLS with {host}: {e}; the package ca-certificates has the public certificate authorities; if the \
             server has a private one, add that to the host's trusted certificates"
        ))
    };
    let mut builder = native_tls::TlsConnector::builder();
    for root in roots {
        builder.add_root_certificate(Certificate::from_der(root).map_err(failed)?);
    }
    let connector = tokio_native_tls::TlsConnector::from(builder.build().map_err(failed)?);
    connector.connect(certified(host), stream).await.map_err(failed)
}

/// Returns the name of a host in the form of certificates: without the final dot of a complete name.
pub(crate) fn certified(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// A stream that fails after [`ANSWER_BYTES_MAX`] received bytes, so that the peer cannot fill the memory of this
/// process.
#[derive(Debug)]
pub(crate) struct Bounded {
    stream: Box<dyn Stream>,
    peer: SocketAddr,
    left: usize,
}

impl Bounded {
    pub(crate) fn new(stream: Box<dyn Stream>, peer: SocketAddr) -> Self {
        Self { stream, peer, left: ANSWER_BYTES_MAX }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("the answer is too long")));
        }
        let before = buffer.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(context, buffer);
        let got = buffer.filled().len() - before;
        self.left = self.left.saturating_sub(got);
        done
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for Bounded {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}
