//! Delivery by HTTP.

use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use super::http::{Say, Server};
use super::{Bench, event, hooked, limits, webhook};
use crate::error::AlertErrorKind;
use crate::way::Inside;

#[test]
fn an_event_arrives_as_the_message_of_the_interface() {
    let server = Server::new(vec![Say::status("204 No Content")]);
    let bench = Bench::new();
    bench.webhook(&server.url("/alerts?team=storage"));
    bench.alerts.offer(&event(7, "critical"));
    let asked = server.asked();
    assert_eq!(asked.line, "POST /alerts?team=storage HTTP/1.1");
    assert_eq!(asked.header("strake-event"), Some("7"));
    assert_eq!(asked.header("host"), Some(server.address.to_string().as_str()));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let mut expected = serde_json::to_value(event(7, "critical")).unwrap();
    expected["version"] = 1.into();
    expected["host"] = "node1".into();
    assert_eq!(asked.json(), expected);
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert_eq!((hook.failed, hook.held_back, hook.last_error.as_str()), (0, 0, ""));
}

#[test]
fn what_is_less_bad_than_asked_for_is_not_reported() {
    let server = Server::new(vec![Say::status("200 OK")]);
    let bench = Bench::new();
    let mut spec = webhook(&server.url("/"));
    spec.severity = "warning".into();
    bench.alerts.add(spec).unwrap();
    for (number, severity) in
        [(1, "info"), (2, "warning"), (3, "info"), (4, "critical"), (5, "unheard-of")]
    {
        bench.alerts.offer(&event(number, severity));
    }
    let numbers = [(); 3].map(|()| server.asked().json()["number"].as_u64().unwrap());
    assert_eq!(numbers, [2, 4, 5]);
    bench.hook_when(|hook| hook.delivered == 3);
    assert!(!server.was_asked());
}

#[test]
fn a_server_that_is_down_is_asked_again() {
    let (server, bench) = hooked(vec![
        Say::status("503 Service Unavailable"),
        Say::status("500 No"),
        Say::status("200 OK"),
    ]);
    bench.alerts.offer(&event(7, "info"));
    for pause in limits().backoff {
        assert_eq!(server.asked().header("strake-event"), Some("7"));
        bench.hand.pass(pause);
    }
    assert_eq!(server.asked().header("strake-event"), Some("7"));
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert_eq!(hook.failed, 0);
    assert!(hook.last_error.contains("500"), "{hook:?}");
}

#[test]
fn a_server_that_stays_down_is_given_up() {
    let (server, bench) = hooked(vec![Say::status("503 Service Unavailable")]);
    bench.alerts.offer(&event(1, "info"));
    for pause in limits().backoff {
        server.asked();
        bench.hand.pass(pause);
    }
    server.asked();
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert_eq!((hook.delivered, server.was_asked()), (0, false));
    assert!(hook.last_error.contains("503 Service Unavailable"), "{hook:?}");
}

/// Checks that an event fails after one final answer, that the error contains `why`, and that there is no second try.
fn check_final(say: Say, why: &str) {
    let (server, bench) = hooked(vec![say, Say::status("200 OK")]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains(why), "{hook:?}");
    // The next event is sent immediately, so that the hook did not keep the first.
    bench.alerts.offer(&event(2, "info"));
    assert_eq!(server.asked().header("strake-event"), Some("2"));
}

#[test]
fn a_refusal_is_final() {
    let body = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 13\r\n\r\nno \x1b[31mtoken\n".to_vec();
    check_final(Say::This(body), "it answered 403 Forbidden: no [31mtoken");
    check_final(Say::status("404 Not Found"), "404 Not Found");
    check_final(Say::status("429 Too Many Requests"), "429");
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Server::new(vec![Say::status("200 OK")]);
    let say = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        other.url("/")
    );
    check_final(
        Say::This(say.into_bytes()),
        "it answered 307 with a redirect, which is not followed",
    );
    assert!(!other.was_asked());
}

#[test]
fn a_huge_body_is_not_read() {
    check_final(
        Say::ForEver(
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 1000000000000\r\n\r\n",
            &[b'x'; 65536],
        ),
        "400 Bad Request: xxxx",
    );
}

/// Checks that the next try delivers after an answer that is not final, and that the error contains `why`.
fn check_passing(say: Say, why: &str) {
    let (server, bench) = hooked(vec![say, Say::status("200 OK")]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    bench.hand.pass(limits().backoff[0]);
    server.asked();
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert!(hook.last_error.contains(why), "{hook:?}");
}

#[test]
fn garbage_is_no_answer() {
    check_passing(Say::This(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()), "no HTTP answer");
    check_passing(Say::This(Vec::new()), "no HTTP answer");
    check_passing(Say::This(b"HTTP/1.1 200".to_vec()), "no HTTP answer");
    check_passing(Say::This(vec![0xff; 4096]), "no HTTP answer");
}

#[test]
fn headers_that_do_not_end_are_no_answer() {
    check_passing(Say::ForEver(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"), "no HTTP answer");
    check_passing(Say::ForEver(b"HTTP/1.1 200 OK\r\na: ", &[b'x'; 4096]), "no HTTP answer");
}

#[test]
fn a_slow_server_is_given_a_limited_time() {
    let (server, bench) = hooked(vec![Say::ThenNothing(Vec::new()), Say::status("200 OK")]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    bench.hand.pass(limits().total);
    bench.hand.pass(limits().backoff[0]);
    server.asked();
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert!(hook.last_error.contains("longer than 30 s"), "{hook:?}");
}

#[test]
fn no_listener_at_the_address_is_a_reason_to_try_again() {
    // The port is bound but not listening: no process answers there, and no other can get the port during the test.
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let free = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap().port();
    let bench = Bench::new();
    bench.webhook(&format!("http://127.0.0.1:{free}/"));
    bench.alerts.offer(&event(1, "info"));
    for pause in limits().backoff {
        bench.hand.pass(pause);
    }
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("cannot connect to 127.0.0.1 port"), "{hook:?}");
}

#[test]
fn credentials_are_never_sent_in_the_clear() {
    let server = Server::new(vec![Say::status("200 OK")]);
    let bench = Bench::new();
    bench.webhook(&format!("http://me:s3cret@{}/", server.address));
    bench.alerts.offer(&event(1, "info"));
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("not sent unencrypted"), "{hook:?}");
    assert_eq!(hook.delivered, 0);
}

#[test]
fn credentials_are_sent_and_never_shown() {
    let server = Server::new(vec![Say::status("403 Forbidden")]);
    let bench = Bench::with(Vec::new(), Inside::Loopback);
    let target = format!("http://me:s3cr%3at@{}/services/T0KEN?key=K3Y", server.address);
    bench.webhook(&target);
    bench.alerts.offer(&event(1, "info"));
    let asked = server.asked();
    // "me:s3cr:t" in base64.
    assert_eq!(asked.header("authorization"), Some("Basic bWU6czNjcjp0"));
    assert_eq!(asked.line, "POST /services/T0KEN?key=K3Y HTTP/1.1");
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert_eq!(hook.target, format!("http://***@{}/***", server.address));
    let shown = format!("{hook:?}{:?}{:?}", bench.alerts, webhook(&target));
    for secret in ["s3cr", "T0KEN", "K3Y", "bWU6"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert_eq!(bench.alerts.specs()[0].target, target);
}

/// Checks that `target` is refused, and that the error contains `why`.
fn check_refused(target: &str, why: &str) {
    let error = Bench::new().alerts.add(webhook(target)).unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::Usage);
    assert!(error.what.contains(why), "{error}");
    assert!(!error.what.contains("s3cret"), "{error}");
}

#[test]
fn an_address_that_makes_no_sense_is_refused() {
    check_refused("", "https://example.org/alerts");
    check_refused("example.org/alerts", "https://example.org/alerts");
    check_refused("ftp://u:s3cret@example.org/", "\"ftp\" is not http or https");
    check_refused("file:///etc/passwd", "\"file\" is not http or https");
    check_refused("http://", "https://example.org/alerts");
    check_refused("http://example.org:0/", "port 0");
    check_refused("http://example.org/\r\nx: y", "without spaces");
    check_refused("http://a%3ab:s3cret@example.org/", "colon");
    check_refused(&format!("http://example.org/{}", "x".repeat(3000)), "longer than 2048 bytes");
}
