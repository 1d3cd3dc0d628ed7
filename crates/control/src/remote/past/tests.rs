//! Tests of a daemon that ends, cleanly or not, and of the daemons that follow it. The tests define the times.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use strake_block::{
    BlockDevice, DeallocateReads, DeviceError, DeviceInfo, IoErrorKind, IoQueue, SETTLE_TIME_MAX,
    VolatileCache,
};
use strake_engine::Drive;
use strake_ondisk::{Consistency, Format, GeometryRecord, Superblock};
use strake_testkit::Folder;
use strake_units::{BlockSize, CoreIndex, MemberIndex, MemberSet, Nanos, Uuid};

use super::{FILE, Past};
use crate::drives::label::Labelled;
use crate::record::files::StateFolder;
use crate::record::files::tests::{Fate, Forgetful};

/// A time long after the start of the host.
const START: Nanos = Nanos(1000 * Nanos::SECOND.0);
const SETTLE: Nanos = Nanos(8 * Nanos::SECOND.0);

/// The state directory of successive daemons.
struct Daemons(Folder);

impl Daemons {
    fn new() -> Self {
        Self(Folder::new("strake-past"))
    }

    /// A daemon that starts `seconds` after the first one.
    fn daemon(&self, seconds: u64) -> Past {
        Past::open(StateFolder::of(&self.0), at(seconds))
    }

    /// Changes the text of the file.
    fn edit(&self, change: impl Fn(&mut serde_json::Value)) {
        let path = self.0.join(FILE);
        let mut value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
        change(&mut value);
        fs::write(path, value.to_string()).expect("it is written");
    }
}

const fn at(seconds: u64) -> Nanos {
    Nanos(START.0 + seconds * Nanos::SECOND.0)
}

struct Device {
    identity: &'static str,
    settle_time: Nanos,
}

impl BlockDevice for Device {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            identity: self.identity.to_owned(),
            blocks: 1 << 20,
            block_size: BlockSize::B4096,
            io_bytes_max: 1 << 20,
            io_bytes_optimal: 0,
            cache: VolatileCache::Absent,
            deallocate: DeallocateReads::Unsupported,
            fast_zeroes: false,
            read_only: false,
        }
    }

    fn open_queue(&self, _: CoreIndex, _: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Err(DeviceError::new(IoErrorKind::Gone, String::new(), "nobody opens it".to_owned()))
    }

    fn settle_time(&self) -> Nanos {
        self.settle_time
    }
}

fn epoch(tag: u8) -> Uuid {
    Uuid::from_random([tag; 16])
}

/// A member at `identity`, with the label of an activation that did not end cleanly.
fn member(identity: &'static str, settle_time: Nanos, tag: u8) -> Labelled {
    let label = Superblock {
        array: Uuid::from_random([0xa; 16]),
        name: "tank".parse().expect("a name"),
        format: Format::One,
        member: Uuid::from_random([2; 16]),
        slot: MemberIndex(0),
        generation: 7,
        epoch: epoch(tag),
        parent_epoch: Uuid::NIL,
        geometry: GeometryRecord {
            level: 1,
            parity: 1,
            members: 2,
            group_width: 2,
            strip_bytes: 65_536,
            block_bytes: 4096,
            layout: 1,
            member_blocks: 1000,
            region_stripes: 256,
        },
        clean: false,
        destroyed: false,
        members: Vec::new(),
        history: Vec::new(),
        replacements: Vec::new(),
        consistency: Consistency::Safe,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
    };
    let device = Arc::new(Device { identity, settle_time });
    let drive = Drive { device, path: identity.to_owned() };
    Labelled { drive, label, written_over: None, overwritten: None }
}

/// The first daemon: it uses drive `a` and opens the array with epoch 1. It is killed at `at(0)`.
fn killed() -> Daemons {
    let folder = Daemons::new();
    let mut past = folder.daemon(0);
    let a = member("a", SETTLE, 0);
    past.use_drive(&*a.drive.device, at(0)).expect("it is written");
    past.begin(&a.label, epoch(1), at(0)).expect("it is written");
    folder
}

#[test]
fn what_a_killed_daemon_used_is_waited_for_from_the_next_start() {
    let folder = killed();
    let mut past = folder.daemon(100);
    assert_eq!(past.settled_at("a", at(100)), Some(at(108)));
    assert_eq!(past.settled_at("b", at(100)), None);
    assert_eq!(past.all_settled_at(at(100)), at(108));
    let here = [member("a", SETTLE, 1)];
    assert_eq!(past.wait_until(&here, at(101)), Some(at(108)));
    assert_eq!(past.wait_until(&here, at(108)), None);
}

#[test]
fn an_activation_that_is_not_recorded_is_waited_for_from_the_first_look() {
    let folder = killed();
    let mut past = folder.daemon(100);
    let here = [member("a", SETTLE, 9)];
    let until = Some(at(103).plus(SETTLE_TIME_MAX));
    assert_eq!(past.wait_until(&here, at(103)), until);
    assert_eq!(past.wait_until(&here, at(110)), until);
    assert_eq!(past.wait_until(&here, at(116)), None);
}

#[test]
fn without_records_labels_are_enough() {
    let folder = killed();
    fs::write(folder.0.join(FILE), "{").expect("it is written");
    let mut past = folder.daemon(100);
    assert_eq!(past.settled_at("a", at(100)), None);
    let here = [member("a", SETTLE, 1)];
    assert_eq!(past.wait_until(&here, at(100)), Some(at(100).plus(SETTLE_TIME_MAX)));
    let local = [member("a", Nanos(0), 1)];
    assert_eq!(past.wait_until(&local, at(100)), None);
}

#[test]
fn an_array_of_this_process_is_not_waited_for() {
    let folder = Daemons::new();
    let mut past = folder.daemon(0);
    let before = member("a", SETTLE, 1);
    past.begin(&before.label, epoch(2), at(0)).expect("it is written");
    assert_eq!(past.wait_until(&[member("a", SETTLE, 2)], at(1)), None);
    // A start that failed before it wrote a label leaves the previous label.
    past.begin(&member("a", SETTLE, 2).label, epoch(3), at(2)).expect("it is written");
    assert_eq!(past.wait_until(&[member("a", SETTLE, 2)], at(3)), None);
    assert_eq!(past.wait_until(&[member("a", SETTLE, 3)], at(3)), None);
    past.begin_first(epoch(0xa), epoch(4), at(4)).expect("it is written");
    assert_eq!(past.wait_until(&[member("a", SETTLE, 4)], at(4)), None);
}

#[test]
fn after_an_orderly_stop_nothing_is_waited_for() {
    let folder = Daemons::new();
    let mut past = folder.daemon(0);
    past.use_drive(&*member("a", SETTLE, 0).drive.device, at(0)).expect("it is written");
    past.end(&[], at(50)).expect("it is removed");
    assert!(!folder.0.join(FILE).exists());
    let mut past = folder.daemon(51);
    assert_eq!(past.settled_at("a", at(51)), None);
    past.end(&[], at(52)).expect("there is nothing to remove");
}

#[test]
fn an_orderly_stop_leaves_what_a_drive_was_not_answered() {
    let folder = Daemons::new();
    let mut past = folder.daemon(0);
    for identity in ["a", "b"] {
        past.use_drive(&*member(identity, SETTLE, 0).drive.device, at(0)).expect("it is written");
    }
    past.end(&["b".to_owned()], at(50)).expect("it is written");
    let mut past = folder.daemon(51);
    assert_eq!(past.settled_at("a", at(51)), None);
    assert_eq!(past.settled_at("b", at(51)), Some(at(59)));
}

#[test]
fn a_daemon_that_ends_early_leaves_what_the_one_before_left() {
    let folder = killed();
    let mut second = folder.daemon(100);
    second.use_drive(&*member("b", SETTLE, 0).drive.device, at(101)).expect("it is written");
    // The second daemon is also killed.
    let mut third = folder.daemon(102);
    assert_eq!(third.settled_at("a", at(102)), Some(at(110)));
    assert_eq!(third.wait_until(&[member("a", SETTLE, 1)], at(102)), Some(at(110)));
    third.end(&[], at(103)).expect("it is written");
    let mut fourth = folder.daemon(104);
    assert_eq!(fourth.settled_at("a", at(104)), Some(at(112)));
    // After its time has passed, the use is no longer recorded.
    fourth.end(&[], at(113)).expect("it is removed");
    assert!(!folder.0.join(FILE).exists());
}

#[test]
fn a_drive_that_takes_longer_now_is_recorded_with_that() {
    let folder = killed();
    let mut past = folder.daemon(100);
    past.use_drive(&*member("a", SETTLE, 0).drive.device, at(109)).expect("it is written");
    past.use_drive(&*member("a", SETTLE_TIME_MAX, 0).drive.device, at(110)).expect("it is written");
    past.use_drive(&*member("a", SETTLE, 0).drive.device, at(111)).expect("nothing is written");
    let mut next = folder.daemon(200);
    assert_eq!(next.settled_at("a", at(200)), Some(at(200).plus(SETTLE_TIME_MAX)));
}

/// A state directory may come from another host, whose daemon was just killed. The boot in the record does not show
/// when this happened.
#[test]
fn what_another_boot_left_is_waited_for_as_well() {
    let folder = killed();
    folder.edit(|file| file["processes"][0]["boot"] = "another".into());
    let mut past = folder.daemon(100);
    let settled = Some(at(100).plus(SETTLE));
    assert_eq!(past.settled_at("a", at(100)), settled);
    assert_eq!(past.wait_until(&[member("a", SETTLE, 1)], at(100)), settled);
}

fn other_process() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat")
}

#[test]
fn nothing_is_over_while_the_earlier_process_runs() {
    let folder = killed();
    let mut child = other_process();
    let pid = child.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let started: u64 = stat
        .rsplit(')')
        .next()
        .and_then(|s| s.split_whitespace().nth(19)?.parse().ok())
        .expect("22");
    folder.edit(|file| {
        file["processes"][0]["pid"] = pid.into();
        file["processes"][0]["started"] = started.into();
    });
    let mut past = folder.daemon(100);
    assert_eq!(past.still_runs(at(150)), Some(pid));
    assert_eq!(past.settled_at("a", at(160)), Some(at(168)));
    // Another daemon that starts in the meantime keeps the record of this process.
    past.use_drive(&*member("b", SETTLE, 0).drive.device, at(161)).expect("it is written");
    assert_eq!(folder.daemon(162).still_runs(at(162)), Some(pid));
    drop(child.stdin.take());
    child.wait().expect("it ends");
    assert_eq!(past.still_runs(at(170)), None);
    // The process was last seen when the use of `b` was written.
    assert_eq!(past.settled_at("a", at(180)), Some(at(169)));
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_and_tried_again() {
    let folder = Daemons::new();
    let mut past = Past::open(StateFolder::of(&folder.0.join("gone")), at(0));
    let device = member("a", SETTLE, 0).drive.device;
    past.use_drive(&*device, at(0)).expect_err("there is no directory");
    fs::create_dir(folder.0.join("gone")).expect("it is made");
    past.use_drive(&*device, at(1)).expect("it is tried again");
    assert!(folder.0.join("gone").join(FILE).exists());
}

/// The record of the use survives a power loss before the drive is used. A clean stop removes it, and it does not
/// reappear after a power loss.
#[test]
fn what_is_recorded_outlasts_a_power_cut() {
    let folder = Daemons::new();
    let disk = Arc::new(Forgetful::default());
    let state = StateFolder::on(&folder.0.join("state"), Arc::clone(&disk) as _);
    state.make().expect("it can be made");
    let mut past = Past::open(state.clone(), at(0));
    let after_a_cut = |fate| {
        let to = folder.0.join(format!("{fate:?} {}", disk.steps()));
        disk.leave(state.path(), &to, fate);
        Past::open(StateFolder::of(&to), at(100))
    };
    let found = member("a", SETTLE, 1);
    past.use_drive(&*found.drive.device, at(1)).expect("it is written");
    for fate in Fate::some() {
        let settled = after_a_cut(fate).settled_at("a", at(100));
        assert_eq!(settled, Some(at(108)), "{fate:?}: the drive");
        let unknown = after_a_cut(fate).wait_until(&[member("a", SETTLE, 9)], at(100));
        assert!(unknown > Some(at(108)), "{fate:?}: an activation that is not recorded");
    }
    past.begin(&found.label, epoch(9), at(2)).expect("it is written");
    for fate in Fate::some() {
        let known = after_a_cut(fate).wait_until(&[member("a", SETTLE, 9)], at(100));
        assert_eq!(known, Some(at(108)), "{fate:?}: the activation");
    }
    past.end(&[], at(3)).expect("it is removed");
    for fate in Fate::some() {
        assert_eq!(after_a_cut(fate).settled_at("a", at(100)), None, "{fate:?}: it is over");
    }
}
