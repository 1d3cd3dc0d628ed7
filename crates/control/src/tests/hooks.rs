//! Tests of notification hooks: they are recorded, notified, and removed.

use super::{Testbed, check_refused, tick_until};
use crate::control::Control;
use crate::error::ControlErrorKind::{Exists, NotFound, Store, Usage};
use crate::events::EventKind;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use strake_api::v1::{AddHookRequest, Event, Hook, RemoveHookRequest, TestHookRequest};

/// The time limit of a test for the arrival of an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// A web server that gives every request the same answer, and passes on the received event.
struct Receiving {
    address: SocketAddr,
    events: Receiver<Event>,
}

impl Receiving {
    fn new(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.expect("a client connects"));
                let Some(event) = read(&mut reader) else { continue };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                // The event counts as received even if the sender did not wait for the answer.
                let _ = reader.get_mut().write_all(answer.as_bytes());
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self { address, events }
    }

    fn url(&self) -> String {
        format!("http://me:s3cret@{}/hidden", self.address)
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event arrives")
    }
}

fn read(reader: &mut impl BufRead) -> Option<Event> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        if let Some(bytes) = line.strip_prefix("content-length: ") {
            length = bytes.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            return serde_json::from_slice(&body).ok();
        }
    }
}

fn webhook(name: &str, target: &str) -> AddHookRequest {
    AddHookRequest {
        name: name.into(),
        kind: "webhook".into(),
        target: target.into(),
        severity: "info".into(),
        ..AddHookRequest::default()
    }
}

fn hooks(control: &Control) -> Vec<Hook> {
    control.with(|m| m.list_hooks()).expect("it answers").hooks
}

fn failures(control: &Testbed) -> Vec<Event> {
    control.reported(EventKind::HookFailed.word())
}

#[test]
fn a_hook_is_notified_what_happens_and_outlasts_a_restart() {
    let mut control = Testbed::new();
    let server = Receiving::new("200 OK");
    let request = webhook("ops", &server.url());
    assert_eq!(control.add_hook(&request).expect("it is added").result, "created");
    assert_eq!(server.next().kind, "hook_changed");
    assert_eq!(control.add_hook(&request).expect("it is there").result, "unchanged");
    control.restart();
    assert_eq!(server.next().kind, "daemon_stopped");
    assert_eq!(server.next().kind, "daemon_started");
    let hook = hooks(&control).remove(0);
    assert_eq!(hook.target, format!("http://***@{}/***", server.address));
}

#[test]
fn the_doctor_finds_a_program_that_would_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let control = Testbed::new();
    let program = control.path("notify");
    fs::write(&program, "#!/bin/sh\n").expect("it can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let target = program.display().to_string();
    let request = AddHookRequest { kind: "exec".into(), ..webhook("ops", &target) };
    control.add_hook(&request).expect("it is added");
    let found = || {
        let checks = control.doctor().expect("it answers").checks;
        let check = checks.into_iter().find(|check| check.name == "hook ops").expect("checked");
        (check.state, check.what)
    };
    assert_eq!(found().0, "ok");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).expect("it is ours");
    assert_eq!(found().0, "warning");
    assert!(found().1.contains("make it one with: chmod"), "{}", found().1);
    fs::remove_file(&program).expect("it is there");
    assert_eq!(found().0, "warning");
    assert!(found().1.contains("cannot find the program"), "{}", found().1);
}

#[test]
fn a_removed_hook_is_forgotten() {
    let mut control = Testbed::new();
    let server = Receiving::new("200 OK");
    control.add_hook(&webhook("ops", &server.url())).expect("it is added");
    server.next();
    let request = RemoveHookRequest { name: "ops".into() };
    assert_eq!(control.remove_hook(&request).expect("it is removed").result, "removed");
    check_refused(control.remove_hook(&request), NotFound, "strake hook list");
    control.restart();
    assert_eq!(hooks(&control), []);
    control.shut_down();
    assert!(server.events.try_recv().is_err());
}

#[test]
fn what_cannot_be_recorded_or_makes_no_sense_is_not_added() {
    let control = Testbed::new();
    let good = webhook("ops", "http://127.0.0.1:9/");
    control.add_hook(&good).expect("it is added");
    check_refused(control.add_hook(&webhook("x", "gopher://x/")), Usage, "http");
    let other = webhook("ops", "http://127.0.0.1:9/other");
    check_refused(control.add_hook(&other), Exists, "another hook");
    // This directory prevents the creation of the file that every change writes first.
    fs::create_dir(control.path("state/state.json.next")).expect("it can be made");
    let more = webhook("more", "http://127.0.0.1:9/");
    check_refused(control.add_hook(&more), Store, "nothing was done");
    let request = RemoveHookRequest { name: "ops".into() };
    check_refused(control.remove_hook(&request), Store, "nothing was done");
    let names: Vec<String> = hooks(&control).into_iter().map(|hook| hook.name).collect();
    assert_eq!(names, ["ops"]);
}

#[test]
fn a_test_reaches_the_receiver_or_says_why_not() {
    let control = Testbed::new();
    let (good, bad) = (Receiving::new("200 OK"), Receiving::new("403 Forbidden"));
    for (name, server) in [("good", &good), ("bad", &bad)] {
        let mut request = webhook(name, &server.url());
        request.severity = "critical".into();
        control.add_hook(&request).expect("it is added");
    }
    let test = |name: &str| control.test_hook(&TestHookRequest { name: name.into() });
    let done = test("good").expect("it is tried");
    assert_eq!((done.result.as_str(), done.hook.expect("it is shown").delivered), ("delivered", 1));
    assert_eq!(good.next().kind, "test");
    let done = test("bad").expect("it is tried");
    assert_eq!((done.result.as_str(), done.hook.expect("it is shown").failed), ("failed", 1));
    assert!(done.what.contains("403 Forbidden"), "{}", done.what);
    check_refused(test("none"), NotFound, "strake hook list");
}

/// A failure of a hook is an event. If hooks received this event, the failing hook would fail again, without an end.
#[test]
fn a_hook_that_fails_is_reported_once_and_through_no_hook() {
    let mut control = Testbed::new();
    let (good, bad) = (Receiving::new("200 OK"), Receiving::new("403 Forbidden"));
    control.add_hook(&webhook("bad", &bad.url())).expect("it is added");
    tick_until(&control, "the failure", || !failures(&control).is_empty());
    control.add_hook(&webhook("good", &good.url())).expect("it is added");
    tick_until(&control, "the second failure", || {
        hooks(&control).iter().any(|hook| hook.name == "bad" && hook.failed == 2)
    });
    control.ticks(3);
    let reported = failures(&control);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(reported[0].next_action, "strake hook test bad");
    assert!(!format!("{reported:?}").contains("s3cret"), "{reported:?}");
    control.shut_down();
    let kinds: Vec<String> = [&good, &bad]
        .into_iter()
        .flat_map(|server| server.events.try_iter().map(|event| event.kind))
        .collect();
    assert!(kinds.iter().all(|kind| kind != "hook_failed"), "{kinds:?}");
}
