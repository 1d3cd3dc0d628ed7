//! Certificates for servers of tests, and what becomes of a webhook whose server has a wrong one.

use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::http::{Line, Say, Server};
use super::{Bench, event, limits};

/// A certificate for `name` that no client trusts yet, and a server's configuration with it.
pub fn certificate(name: &str) -> (Vec<u8>, Arc<ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).unwrap();
    let der = made.cert.der().to_vec();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(der.clone())], key)
        .unwrap();
    (der, Arc::new(config))
}

/// The server's side of TLS; the handshake happens with the first read.
pub fn accept(config: &Arc<ServerConfig>, stream: TcpStream) -> impl Line + use<> {
    StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream)
}

fn server(config: Arc<ServerConfig>) -> Server {
    Server::with(vec![Say::status("200 OK")], move |stream| Some(Box::new(accept(&config, stream))))
}

#[test]
fn an_event_arrives_through_tls() {
    let (root, config) = certificate("127.0.0.1");
    let server = server(config);
    let bench = Bench::trusting(vec![root]);
    bench.webhook(&server.url("/").replace("http:", "https:"));
    bench.alerts.offer(&event(7, "critical"));
    assert_eq!(server.asked().json()["number"], 7);
    bench.hook_when(|hook| hook.delivered == 1);
}

/// A server whose certificate is not good for it gets no event.
fn check_distrusted(roots: Vec<Vec<u8>>, config: Arc<ServerConfig>) {
    let server = server(config);
    let bench = Bench::trusting(roots);
    bench.webhook(&server.url("/").replace("http:", "https:"));
    bench.alerts.offer(&event(7, "critical"));
    for pause in limits().backoff {
        bench.hand.pass(pause);
    }
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("no TLS with 127.0.0.1"), "{hook:?}");
    assert!(!server.was_asked());
}

#[test]
fn a_server_that_cannot_show_who_it_is_gets_nothing() {
    let (trusted, _) = certificate("127.0.0.1");
    let (_, unknown) = certificate("127.0.0.1");
    check_distrusted(vec![trusted], unknown);
    let (other, of_other) = certificate("example.org");
    check_distrusted(vec![other], of_other);
}
