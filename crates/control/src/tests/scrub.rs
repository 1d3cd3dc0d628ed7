//! Tests of scrubs: start, reports, repair, schedule, and restart.

use super::life::write;
use super::reported::has;
use super::{Testbed, change_job, check_refused, hold, raid6, tick_until};
use crate::control::Control;
use crate::error::ControlError;
use crate::error::ControlErrorKind::{NotFound, State, Usage};
use crate::events::{EventKind, WallClock};
use crate::manager::Options;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_api::v1::{ChangeScrubRequest, Scrub, ScrubChange, SetArrayRequest, StartScrubRequest};
use strake_raid::Regions;

/// The start of the data area of a drive.
const DATA: u64 = 16 << 20;

fn start(control: &Control, mode: &str) -> Result<ScrubChange, ControlError> {
    let request = StartScrubRequest { name: "tank".into(), mode: mode.into() };
    control.run(|m| m.start_scrub(&request))
}

fn change(control: &Control, action: &str) -> Result<ScrubChange, ControlError> {
    let request = ChangeScrubRequest { name: "tank".into(), action: action.into() };
    control.run(|m| m.change_scrub(&request))
}

fn scrub(control: &Control) -> Scrub {
    control.run(|m| m.scrub("tank")).expect("it runs")
}

fn finished(control: &Control) -> Scrub {
    tick_until(control, "the end of the scrub", || scrub(control).state == "finished");
    control.tick().expect("it answers");
    scrub(control)
}

fn spoil(drive: &str, at: u64) {
    let file = File::options().write(true).open(drive).expect("it is a file");
    file.write_all_at(&[0xa5; 4096], DATA + at).expect("there is room");
    file.sync_all().expect("it is stored");
}

/// Creates an array with some data, and returns its drives.
fn tank(options: Options) -> (Testbed, Vec<String>) {
    let control = Testbed::with(options);
    let drives = control.drives(5);
    control.create_array(&raid6(drives.clone())).expect("drives fit");
    write(&control, "tank", 4);
    (control, drives)
}

/// History: `strake array scrub start --wait` printed no time of the end, because the scrub had finished between two
/// rounds of upkeep.
#[test]
fn a_scrub_that_has_finished_shows_its_end_at_once() {
    let (control, _) = tank(Options::default());
    start(&control, "").expect("none is under way");
    let has_finished = || scrub(&control).state == "finished";
    while !has_finished() {
        std::thread::yield_now();
    }
    let found = scrub(&control);
    assert!(found.ended_us.is_some() && found.next_us.is_some(), "{found:?}");
}

#[test]
fn what_was_corrupted_is_found_named_and_repaired() {
    let (control, drives) = tank(Options::default());
    assert_eq!(scrub(&control).state, "");
    check_refused(start(&control, "maybe"), Usage, "trust_data");
    check_refused(change(&control, "stop"), State, "not being scrubbed");
    spoil(&drives[2], 64 << 10);
    assert_eq!(start(&control, "").expect("none is under way").result, "created");
    let found = finished(&control);
    assert_eq!((found.wrong_bytes, found.left_bytes, found.findings.len()), (4096, 4096, 1));
    let finding = &found.findings[0];
    assert_eq!((finding.member, finding.drive_offset_bytes), (Some(2), DATA + (64 << 10)));
    assert_eq!(finding.member_length_bytes, 4096);
    assert!(found.ended_us.is_some());
    let view = control.run(|m| m.array("tank")).expect("it runs");
    assert_eq!(view.next_action, "strake array scrub show tank");
    let kinds = [EventKind::ScrubStarted, EventKind::ScrubFound, EventKind::ScrubFinished];
    assert!(kinds.into_iter().all(|kind| has(&control, kind)));
    start(&control, "repair").expect("the other is over");
    let repaired = finished(&control);
    assert_eq!((repaired.repaired_bytes, repaired.left_bytes), (4096, 0));
    start(&control, "check").expect("the other is over");
    assert_eq!(finished(&control).wrong_bytes, 0, "a second scrub is clean");
}

#[test]
fn a_scrub_is_paused_resumed_and_stopped_also_as_a_job() {
    let (mut control, _) = tank(Options::default());
    hold(&control, true);
    start(&control, "check").expect("none is under way");
    check_refused(start(&control, "check"), State, "is being scrubbed");
    assert_eq!(scrub(&control).state, "paused");
    assert_eq!(change(&control, "pause").expect("it is in progress").result, "changed");
    assert_eq!(change(&control, "pause").expect("it is in progress").result, "unchanged");
    let jobs = control.with(|m| m.list_jobs().jobs).expect("it answers");
    let job = jobs.iter().find(|job| job.kind == "scrub").expect("it is a job");
    assert_eq!((job.id.as_str(), job.state.as_str()), ("tank/scrub", "paused"));
    // After a restart the scrub is restored, and is still paused.
    control.restart();
    tick_until(&control, "the scrub", || {
        control.run(|m| m.scrub("tank")).is_ok_and(|scrub| scrub.state == "paused")
    });
    let job = |action| change_job("tank/scrub", action);
    control.change_job(&job("resume")).expect("it is paused");
    assert_eq!(finished(&control).left_bytes, 0);
    check_refused(control.change_job(&job("cancel")), NotFound, "no job");
    hold(&control, true);
    start(&control, "check").expect("the other is over");
    assert_eq!(control.change_job(&job("cancel")).expect("it is in progress").result, "changed");
    assert_eq!(scrub(&control).state, "stopped");
}

/// The number of hours after which a scrub is due.
const EVERY_H: u64 = 10;

/// The findings of a scrub survive a restart, and an interrupted scrub continues at its recorded position. A damaged
/// file, or the file of another scrub, is ignored.
#[test]
fn a_scrub_that_was_killed_goes_on_where_it_was() {
    let (mut control, drives) = tank(Options::default());
    spoil(&drives[2], 64 << 10);
    start(&control, "check").expect("none is under way");
    let found = finished(&control);
    control.restart();
    tick_until(&control, "the last scrub", || scrub(&control).state == "finished");
    let again = scrub(&control);
    assert_eq!((&again.findings, again.ended_us), (&found.findings, found.ended_us));
    assert_eq!((again.checked_bytes, again.left_bytes), (found.checked_bytes, 4096));
    let view = control.run(|m| m.array("tank")).expect("it runs");
    assert_eq!(view.next_action, "strake array scrub show tank");
    // The recorded scrub runs, and half of it is done.
    let uuid = control.with(|m| m.running[0].uuid()).expect("it answers");
    let geometry = control.with(|m| m.running[0].array.status().geometry).expect("it runs");
    hold(&control, true);
    start(&control, "repair").expect("the other is over");
    change(&control, "pause").expect("it is under way");
    let path = control.path("state").join(format!("scrub-{uuid}.json"));
    let acknowledged = std::fs::read_to_string(&path).expect("it was recorded");
    assert!(
        acknowledged.contains("\"state\":\"paused\""),
        "recorded before the answer: {acknowledged}"
    );
    control.tick().expect("it answers");
    control.shut_down();
    let page = std::fs::read_to_string(&path).expect("it was recorded");
    assert!(page.contains("\"done\":[]"), "{page}");
    let half = page.replace("\"done\":[]", "\"done\":[[0,1]]");
    let stripes = Regions::new(&geometry).stripes_per_region();
    let region = (stripes * geometry.stripe_data_blocks()) << geometry.block_size().shift();
    let half = half.replace("\"checked\":0", &format!("\"checked\":{region}"));
    let mut check = |page: &str, checked: u64| {
        std::fs::write(&path, page).expect("it can be written");
        control.start();
        tick_until(&control, "the scrub", || {
            control.run(|m| m.scrub("tank")).is_ok_and(|scrub| scrub.state == "paused")
        });
        assert_eq!(scrub(&control).checked_bytes, checked);
        control.shut_down();
    };
    check(&half, region);
    check(&half.replace("\"begun_us\":", "\"begun_us\":1"), 0);
    check("{", 0);
    check(&page.replace("\"regions\":", "\"regions\":1"), 0);
    check(&half, region);
    control.start();
    tick_until(&control, "the scrub", || change(&control, "resume").is_ok());
    let rest = finished(&control);
    assert_eq!(rest.checked_bytes, found.checked_bytes);
    assert_eq!(rest.left_bytes, 0, "the first region holds what was spoiled, and counts as done");
}

/// A pause whose position cannot be recorded is an error, and a repeated command records it.
#[test]
fn a_pause_that_is_not_recorded_is_no_success() {
    let (control, _) = tank(Options::default());
    let uuid = control.with(|m| m.running[0].uuid()).expect("it answers");
    let path = control.path("state").join(format!("scrub-{uuid}.json"));
    hold(&control, true);
    start(&control, "check").expect("none is under way");
    // A directory that is not empty is not replaced by a file.
    std::fs::create_dir_all(path.join("inside")).expect("there is room");
    check_refused(change(&control, "pause"), State, "position could not be recorded");
    std::fs::remove_dir_all(&path).expect("it is ours");
    assert_eq!(change(&control, "pause").expect("it is in progress").result, "unchanged");
    let page = std::fs::read_to_string(&path).expect("it was recorded");
    assert!(page.contains("\"state\":\"paused\""), "{page}");
}

/// An hour in microseconds.
const HOUR_US: u64 = 3_600_000_000;

/// Returns a clock that advances only when it is set, and its value.
fn set_clock() -> (Arc<AtomicU64>, WallClock) {
    let now = Arc::new(AtomicU64::new(1_000_000 * HOUR_US));
    let shown = Arc::clone(&now);
    (now, WallClock::new(move || shown.load(Ordering::Relaxed)))
}

#[test]
fn a_scrub_of_the_schedule_repairs_where_that_is_wanted() {
    let (now, clock) = set_clock();
    let (control, drives) = tank(Options { clock, ..Options::default() });
    let set = SetArrayRequest {
        name: "tank".into(),
        scrub_every_s: Some(EVERY_H * 3600),
        scrub_repair: Some(true),
        ..Default::default()
    };
    let changed = control.set_array(&set).expect("it is recorded");
    assert_eq!(changed.plan, ["scrub every 10h instead of 30d", "scrub repair on instead of off"]);
    control.tick().expect("it answers");
    spoil(&drives[1], 0);
    now.fetch_add(EVERY_H * HOUR_US, Ordering::Relaxed);
    control.tick().expect("it answers");
    let found = finished(&control);
    assert_eq!((found.mode.as_str(), found.wrong_bytes, found.left_bytes), ("repair", 4096, 0));
}

#[test]
fn the_schedule_begins_scrubs_that_only_check() {
    let (now, clock) = set_clock();
    let (control, drives) = tank(Options { clock, ..Options::default() });
    let set = |seconds| SetArrayRequest {
        name: "tank".into(),
        scrub_every_s: Some(seconds),
        ..Default::default()
    };
    let refused = control.set_array(&set(60));
    check_refused(refused, Usage, "the minimum is 1h");
    let changed = control.set_array(&set(EVERY_H * 3600)).expect("it is recorded");
    assert_eq!(changed.plan, ["scrub every 10h instead of 30d"]);
    control.tick().expect("it answers");
    assert_eq!(scrub(&control).next_us, Some(now.load(Ordering::Relaxed) + EVERY_H * HOUR_US));
    let check = |hours: i64, begun: bool| {
        now.fetch_add((hours * HOUR_US as i64) as u64, Ordering::Relaxed);
        let before = scrub(&control).ended_us;
        control.tick().expect("it answers");
        control.tick().expect("it answers");
        if begun {
            let found = finished(&control);
            assert_eq!(found.mode, "check");
            assert_ne!(found.ended_us, before);
        }
        assert_eq!(scrub(&control).state.is_empty(), before.is_none() && !begun, "{hours} h");
    };
    check(9, false);
    spoil(&drives[1], 0);
    check(1, true);
    assert_eq!(scrub(&control).left_bytes, 4096, "what is wrong is told and stays");
    check(9, false);
    // The clock was set back by a year, so the wait starts again.
    check(-9_000, false);
    check(10, true);
    control.set_array(&set(0)).expect("it is recorded");
    let ended = scrub(&control).ended_us;
    check(10_000, false);
    assert_eq!((scrub(&control).ended_us, scrub(&control).next_us), (ended, None));
}
