//! Tests of events and refusals.

use super::{Testbed, check_refused, fail, raid6, replace, spare, tick_until};
use crate::actor::Actor;
use crate::control::Control;
use crate::error::ControlErrorKind::{Refused, Store, Usage};
use crate::events::{EventKind, WallClock};
use crate::manager::Options;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_api::v1::{
    AddSpareRequest, CreateArrayRequest, DestroyArrayRequest, Event, FailMemberRequest,
    ListEventsRequest,
};
use strake_export_nbd::limits::CONNECTIONS_MAX;
use strake_wording::Text;

fn events(control: &Control, request: &ListEventsRequest) -> Vec<Event> {
    control.events().list(request).expect("the request is fine")
}

fn kinds(control: &Control) -> Vec<String> {
    events(control, &ListEventsRequest::default()).into_iter().map(|e| e.kind).collect()
}

pub(super) fn has(control: &Control, kind: EventKind) -> bool {
    kinds(control).iter().any(|k| k == kind.word())
}

#[test]
fn every_change_of_an_array_is_reported_with_cause_and_next_action() {
    let (control, drives) = Testbed::raid6(5);
    control.tick().expect("it answers");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    control.tick().expect("it answers");
    control.replace_member(&replace(1, &drives[4])).expect("it is replaced");
    tick_until(&control, "recovery", || has(&control, EventKind::ArrayRecovered));
    let all = control.reported("");
    let mut order = all.iter().map(|e| e.kind.as_str());
    for kind in
        ["daemon_started", "array_created", "member_failed", "array_degraded", "rebuild_finished"]
    {
        assert!(order.any(|k| k == kind), "{kind} is missing or early in {all:#?}");
    }
    let failed = all.iter().find(|e| e.kind == "member_failed").expect("it is there");
    assert_eq!((failed.object.as_str(), failed.member), ("array/tank", Some(1)));
    assert!(failed.next_action.contains("array replace tank --member 1"), "{failed:?}");
    assert!(failed.what.contains(&drives[1]) || !failed.cause.is_empty(), "{failed:?}");
    assert!(all.windows(2).all(|pair| pair[1].number == pair[0].number + 1), "{all:#?}");
    let filtered = ListEventsRequest {
        object: "array".into(),
        severity: "warning".into(),
        ..Default::default()
    };
    let warnings = events(&control, &filtered);
    assert!(!warnings.is_empty() && warnings.iter().all(|e| e.severity != "info"), "{warnings:#?}");
    let last = ListEventsRequest { last: 2, from: 2, ..Default::default() };
    assert_eq!(events(&control, &last).len(), 2);
    let wrong = ListEventsRequest { kind: "nonsense".into(), ..Default::default() };
    check_refused(control.events().list(&wrong), Usage, "nonsense");
}

/// The first event that no redundancy is left is critical. Later events about the same condition are not.
#[test]
fn the_first_news_of_an_array_without_redundancy_is_critical() {
    let (control, _) = Testbed::raid6(5);
    control.tick().expect("it answers");
    let reported = || {
        control.tick().expect("it answers");
        let all = control.reported("");
        let of_it = all.into_iter().filter(|e| e.kind.starts_with("array_"));
        of_it.map(|e| (e.kind, e.severity)).collect::<Vec<_>>()
    };
    let has_reported = |kind: &str, severity: &str| {
        reported().last().is_some_and(|last| (last.0.as_str(), last.1.as_str()) == (kind, severity))
    };
    for (member, kind, severity) in
        [(0, "array_degraded", "warning"), (1, "array_no_redundancy", "critical")]
    {
        control.fail_member(&fail("tank", member)).expect("it fails");
        assert!(has_reported(kind, severity), "{member}: {:?}", reported());
    }
}

#[test]
fn commands_are_recorded_with_who_gave_them_also_when_refused() {
    let control = Testbed::new();
    let actor = Actor { peer: Some((1000, 4711)), role: None };
    let request = raid6(control.drives(4));
    control.command(&actor, &request, Control::create_array).expect("it is created");
    let hasty = FailMemberRequest { name: "tank".into(), member: 1, ..Default::default() };
    check_refused(control.command(&actor, &hasty, Control::fail_member), Refused, "redundancy");
    let dry = FailMemberRequest { dry_run: true, ..fail("tank", 2) };
    control.command(&actor, &dry, Control::fail_member).expect("it is planned");
    let commands = control.reported("command");
    let [created, refused] = &commands[..] else { panic!("{commands:#?}") };
    assert!(
        created.what.starts_with("array create tank --level 6")
            && created.what.ends_with(": created")
    );
    assert_eq!(created.actor, "uid 1000 pid 4711");
    assert_eq!(refused.what, "array fail tank --member 1: refused");
    assert!(refused.cause.contains("--accept redundancy"), "{refused:?}");
}

/// History: the remedy named only an option, which the operator had to add to the command.
#[test]
fn what_a_refused_command_needs_is_that_command_with_the_option() {
    let control = Testbed::new();
    let actor = Actor::default();
    let drives = control.drives(5);
    let create = raid6(drives[..4].to_vec());
    control.command(&actor, &create, Control::create_array).expect("it is created");
    let again = CreateArrayRequest { name: "other".into(), ..create };
    let error = control.command(&actor, &again, Control::create_array).expect_err("it is used");
    assert!(!error.what.contains("--overwrite"), "members that run are not overwritten: {error}");
    // XFS begins with its magic number (XFS Algorithms and Data Structures, "Superblocks").
    let file = fs::File::options().write(true).open(&drives[4]).expect("it is there");
    file.write_all_at(b"XFSB", 0).expect("it can be written");
    let spare = AddSpareRequest { array: "tank".into(), ..spare(&drives[4]) };
    let remedy = Text::from(AddSpareRequest { overwrite: true, ..spare.clone() });
    let error = control.command(&actor, &spare, Control::add_spare).expect_err("it holds data");
    assert!(error.what.ends_with(&format!(", or, if its content is not needed: {remedy}")));
    assert_eq!(error.parts.last(), remedy.parts.last());
    let cause = control.reported("command").pop().expect("it is recorded").cause;
    assert_eq!(cause, error.what);
    control.export_nbd();
    let destroy = DestroyArrayRequest { name: "tank".into(), ..Default::default() };
    let error = control.command(&actor, &destroy, Control::destroy_array).expect_err("it is used");
    assert!(error.what.ends_with(": strake array destroy tank --force"), "{error}");
}

#[test]
fn failing_a_member_needs_the_loss_to_be_accepted_and_never_loses_data() {
    let (control, _) = Testbed::raid6(4);
    let request = |member: u32, accept: &[&str]| FailMemberRequest {
        name: "tank".into(),
        member,
        accept: accept.iter().map(|a| (*a).to_owned()).collect(),
        ..Default::default()
    };
    let refused = |request, kind, words| check_refused(control.fail_member(&request), kind, words);
    refused(request(0, &[]), Refused, "member failures tolerated: 2 now, 1 without it");
    refused(request(0, &["luck"]), Usage, "luck");
    refused(request(0, &["data"]), Refused, "--accept redundancy");
    assert_eq!(control.tank().redundancy_left, 2);
    control.fail_member(&request(0, &["redundancy"])).expect("it is accepted");
    control.fail_member(&request(1, &["redundancy"])).expect("it is accepted");
    // The member is already out, so a second command changes nothing.
    assert_eq!(control.fail_member(&request(1, &[])).expect("it is out").result, "unchanged");
    refused(request(2, &["redundancy"]), Refused, "would lose data");
}

/// F37: the state directory is full or read-only. Arrays continue to serve, and commands that change the configuration
/// are refused before they act. Events are still reported, and written when the directory has space again.
#[test]
fn f37_a_state_directory_that_refuses_events_is_reported_and_stops_nothing() {
    let (mut control, _) = Testbed::raid6(4);
    assert!(control.events().flush());
    let state = control.path("state");
    // These directories prevent the creation of both files. They have this effect for root too, which ignores
    // permissions.
    let _ = fs::remove_file(state.join("events.jsonl"));
    fs::create_dir(state.join("events.jsonl")).expect("it can be made");
    fs::create_dir(state.join("state.json.next")).expect("it can be made");
    check_refused(
        control.create_array(&CreateArrayRequest {
            name: "other".into(),
            ..raid6(vec!["ram:64MiB".into(); 4])
        }),
        Store,
        "nothing was done",
    );
    control.fail_member(&fail("tank", 0)).expect("the array does not need the directory");
    tick_until(&control, "the report", || has(&control, EventKind::StateTrouble));
    assert!(has(&control, EventKind::MemberFailed));
    fs::remove_dir(state.join("events.jsonl")).expect("it is empty");
    fs::remove_dir(state.join("state.json.next")).expect("it is empty");
    tick_until(&control, "the end of trouble", || has(&control, EventKind::StateDirRecovered));
    assert!(control.events().flush());
    control.restart();
    assert!(has(&control, EventKind::MemberFailed), "what happened meanwhile was written later");
}

/// F37: a change that could not be recorded was refused, and nothing else showed that the directory refuses writes: the
/// files of events and of the audit log were open already.
#[test]
fn f37_a_refused_change_is_reported() {
    let (control, _) = Testbed::raid6(4);
    assert!(control.events().flush());
    let next = control.path("state").join("state.json.next");
    fs::create_dir(&next).expect("it can be made");
    let other = raid6(vec!["ram:64MiB".into(); 4]);
    let other = CreateArrayRequest { name: "other".into(), ..other };
    check_refused(control.create_array(&other), Store, "nothing was done");
    tick_until(&control, "the report", || has(&control, EventKind::StateTrouble));
    fs::remove_dir(&next).expect("it is empty");
    tick_until(&control, "the end of trouble", || has(&control, EventKind::StateDirRecovered));
}

/// F38: the clock jumps forward and back by ten years. The times of events follow the clock; the numbers of events,
/// arrays and upkeep are not affected.
#[test]
fn f38_a_clock_that_jumps_disturbs_nothing() {
    let ten_years: u64 = 10 * 365 * 86_400 * 1_000_000;
    let time = Arc::new(AtomicU64::new(2 * ten_years));
    let theirs = Arc::clone(&time);
    let options = || Options {
        clock: WallClock::new({
            let theirs = Arc::clone(&theirs);
            move || theirs.load(Ordering::Relaxed)
        }),
        ..Options::default()
    };
    let mut control = Testbed::with(options());
    let drives = control.drives(5);
    control.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
    for (member, now) in [(0, 3 * ten_years), (1, ten_years), (1, 0)] {
        time.store(now, Ordering::Relaxed);
        control.fail_member(&fail("tank", member)).expect("it fails");
        control.tick().expect("it answers");
    }
    control.shut_down();
    time.store(u64::MAX, Ordering::Relaxed);
    control.start_with(options());
    assert_eq!(control.tank().redundancy_left, 0);
    let all = control.reported("");
    assert!(all.windows(2).all(|pair| pair[1].number == pair[0].number + 1), "{all:#?}");
    assert!(all.windows(2).any(|pair| pair[1].time_us < pair[0].time_us), "{all:#?}");
}

fn checks(control: &Control) -> Vec<(String, String, String)> {
    let report = control.doctor().expect("it answers");
    report.checks.into_iter().map(|c| (c.name, c.state, c.next_action)).collect()
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let (control, drives) = Testbed::raid6(5);
    let state = |name: &str| {
        let all = checks(&control);
        let found = all.iter().find(|(known, _, _)| known == name).cloned();
        found.unwrap_or_else(|| panic!("{name} is not looked at: {all:#?}"))
    };
    assert_eq!(state("array/tank redundancy").1, "ok");
    assert_eq!(state("array/tank spares").1, "ok", "not every array needs one");
    assert_eq!(state("daemon state directory").1, "ok");
    assert_eq!(state("daemon last stop").1, "ok");
    control.add_spare(&spare(&drives[4])).expect("it is a spare");
    assert_eq!(state("array/tank spares").1, "ok");
    fs::remove_file(&drives[4]).expect("it can be removed");
    control.tick().expect("it answers");
    assert_eq!(state(&format!("spare {}", drives[4])).1, "warning");
    control.fail_member(&fail("tank", 1)).expect("it fails");
    let (_, degraded, next) = state("array/tank redundancy");
    assert_eq!(degraded, "warning");
    assert!(next.contains("array readd tank --member 1"), "{next}");
    for (name, state, next) in checks(&control) {
        assert_eq!(state == "ok", next.is_empty(), "{name} is {state}, next {next:?}");
    }
    let report = control.doctor().expect("it answers");
    assert!(report.health != "ok" && report.checks[0].state != "ok", "what is wrong comes first");
}

/// The clients of NBD hold all connections of the address, so the next one is closed at once.
#[test]
fn an_address_without_room_is_reported() {
    let (control, _) = Testbed::mirror(2);
    control.export_nbd();
    control.tick().expect("it answers");
    assert!(control.reported("connections_refused").is_empty(), "every client had room");
    let socket = control.path("nbd.sock");
    let served = |mut client: UnixStream| {
        // In NBD, the server sends first.
        let is_served = client.read(&mut [0; 1]).is_ok_and(|bytes| bytes == 1);
        is_served.then_some(client)
    };
    let connect = |_| served(UnixStream::connect(&socket).expect("it listens"));
    let clients: Vec<UnixStream> = (0..=CONNECTIONS_MAX).map_while(connect).collect();
    assert_eq!(clients.len(), CONNECTIONS_MAX as usize, "the last one had no room");
    control.tick().expect("it answers");
    let [reported] = control.reported("connections_refused").try_into().expect("one event");
    assert!(
        reported.what.contains("nbd.sock") && reported.what.contains("1 more"),
        "{}",
        reported.what
    );
}
