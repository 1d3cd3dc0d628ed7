//! The life of a hook: too many events, removal, and the end.

use std::time::Duration;

use super::http::{Say, Server};
use super::{Bench, PATIENCE, event, hooked, limits, webhook};
use crate::alerts::{KIND_HOOK_FAILED, Stopped};
use crate::error::AlertErrorKind;
use crate::spec::HookSpec;

#[test]
fn what_comes_too_fast_arrives_as_one_sum() {
    let (server, bench) = hooked(vec![Say::status("200 OK")]);
    for number in 1..=20 {
        bench.alerts.offer(&event(number, if number > 17 { "critical" } else { "info" }));
    }
    for number in 1..=3 {
        assert_eq!(server.asked().json()["number"], number);
    }
    bench.hand.pass(limits().interval);
    let sum = server.asked();
    assert_eq!(sum.header("strake-event"), Some("20"));
    let sum = sum.json();
    assert_eq!(sum["kind"], "events_held_back");
    assert_eq!(sum["severity"], "critical");
    assert_eq!(sum["next_action"], "strake event list --last 17");
    let what = sum["what"].as_str().unwrap();
    assert!(
        what.starts_with("17 more events, 3 critical; last: array/tank: member 2 failed (20)"),
        "{what}"
    );
    let hook = bench.hook_when(|hook| hook.delivered == 4);
    assert_eq!((hook.failed, hook.held_back), (0, 17));
}

#[test]
fn a_server_that_hangs_makes_no_caller_wait() {
    let (server, bench) = hooked(vec![Say::ThenNothing(Vec::new()), Say::status("200 OK")]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    // Far more than the queue holds, while the only delivery hangs and the clock is stopped.
    for number in 2..=10_000 {
        bench.alerts.offer(&event(number, "info"));
    }
    bench.hand.pass(limits().total);
    bench.hand.pass(limits().backoff[0]);
    for number in 1..=3 {
        assert_eq!(server.asked().json()["number"], number);
    }
    // The first token became available before the end of this time.
    bench.hand.pass(limits().interval - limits().total - limits().backoff[0]);
    let what = server.asked().json()["what"].as_str().unwrap().to_string();
    assert!(what.starts_with("9997 more events"), "{what}");
}

#[test]
fn one_hook_that_hangs_holds_up_no_other() {
    let slow = Server::new(vec![Say::ThenNothing(Vec::new())]);
    let good = Server::new(vec![Say::status("200 OK")]);
    let bench = Bench::new();
    bench.webhook(&slow.url("/"));
    bench.alerts.add(HookSpec { name: "zzz".into(), ..webhook(&good.url("/")) }).unwrap();
    bench.alerts.offer(&event(1, "info"));
    slow.asked();
    bench.alerts.offer(&event(2, "info"));
    assert_eq!([(); 2].map(|()| good.asked().json()["number"].as_u64()), [Some(1), Some(2)]);
}

#[test]
fn a_removed_hook_is_notified_nothing_more() {
    let (server, bench) = hooked(vec![Say::ThenNothing(Vec::new()), Say::status("200 OK")]);
    bench.alerts.offer(&event(1, "info"));
    bench.alerts.offer(&event(2, "info"));
    server.asked();
    assert_eq!(bench.alerts.remove("ops").unwrap().name, "ops");
    assert_eq!(bench.alerts.remove("ops").unwrap_err().kind, AlertErrorKind::NotFound);
    // A hook with the same name and the same server receives only later events.
    bench.webhook(&server.url("/"));
    bench.alerts.offer(&event(3, "info"));
    assert_eq!(server.asked().json()["number"], 3);
    assert_eq!(bench.hook_when(|hook| hook.delivered == 1).failed, 0);
    assert!(!server.was_asked());
}

/// A hook gets events of its severity or worse, and an unknown severity counts as the worst: the first event about an
/// array without redundancy must not be treated as information.
#[test]
fn a_hook_is_notified_what_is_bad_enough_and_nothing_milder() {
    for (severity, reported) in [("warning", &[2, 3, 4][..]), ("critical", &[3, 4])] {
        let server = Server::new(vec![Say::status("200 OK"); reported.len()]);
        let bench = Bench::new();
        let mut spec = webhook(&server.url("/"));
        spec.severity = severity.into();
        bench.alerts.add(spec).unwrap();
        for (number, bad) in [(1, "info"), (2, "warning"), (3, "critical"), (4, "dreadful")] {
            bench.alerts.offer(&event(number, bad));
        }
        for number in reported {
            assert_eq!(server.asked().json()["number"], *number, "{severity}");
        }
        assert!(!server.was_asked(), "{severity}: nothing milder");
    }
}

#[test]
fn an_event_about_a_failing_hook_is_not_reported() {
    let (server, bench) = hooked(vec![Say::status("200 OK")]);
    let mut about = event(1, "critical");
    about.kind = KIND_HOOK_FAILED.into();
    bench.alerts.offer(&about);
    bench.alerts.offer(&event(2, "info"));
    assert_eq!(server.asked().json()["number"], 2);
}

#[test]
fn a_test_tells_how_it_went() {
    let server = Server::new(vec![
        Say::status("200 OK"),
        Say::status("503 No"),
        Say::status("404 Not Found"),
    ]);
    let bench = Bench::new();
    let mut spec = webhook(&server.url("/"));
    spec.severity = "critical".into();
    bench.alerts.add(spec).unwrap();
    assert_eq!(bench.alerts.test("ops").unwrap().delivered, 1);
    let asked = server.asked();
    assert_eq!(
        (asked.header("strake-event"), asked.json()["kind"].as_str()),
        (Some("0"), Some("test"))
    );
    // A test is not repeated, although an event would be retried with a failed server.
    let error = bench.alerts.test("ops").unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::Delivery);
    assert!(error.what.contains("503"), "{error}");
    assert!(bench.alerts.test("ops").unwrap_err().what.contains("404 Not Found"));
    let hook = bench.hook();
    assert_eq!((hook.delivered, hook.failed), (1, 2));
    assert_eq!(bench.alerts.test("nobody").unwrap_err().kind, AlertErrorKind::NotFound);
}

#[test]
fn a_test_is_not_held_up_by_the_pace() {
    let (_server, bench) = hooked(vec![Say::status("200 OK")]);
    for number in 1..=4 {
        bench.alerts.offer(&event(number, "info"));
    }
    bench.hook_when(|hook| hook.delivered == 3);
    assert_eq!(bench.alerts.test("ops").unwrap().delivered, 4);
}

#[test]
fn at_the_end_what_waits_is_still_reported() {
    let (server, bench) = hooked(vec![Say::status("200 OK")]);
    for number in 1..=9 {
        bench.alerts.offer(&event(number, "info"));
    }
    bench.hook_when(|hook| hook.delivered == 3);
    assert_eq!(bench.alerts.stop(PATIENCE), Stopped { broken_off: 0 });
    for _ in 0..3 {
        server.asked();
    }
    let what = server.asked().json()["what"].as_str().unwrap().to_string();
    assert!(what.starts_with("6 more events"), "{what}");
    assert_eq!(bench.hook().delivered, 4);
}

#[test]
fn after_the_end_nothing_happens_and_nothing_fails() {
    let (server, bench) = hooked(vec![Say::status("200 OK")]);
    assert_eq!(bench.alerts.stop(PATIENCE), Stopped { broken_off: 0 });
    assert_eq!(bench.alerts.stop(PATIENCE), Stopped { broken_off: 0 });
    for number in 1..=1000 {
        bench.alerts.offer(&event(number, "info"));
    }
    assert_eq!(bench.alerts.test("ops").unwrap_err().kind, AlertErrorKind::Stopped);
    let late = HookSpec { name: "late".into(), ..webhook("http://example.org/") };
    assert_eq!(bench.alerts.add(late).unwrap_err().kind, AlertErrorKind::Stopped);
    assert!(!server.was_asked());
    assert_eq!((bench.hook().delivered, bench.hook().failed), (0, 0));
}

#[test]
fn a_delivery_that_hangs_is_broken_off_at_the_end() {
    let (server, bench) = hooked(vec![Say::ThenNothing(Vec::new())]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    // The clock is stopped, so that the delivery would hang permanently.
    assert_eq!(bench.alerts.stop(Duration::from_millis(1)), Stopped { broken_off: 1 });
}

#[test]
fn a_pause_between_tries_is_cut_short_at_the_end() {
    let (server, bench) = hooked(vec![Say::status("503 No")]);
    bench.alerts.offer(&event(1, "info"));
    server.asked();
    bench.hook_when(|hook| !hook.last_error.is_empty());
    assert_eq!(bench.alerts.stop(PATIENCE), Stopped { broken_off: 0 });
    server.asked();
    assert_eq!(bench.hook().failed, 1);
}
