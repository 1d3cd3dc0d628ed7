//! A handshake of OpenSSL's, with at most one key, from bytes that come to bytes that go.

use crate::channel::Channel;
use crate::error::{Alert, TlsError};
use crate::ffi;
use crate::limits::HANDSHAKE_BYTES_MAX;
use crate::pipe::Pipe;
use crate::server::Secured;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslRef,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use std::sync::OnceLock;
use strake_nvme_auth::{Psk, PskHash};

/// Those for the exchange, in the order of preference: what is quick first. All of NVMe/TCP must have the last one
/// (TCP, section 3.6.1.2).
const GROUPS: &str = "X25519:P-384:P-256:ffdhe3072";
const SHA256_SUITE: &str = "TLS_AES_128_GCM_SHA256";
const SHA384_SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// `SSL_R_BINDER_DOES_NOT_VERIFY` of openssl/sslerr.h: the client named a key that it does not know.
const UNPROVEN: i32 = 253;

/// Which side a connection is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What connections of one side have in common: without a key, with one for SHA-256, with one for SHA-384.
struct Contexts([SslContext; 3]);

impl Contexts {
    fn new(side: Side) -> Result<Self, ErrorStack> {
        let both = format!("{SHA384_SUITE}:{SHA256_SUITE}");
        let of = |suites| context(side, suites);
        Ok(Self([of(&both)?, of(SHA256_SUITE)?, of(SHA384_SUITE)?]))
    }

    /// A key goes with its own suite, and OpenSSL would not find another one wrong before it is too late.
    fn of(side: Side, hash: Option<PskHash>) -> Result<&'static SslContext, ErrorStack> {
        static CLIENTS: OnceLock<Result<Contexts, ErrorStack>> = OnceLock::new();
        static SERVERS: OnceLock<Result<Contexts, ErrorStack>> = OnceLock::new();
        let contexts = match side {
            Side::Client => &CLIENTS,
            Side::Server => &SERVERS,
        };
        let Self([any, sha256, sha384]) =
            contexts.get_or_init(|| Self::new(side)).as_ref().map_err(Clone::clone)?;
        Ok(match hash {
            None => any,
            Some(PskHash::Sha256) => sha256,
            Some(PskHash::Sha384) => sha384,
        })
    }
}

/// TLS 1.3 with these suites, and nothing that goes beyond one connection: no tickets, no sessions to come back to.
fn context(side: Side, suites: &str) -> Result<SslContext, ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_ciphersuites(suites)?;
    context.set_groups_list(GROUPS)?;
    context.set_num_tickets(0)?;
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_options(SslOptions::NO_TICKET | SslOptions::NO_COMPRESSION);
    // A client that pretends to come back to a session has to be answered as if it did (RFC 8446, appendix D.4); ours
    // does not pretend.
    match side {
        Side::Client => {
            context.clear_options(SslOptions::ENABLE_MIDDLEBOX_COMPAT);
        }
        Side::Server => {
            context.set_options(SslOptions::ENABLE_MIDDLEBOX_COMPAT);
        }
    }
    ffi::listen(&mut context);
    Ok(context.build())
}

/// Why OpenSSL does not go on with a connection.
pub(crate) fn failure(ssl: &SslRef, error: &openssl::ssl::Error) -> TlsError {
    let errors = error.ssl_error().map(ErrorStack::errors).unwrap_or_default();
    if errors.iter().any(|error| error.reason_code() == UNPROVEN) {
        return TlsError::Breach(Alert::DecryptError);
    }
    match ffi::notes(ssl) {
        Some(ffi::Notes { reported: Some(number), .. }) => TlsError::PeerAlert(*number),
        Some(ffi::Notes { said: Some(number), .. }) => TlsError::Breach(Alert::of(*number)),
        _ => TlsError::Breach(Alert::UnexpectedMessage),
    }
}

/// A handshake under way.
pub(crate) struct Agreement {
    stream: SslStream<Pipe>,
    identity: String,
    /// Bytes that came.
    bytes: usize,
}

impl Agreement {
    /// A client's, which offers this key.
    pub(crate) fn offering(psk: &Psk) -> Result<Self, TlsError> {
        let mut ssl = Ssl::new(Contexts::of(Side::Client, Some(psk.hash))?)?;
        ssl.set_connect_state();
        // A certificate is nothing that we would trust.
        ssl.set_verify(SslVerifyMode::PEER);
        Self::new(ssl, Some(psk))
    }

    /// A server's, which knows one key at most.
    pub(crate) fn knowing(psk: Option<&Psk>) -> Result<Self, TlsError> {
        let mut ssl = Ssl::new(Contexts::of(Side::Server, psk.map(|psk| psk.hash))?)?;
        ssl.set_accept_state();
        Self::new(ssl, psk)
    }

    fn new(mut ssl: Ssl, psk: Option<&Psk>) -> Result<Self, TlsError> {
        ffi::attach(&mut ssl, psk)?;
        let identity = psk.map(|psk| psk.identity.clone()).unwrap_or_default();
        Ok(Self { stream: SslStream::new(ssl, Pipe::default())?, identity, bytes: 0 })
    }

    /// Processes the received message; true when both sides agree.
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<bool, TlsError> {
        self.bytes += input.len();
        if self.bytes > HANDSHAKE_BYTES_MAX {
            return Err(TlsError::Breach(Alert::DecodeError));
        }
        self.stream.get_mut().put(input);
        match self.stream.do_handshake() {
            // Nothing else can have been agreed on, and nothing else would do.
            Ok(()) if !self.stream.ssl().session_reused() => {
                Err(TlsError::Breach(Alert::HandshakeFailure))
            }
            Ok(()) => Ok(true),
            Err(error) if error.code() != ErrorCode::WANT_READ => {
                Err(failure(self.stream.ssl(), &error))
            }
            Err(_) => Ok(false),
        }
    }

    /// What a client called its keys that are not the one we know.
    pub(crate) fn unknown(&self) -> &[Vec<u8>] {
        ffi::notes(self.stream.ssl()).map_or(&[], |notes| &notes.unknown)
    }

    /// What is to be sent.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let pipe = self.stream.get_mut();
        let output = pipe.unsent().to_vec();
        pipe.went(output.len());
        output
    }

    fn into_secured(self) -> Secured {
        Secured { channel: Box::new(Channel::new(self.stream)), identity: self.identity }
    }
}

/// A step of a handshake, which is over with its last.
pub(crate) fn step(
    agreement: &mut Option<Box<Agreement>>,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<Secured>, TlsError> {
    let over = TlsError::Breach(Alert::UnexpectedMessage);
    let under_way = agreement.as_mut().ok_or(over)?;
    let result = under_way.advance(input);
    out.extend(under_way.take_output());
    Ok(if result? { agreement.take().map(|done| done.into_secured()) } else { None })
}

#[cfg(test)]
impl Agreement {
    /// A client's that pretends to come back to a session, as most do.
    pub(crate) fn pretending(psk: &Psk) -> Result<Self, TlsError> {
        let mut ssl = Ssl::new(Contexts::of(Side::Server, Some(psk.hash))?)?;
        ssl.set_connect_state();
        ssl.set_verify(SslVerifyMode::PEER);
        Self::new(ssl, Some(psk))
    }
}
