//! Certificates for servers of tests, and the outcome of a webhook whose server has a wrong one.

use std::net::{IpAddr, TcpStream};

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslAcceptor, SslContext, SslMethod, SslStream};
use openssl::x509::X509;
use openssl::x509::extension::SubjectAlternativeName;

use super::http::{Line, Say, Server};
use super::{Bench, event, limits};
use crate::net::certified;

/// Returns a certificate for `name` that no client trusts yet, and the configuration of a server with it.
pub fn certificate(name: &str) -> (Vec<u8>, SslContext) {
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&curve).unwrap()).unwrap();
    let mut made = X509::builder().unwrap();
    made.set_version(2).unwrap();
    made.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    made.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    made.set_pubkey(&key).unwrap();
    let mut names = SubjectAlternativeName::new();
    match name.parse::<IpAddr>() {
        Ok(_) => names.ip(name),
        Err(_) => names.dns(name),
    };
    let names = names.build(&made.x509v3_context(None, None)).unwrap();
    made.append_extension(names).unwrap();
    made.sign(&key, MessageDigest::sha256()).unwrap();
    let made = made.build();
    let mut config = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    config.set_certificate(&made).unwrap();
    config.set_private_key(&key).unwrap();
    (made.to_der().unwrap(), config.build().into_context())
}

/// Returns the server's side of TLS; the handshake happens at the first read.
pub fn accept(config: &SslContext, stream: TcpStream) -> impl Line + use<> {
    let mut ssl = Ssl::new(config).unwrap();
    ssl.set_accept_state();
    SslStream::new(ssl, stream).unwrap()
}

fn server(config: SslContext) -> Server {
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

/// Checks that a server without a valid certificate receives no event.
fn check_distrusted(roots: Vec<Vec<u8>>, config: SslContext) {
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

#[test]
fn a_complete_name_is_verified_without_its_dot() {
    assert_eq!([certified("example.org."), certified("example.org")], ["example.org"; 2]);
}
