//! Tests of the audit log: entries outlast restarts, and every change by another process is found.

use super::chain::{Ends, Head, line_of, parse};
use super::segments::Limits;
use super::{Audit, Ended, Subject, phase};
use crate::actor::{Actor, Role};
use crate::events::{EventKind, Events, WallClock};
use crate::limits::AUDIT_PENDING_MAX;
use crate::record::files::StateFolder;
use crate::record::files::tests::{Fate, Forgetful, Ill};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use strake_api::v1::{
    AuditEntry, AuditReport, ListAuditRequest, ListEventsRequest, VerifyAuditRequest,
};
use strake_testkit::Folder;

const NEWEST: &str = "audit.log";

/// A log with its events, which are in another folder.
struct Log {
    audit: Audit,
    events: Arc<Events>,
    _folder: Folder,
}

const SMALL: Limits = Limits { file: 4096, all: 1 << 30 };

fn open_with(state: StateFolder, limits: Limits) -> Log {
    let folder = Folder::new("strake-audit-events");
    let clock = WallClock::new(|| 7);
    let events = Arc::new(Events::open(&folder, clock.clone()).expect("events open"));
    let audit = Audit::open_with(state, &events, clock, limits);
    Log { audit, events, _folder: folder }
}

fn open(dir: &Path) -> Log {
    open_with(StateFolder::of(dir), SMALL)
}

fn operator() -> Actor {
    Actor { peer: Some((1000, 4711)), role: Some(Role::Operator) }
}

impl Log {
    /// Records `count` commands with their results.
    fn commands(&self, count: u64) {
        for at in 0..count {
            let command = format!("array rebuild tank{at}");
            let subject = Subject { command: &command, object: "array/tank" };
            let started = self.audit.begin(&operator(), subject);
            self.audit.end(started, &operator(), subject, Ended { result: "changed", cause: "" });
        }
    }

    fn verified(&self) -> AuditReport {
        self.audit.verify(&VerifyAuditRequest::default()).expect("it can be read")
    }

    fn entries(&self) -> Vec<AuditEntry> {
        self.audit.list(&ListAuditRequest::default()).expect("it can be read").entries
    }

    fn check_valid(&self, entries: u64) {
        let report = self.verified();
        assert_eq!(report.faults, []);
        assert_eq!((report.entries, report.first, report.last), (entries, 1, entries));
    }

    /// Number of events about a change of the log.
    fn reported(&self) -> usize {
        let kind = EventKind::AuditChanged.word().to_owned();
        let request = ListEventsRequest { kind, ..ListEventsRequest::default() };
        self.events.list(&request).expect("it is a kind").len()
    }
}

#[test]
fn a_command_has_two_entries_with_its_caller_and_its_result() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    let subject = Subject { command: "array rebuild tank", object: "array/tank" };
    let started = log.audit.begin(&operator(), subject);
    let ended = Ended { result: "refused", cause: "it is healthy" };
    log.audit.end(started, &operator(), subject, ended);
    let entries = log.entries();
    let [first, second] = &entries[..] else { panic!("{entries:?}") };
    for entry in &entries {
        assert_eq!(
            (entry.uid, entry.pid, entry.role.as_str()),
            (Some(1000), Some(4711), "operator")
        );
        assert_eq!((entry.command.as_str(), entry.time_us), ("array rebuild tank", 7));
    }
    assert_eq!(
        (first.number, first.phase.as_str(), first.object.as_str()),
        (1, phase::STARTED, "array/tank")
    );
    assert_eq!((second.number, second.phase.as_str(), second.started), (2, phase::ENDED, 1));
    assert_eq!((second.result.as_str(), second.cause.as_str()), ("refused", "it is healthy"));
}

#[test]
fn the_chain_continues_over_restarts_and_rotations() {
    let folder = Folder::new("strake-audit");
    for round in 1..=5 {
        let log = open(&folder);
        log.commands(20);
        log.check_valid(40 * round);
        assert_eq!(log.reported(), 0);
    }
    let log = open(&folder);
    let files = fs::read_dir(&*folder).expect("it is there").count();
    assert!(files > 10, "{files} files: nothing was rotated");
    // Lists cross files.
    let numbers = |request: ListAuditRequest| -> Vec<u64> {
        let entries = log.audit.list(&request).expect("it can be read").entries;
        entries.iter().map(|entry| entry.number).collect()
    };
    let all = ListAuditRequest::default();
    assert_eq!(numbers(all.clone()), (1..=200).collect::<Vec<_>>());
    assert_eq!(numbers(ListAuditRequest { last: 3, ..all.clone() }), [198, 199, 200]);
    assert_eq!(numbers(ListAuditRequest { last: 2, before: 100, ..all.clone() }), [98, 99]);
    assert_eq!(numbers(ListAuditRequest { uid: Some(7), ..all.clone() }), Vec::<u64>::new());
    let object = "array/tank".to_owned();
    assert_eq!(numbers(ListAuditRequest { object, last: 2, ..all }), [199, 200]);
}

/// Every line is a text that `sha256sum` can check.
#[test]
fn a_line_is_its_hash_the_hash_before_and_json() {
    let entry =
        AuditEntry { number: 1, command: "array create \u{e9}".into(), ..AuditEntry::default() };
    let (line, head) = line_of(&Head::default(), &entry);
    let words: Vec<&str> = line.trim_end().splitn(3, ' ').collect();
    let [hash, previous, json] = words[..] else { panic!("{line}") };
    assert_eq!((hash, previous), (head.hash.as_str(), "0".repeat(64).as_str()));
    let json: serde_json::Value = serde_json::from_str(json).expect("it is JSON");
    assert_eq!(json["command"], "array create \u{e9}");
    assert_eq!(json.get("hash"), None, "an entry cannot contain its own hash");
    let entry = AuditEntry { hash: hash.to_owned(), ..entry };
    assert_eq!(parse(line.trim_end().as_bytes()).expect("it is valid").entry, entry);
}

/// A change of any byte, and the removal, repetition or exchange of any line.
#[test]
fn every_change_of_a_line_is_found_exhaustive() {
    let folder = Folder::new("strake-audit");
    let log = open_with(StateFolder::of(&folder), Limits { file: 1 << 20, ..SMALL });
    log.commands(3);
    let file = folder.join(NEWEST);
    let text = fs::read(&file).expect("it is there");
    let check_found = |changed: &[u8], what: &dyn std::fmt::Debug| {
        fs::write(&file, changed).expect("it can be written");
        let mut faults = log.verified().faults;
        // A change of the size is found without the lines.
        faults.retain(|fault| !fault.what.contains("bytes instead of"));
        assert_ne!(faults, [], "{what:?} is not found");
    };
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        check_found(&changed, &at);
    }
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for at in 0..lines.len() {
        let removed = [&lines[..at], &lines[at + 1..]].concat().concat();
        check_found(&removed, &("removed", at));
        check_found(&[&lines[..=at], &lines[at..]].concat().concat(), &("repeated", at));
        let mut swapped = lines.clone();
        swapped.swap(at, (at + 1) % lines.len());
        check_found(&swapped.concat(), &("swapped", at));
    }
    fs::write(&file, &text).expect("it can be written");
    log.check_valid(6);
}

/// A user who can write the files can make a new chain. A hash that was kept elsewhere shows it.
#[test]
fn a_kept_hash_shows_a_chain_that_was_made_again() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    log.commands(2);
    let kept = log.verified();
    drop(log);
    for name in [NEWEST, "audit.ends"] {
        fs::remove_file(folder.join(name)).expect("it is there");
    }
    let log = open(&folder);
    log.audit.begin(&operator(), Subject { command: "array rebuild", object: "array/other" });
    log.commands(5);
    log.check_valid(11);
    let check = |number, hash: &str, wrong: &str| {
        let request = VerifyAuditRequest { number, hash: hash.to_owned() };
        let report = log.audit.verify(&request).expect("it can be read");
        match &report.faults[..] {
            [] => assert_eq!(wrong, ""),
            [fault] => assert!(!wrong.is_empty() && fault.what.contains(wrong), "{fault:?}"),
            faults => panic!("{faults:?}"),
        }
    };
    check(kept.last, &kept.hash, "does not have the given hash");
    check(12, &kept.hash, "no entry has the number");
    let own = log.entries();
    check(4, &own[3].hash, "");
    let refused = |number, hash: &str| {
        let request = VerifyAuditRequest { number, hash: hash.to_owned() };
        assert!(log.audit.verify(&request).is_err(), "{request:?}");
    };
    refused(1, "");
    refused(0, &kept.hash);
    refused(1, "abc");
}

/// Changes while the daemon is stopped, and while it runs, are reported once. The log goes on.
#[test]
fn a_changed_log_is_reported_and_goes_on() {
    let whole = |text: &[u8]| text.to_vec();
    let without_last = |text: &[u8]| {
        let end = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines");
        text[..=end].to_vec()
    };
    let damaged = |text: &[u8]| {
        let mut text = text.to_vec();
        let at = text.len() - 10;
        text[at] ^= 1;
        text
    };
    type Change<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let cases: [(&str, Change<'_>, usize); 4] = [
        ("unchanged", &whole, 0),
        ("the last line removed", &without_last, 1),
        ("the last line damaged", &damaged, 1),
        ("emptied", &|_| Vec::new(), 1),
    ];
    for (name, change, reports) in cases {
        let folder = Folder::new("strake-audit");
        let log = open(&folder);
        log.commands(2);
        drop(log);
        let file = folder.join(NEWEST);
        fs::write(&file, change(&fs::read(&file).expect("it is there")))
            .expect("it can be written");
        let log = open(&folder);
        assert_eq!(log.reported(), reports, "{name}");
        log.commands(2);
        assert_eq!(log.reported(), reports, "{name}: reported once");
        assert_eq!(log.verified().faults.is_empty(), reports == 0, "{name}");
        // The numbers show how many entries are missing.
        assert_eq!(log.verified().last, 8 + reports as u64, "{name}");
        drop(log);
        assert_eq!(open(&folder).reported(), 0, "{name}: the continued log is in order");
    }
    for (name, change, reports) in cases {
        let folder = Folder::new("strake-audit");
        let log = open(&folder);
        log.commands(2);
        let file = folder.join(NEWEST);
        fs::write(&file, change(&fs::read(&file).expect("it is there")))
            .expect("it can be written");
        log.commands(2);
        // A change that keeps the size is found by a check.
        let reports = if name == "the last line damaged" { 0 } else { reports };
        assert_eq!(log.reported(), reports, "{name}, running");
        assert_eq!(log.verified().faults.is_empty(), name == "unchanged", "{name}, running");
    }
}

/// A start checks the newest file and the record of the ends.
#[test]
fn a_start_notices_a_changed_entry_and_a_lost_record_of_the_ends() {
    type Change<'a> = &'a dyn Fn(&Path);
    let changed_entry = |folder: &Path| {
        let text = fs::read_to_string(folder.join(NEWEST)).expect("it is there");
        let text = text.replacen("rebuild tank0", "destroy tank0", 1);
        fs::write(folder.join(NEWEST), text).expect("it can be written");
    };
    let blank_line = |folder: &Path| {
        let text = fs::read_to_string(folder.join(NEWEST)).expect("it is there");
        fs::write(folder.join(NEWEST), text.replacen('\n', "\n\n", 1)).expect("it can be written");
    };
    let removed = |folder: &Path| fs::remove_file(folder.join("audit.ends")).expect("it is there");
    let emptied = |folder: &Path| fs::write(folder.join("audit.ends"), "").expect("it is ours");
    let cases: [(&str, Change<'_>); 4] = [
        ("changed entry", &changed_entry),
        ("blank line", &blank_line),
        ("removed", &removed),
        ("emptied", &emptied),
    ];
    for (name, change) in cases {
        let folder = Folder::new("strake-audit");
        let log = open(&folder);
        log.commands(2);
        drop(log);
        change(&folder);
        assert_eq!(open(&folder).reported(), 1, "{name}");
    }
}

/// A change that was found is reported even if the write that found it failed.
#[test]
fn a_change_is_reported_after_a_write_that_failed() {
    let folder = Folder::new("strake-audit");
    let disk = Arc::new(Ill::default());
    let log = open_with(StateFolder::on(&folder, Arc::clone(&disk) as _), SMALL);
    log.commands(2);
    fs::write(folder.join(NEWEST), "").expect("it can be written");
    disk.refuse(true);
    log.commands(1);
    disk.refuse(false);
    assert_eq!(log.reported(), 1, "also if nothing is written later");
    log.audit.flush();
    assert_eq!(log.reported(), 1);
    assert!(log.entries().iter().any(|entry| entry.phase == phase::LOG));
}

/// History: the file was renamed, but its folder could not be synced. The next write reported the missing file.
#[test]
fn a_rotation_that_failed_is_no_change() {
    let folder = Folder::new("strake-audit");
    let disk = Arc::new(Ill::default());
    let log = open_with(StateFolder::on(&folder, Arc::clone(&disk) as _), SMALL);
    let bytes = || fs::metadata(folder.join(NEWEST)).map_or(0, |about| about.len());
    while bytes() < SMALL.file {
        log.audit.begin(&operator(), Subject { command: "array rebuild", object: "array/tank" });
    }
    disk.refuse(true);
    log.commands(2);
    disk.refuse(false);
    log.commands(1);
    assert_eq!(log.reported(), 0);
    assert_eq!(log.verified().faults, []);
}

/// History: two crashes left two files without a complete line, and the start took all entries for missing.
#[test]
fn two_interrupted_files_are_no_change() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    log.commands(2);
    drop(log);
    let newest = folder.join(NEWEST);
    fs::rename(&newest, folder.join("audit.00000000000000000001-001.log")).expect("it is there");
    fs::write(folder.join("audit.00000000000000000005-001.log"), "abc").expect("it is ours");
    fs::write(&newest, "def").expect("it is ours");
    let log = open(&folder);
    log.commands(1);
    assert_eq!(log.reported(), 0);
    log.check_valid(6);
}

/// A start compares the recorded newest entry also if its file was renamed.
#[test]
fn a_start_notices_new_hashes_in_a_renamed_file() {
    let folder = Folder::new("strake-audit");
    let other = Folder::new("strake-audit");
    open(&folder).commands(2);
    let log = open(&other);
    log.audit.begin(&operator(), Subject { command: "array rebuild", object: "array/other" });
    log.commands(2);
    drop(log);
    // The first four entries of another log have right hashes.
    let text = fs::read_to_string(other.join(NEWEST)).expect("it is there");
    let four: String = text.split_inclusive('\n').take(4).collect();
    fs::remove_file(folder.join(NEWEST)).expect("it is there");
    fs::write(folder.join("audit.00000000000000000001-001.log"), four).expect("it is ours");
    assert_eq!(open(&folder).reported(), 1);
}

#[test]
fn a_removed_newest_file_is_noticed_by_the_next_write() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    log.commands(2);
    fs::rename(folder.join(NEWEST), folder.join("mine")).expect("it is there");
    log.commands(1);
    assert_eq!(log.reported(), 1);
    let faults = log.verified().faults;
    assert!(faults[0].what.contains("begins with entry 5, not 1"), "{faults:?}");
    let notes = log.entries().into_iter().filter(|entry| entry.phase == phase::LOG);
    assert_eq!(notes.count(), 1, "the log itself says so");
}

/// A killed daemon leaves the beginning of an entry. Such an entry was not acknowledged.
#[test]
fn an_interrupted_write_is_no_change_exhaustive() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    log.commands(1);
    let two = fs::read(folder.join(NEWEST)).expect("it is there");
    log.commands(1);
    let four = fs::read(folder.join(NEWEST)).expect("it is there");
    drop(log);
    for end in (two.len() + 1..four.len()).filter(|end| end % 16 == 0 || four[end - 1] == b'\n') {
        let other = Folder::new("strake-audit");
        fs::write(other.join(NEWEST), &four[..end]).expect("it can be written");
        fs::write(other.join("audit.ends"), Ends::default().text()).expect("it can be written");
        let complete = four[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
        let log = open(&other);
        log.commands(1);
        assert_eq!(log.reported(), 0, "cut after {end} bytes");
        log.check_valid(complete + 2);
    }
}

#[test]
fn entries_wait_for_a_directory_that_refuses_writes() {
    let folder = Folder::new("strake-audit");
    let disk = Arc::new(Ill::default());
    let log = open_with(StateFolder::on(&folder, Arc::clone(&disk) as _), SMALL);
    log.commands(1);
    disk.refuse(true);
    log.commands(2);
    assert!(log.audit.trouble().is_some());
    assert_eq!(log.verified().entries, 2);
    disk.refuse(false);
    log.audit.flush();
    assert_eq!(log.audit.trouble(), None);
    log.check_valid(6);
    disk.refuse(true);
    log.commands(AUDIT_PENDING_MAX as u64 / 2 + 3);
    disk.refuse(false);
    log.audit.flush();
    // The entry about the dropped ones follows.
    log.check_valid(6 + AUDIT_PENDING_MAX as u64 + 1);
    let last = log.entries().pop().expect("there are entries");
    assert_eq!(
        (last.phase.as_str(), last.cause.starts_with("6 entries")),
        (phase::LOG, true),
        "{last:?}"
    );
}

/// History: an orderly stop left the entries that waited, and the numbers of calls that were denied in the last minute.
#[test]
fn a_stop_writes_what_waits() {
    let folder = Folder::new("strake-audit");
    let disk = Arc::new(Ill::default());
    let log = open_with(StateFolder::on(&folder, Arc::clone(&disk) as _), SMALL);
    log.audit.deny(&operator(), "CreateArray");
    log.audit.deny(&operator(), "CreateArray");
    disk.refuse(true);
    log.commands(1);
    assert_eq!(log.audit.finish(), 3, "two of the command and one of the calls");
    disk.refuse(false);
    assert_eq!(log.audit.finish(), 0);
    log.check_valid(4);
    let last = log.entries().pop().expect("there are entries");
    assert_eq!((last.phase.as_str(), &last.cause[..7]), (phase::DENIED, "1 calls"), "{last:?}");
}

/// A user without rights must not be able to fill the log, and so remove older entries.
#[test]
fn denied_calls_have_one_entry_for_each_user_and_minute() {
    let folder = Folder::new("strake-audit");
    let log = open(&folder);
    for uid in [1000, 1001] {
        let actor = Actor { peer: Some((uid, 1)), role: Some(Role::Viewer) };
        (0..100).for_each(|_| log.audit.deny(&actor, "ArrayService/CreateArray"));
    }
    let entries = log.entries();
    let seen: Vec<_> = entries.iter().map(|e| (e.uid, e.phase.as_str(), e.role.as_str())).collect();
    assert_eq!(
        seen,
        [(Some(1000), phase::DENIED, "viewer"), (Some(1001), phase::DENIED, "viewer")]
    );
}

/// Commands run during a check, and their entries are not taken for changes.
#[test]
fn a_check_beside_commands_finds_nothing() {
    let folder = Folder::in_memory("strake-audit");
    let log = open(&folder);
    std::thread::scope(|scope| {
        let commands = scope.spawn(|| log.commands(500));
        while !commands.is_finished() {
            assert_eq!(log.verified().faults, []);
        }
    });
    log.check_valid(1000);
}

#[test]
fn the_oldest_files_are_removed_and_the_removal_is_recorded() {
    let folder = Folder::new("strake-audit");
    let log = open_with(StateFolder::of(&folder), Limits { file: 4096, all: 16 << 10 });
    log.commands(100);
    let report = log.verified();
    assert_eq!(report.faults, []);
    assert!(report.first > 1, "nothing was removed");
    let request = VerifyAuditRequest { number: 1, hash: "0".repeat(64) };
    let faults = log.audit.verify(&request).expect("it can be read").faults;
    assert!(faults[0].what.contains("removed with the oldest"), "{faults:?}");
    let notes: Vec<_> = log.entries().into_iter().filter(|e| e.phase == phase::LOG).collect();
    assert!(notes.iter().all(|note| note.cause.contains("exceeds its limit")) && !notes.is_empty());
    let bytes: u64 = fs::read_dir(&*folder)
        .expect("it is there")
        .map(|entry| entry.and_then(|e| e.metadata()).map_or(0, |about| about.len()))
        .sum();
    assert!(bytes < 32 << 10, "{bytes} bytes");
}

/// After a power loss at any step, every entry whose write had returned is there, and nothing looks changed.
#[test]
fn a_power_loss_removes_no_returned_entry_exhaustive() {
    let folder = Folder::new("strake-audit");
    let disk = Arc::new(Forgetful::over(&folder));
    let tiny = Limits { file: 600, ..SMALL };
    let log = open_with(StateFolder::on(&folder, Arc::clone(&disk) as _), tiny);
    // The number of steps after each write, and the entries that are written then.
    let mut written = vec![(disk.steps(), 0)];
    for entries in 1..=8 {
        log.audit.begin(&operator(), Subject { command: "array rebuild", object: "array/tank" });
        written.push((disk.steps(), entries));
    }
    drop(log);
    let files = fs::read_dir(&*folder).expect("it is there").count();
    assert!(files > 3, "{files} files: nothing was rotated");
    for steps in written[0].0..=disk.steps() {
        let before =
            written.iter().rfind(|(at, _)| *at <= steps).map_or(0, |(_, entries)| *entries);
        for fate in Fate::some() {
            let after = Folder::new("strake-audit");
            for (name, bytes) in disk.left(&folder, steps, fate) {
                fs::write(after.join(name), bytes).expect("it can be written");
            }
            let log = open(&after);
            assert_eq!(log.reported(), 0, "{steps} steps, {fate:?}");
            let found = log.verified();
            assert_eq!(found.faults, [], "{steps} steps, {fate:?}");
            assert!(
                (before..=before + 1).contains(&found.last),
                "{steps} steps, {fate:?}: {found:?}"
            );
            if fate == Fate::Lost {
                log.commands(1);
                log.check_valid(found.last + 2);
            }
        }
    }
}
