//! Tests of the growth of arrays to the size of their members.

use super::life::{read, write};
use super::remote::{HOST, Machine};
use super::{
    Testbed, array, change_job, check_refused, fail, mirror, nbd, nvme_tcp, raid6, readd, replace,
    spare, tick_until,
};
use crate::commands::grow::{make_room_in, plan_growth};
use crate::control::Control;
use crate::error::ControlErrorKind::{NotFound, Refused, State, Usage};
use crate::state::growth::Growth;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use strake_api::v1::{AddSpareRequest, ArrayChange, CreateArrayRequest, GrowArrayRequest};
use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut, Durability, Op, Sg};
use strake_dev_fabrics::{FabricsDevice, HostName, Options};
use strake_dev_uring::control_wait;
use strake_engine::Change;
use strake_units::{CoreIndex, Lba};

/// The start of the data area of every member.
const DATA: u64 = 16 << 20;

fn request(name: &str) -> GrowArrayRequest {
    GrowArrayRequest { name: name.into(), ..Default::default() }
}

fn grow(control: &Control, name: &str) -> Result<ArrayChange, crate::ControlError> {
    control.grow_array(&request(name))
}

/// Extends files. The new area contains arbitrary bytes, as after an allocation.
fn enlarge(drives: &[String], bytes: u64) {
    for path in drives {
        let file = OpenOptions::new().write(true).open(path).expect("it is there");
        let before = file.metadata().expect("it is there").len();
        let garbage = vec![0xa5; 1 << 20];
        file.write_all_at(&garbage, before).expect("there is room");
        file.write_all_at(&garbage, bytes - (8 << 20)).expect("there is room");
        file.set_len(bytes).expect("there is room");
    }
}

fn size(control: &Control, name: &str) -> u64 {
    array(control, name).expect("it is there").size_bytes
}

fn is_healthy(control: &Control, name: &str) -> bool {
    let view = array(control, name).expect("it is there");
    view.states == ["online"] && view.progress.is_empty()
}

#[test]
fn an_array_grows_after_its_files_were_made_larger() {
    let (mut control, drives) = Testbed::raid6(4);
    let before = size(&control, "tank");
    let nothing = grow(&control, "tank").expect("it may");
    assert_eq!(nothing.result, "unchanged");
    assert!(nothing.warnings[0].contains("member 0"), "{:?}", nothing.warnings);

    enlarge(&drives[..3], 96 << 20);
    let nothing = grow(&control, "tank").expect("it may");
    assert_eq!(nothing.result, "unchanged", "the smallest one counts");
    assert!(nothing.warnings[0].contains("member 3"), "{:?}", nothing.warnings);
    enlarge(&drives[3..], 96 << 20);
    let dry = GrowArrayRequest { dry_run: true, ..request("tank") };
    let planned = control.grow_array(&dry).expect("it may");
    assert_eq!((planned.result.as_str(), size(&control, "tank")), ("planned", before));
    assert!(planned.plan.iter().any(|step| step.contains("64 MiB more")), "{:?}", planned.plan);

    let changed = grow(&control, "tank").expect("it grows");
    assert_eq!(changed.result, "changed");
    assert_eq!(size(&control, "tank"), before + (64 << 20));
    assert_eq!(changed.array.expect("it is shown").size_bytes, before + (64 << 20));
    assert!(is_healthy(&control, "tank"));
    control.ticks(5);
    assert!(is_healthy(&control, "tank"), "{:?}", array(&control, "tank"));
    assert_eq!(control.reported("array_grown").len(), 1);
    assert_eq!(grow(&control, "tank").expect("it may").result, "unchanged");
    control.restart();
    assert_eq!(size(&control, "tank"), before + (64 << 20));
    assert!(is_healthy(&control, "tank"), "{:?}", array(&control, "tank"));
    // The array grows again, after the daemon found the larger files at its start.
    control.shut_down();
    enlarge(&drives, 128 << 20);
    control.start();
    assert_eq!(size(&control, "tank"), before + (64 << 20));
    assert_eq!(grow(&control, "tank").expect("it grows").result, "changed");
    assert_eq!(size(&control, "tank"), before + (128 << 20));
    control.shut_down();
    // The arbitrary bytes and the earlier labels are overwritten.
    for path in &drives {
        let file = std::fs::File::open(path).expect("it is there");
        let mut piece = vec![0; 1 << 20];
        for at in (DATA + (44 << 20)..(128 - 4) << 20).step_by(piece.len()) {
            file.read_exact_at(&mut piece, at).expect("it is there");
            assert!(piece.iter().all(|byte| *byte == 0), "{path} at {at}");
        }
    }
}

#[test]
fn an_array_grows_after_its_members_were_replaced_by_larger_ones() {
    let (mut control, drives) = Testbed::mirror(4);
    enlarge(&drives[2..], 128 << 20);
    let before = size(&control, "tank");
    for (member, drive) in [(0, 2), (1, 3)] {
        let drive = &drives[drive];
        control.replace_member(&replace(member, drive)).expect("it fits");
        tick_until(&control, "the copy", || {
            let view = control.tank();
            let path = &view.members[member as usize].path;
            is_healthy(&control, "tank") && path == drive
        });
        let (wanted, now) = (if member == 0 { "unchanged" } else { "changed" }, before);
        assert_eq!(size(&control, "tank"), now);
        assert_eq!(grow(&control, "tank").expect("it may").result, wanted);
    }
    assert_eq!(size(&control, "tank"), before + (64 << 20));
    control.restart();
    assert!(is_healthy(&control, "tank"), "{:?}", array(&control, "tank"));
    assert_eq!(size(&control, "tank"), before + (64 << 20));
}

#[test]
fn an_array_that_is_not_whole_does_not_grow() {
    let (control, drives) = Testbed::raid6(5);
    let before = size(&control, "tank");
    enlarge(&drives, 96 << 20);
    check_refused(grow(&control, "vault"), NotFound, "vault");
    control.fail_member(&fail("tank", 2)).expect("allowed");
    check_refused(grow(&control, "tank"), State, "member 2 is not in sync");
    control.replace_member(&replace(2, &drives[4])).expect("it fits");
    tick_until(&control, "the rebuild", || is_healthy(&control, "tank"));
    assert_eq!(size(&control, "tank"), before);
    assert_eq!(grow(&control, "tank").expect("it grows").result, "changed");
    assert!(is_healthy(&control, "tank"));
}

/// History: a file that was extended while it served has other bytes than a partition table at its end. It counted as
/// truncated, and its member was reported as missing.
#[test]
fn a_member_that_was_made_larger_stays() {
    let (control, drives) = Testbed::mirror(2);
    control.ticks(3);
    enlarge(&drives, 96 << 20);
    control.ticks(3);
    assert!(is_healthy(&control, "tank"), "{:?}", array(&control, "tank"));
    assert_eq!(control.reported("member_missing"), []);
    // A truncated file is still noticed, also after it was extended with the array.
    grow(&control, "tank").expect("it grows");
    control.ticks(3);
    assert!(is_healthy(&control, "tank"));
    let file = OpenOptions::new().write(true).open(&drives[1]).expect("it is there");
    file.set_len(80 << 20).expect("it can be cut");
    file.set_len(96 << 20).expect("and made longer");
    tick_until(&control, "the loss", || control.tank().members[1].state != "in_sync");
}

/// History: a drive that was extended while its member was out has only a few labels at its new end. After the next
/// start, its end counted as overwritten.
#[test]
fn a_member_that_came_back_larger_is_a_member_after_a_restart() {
    let (mut control, drives) = Testbed::mirror(2);
    for _ in 0..3 {
        control.fail_member(&fail("tank", 1)).expect("allowed");
        control.readd_member(&readd(Some(1))).expect("it is the member");
        tick_until(&control, "the rebuild", || is_healthy(&control, "tank"));
    }
    control.fail_member(&fail("tank", 1)).expect("allowed");
    enlarge(&drives[1..], 96 << 20);
    control.readd_member(&readd(Some(1))).expect("it is the member");
    tick_until(&control, "the rebuild", || is_healthy(&control, "tank"));
    control.restart();
    assert!(is_healthy(&control, "tank"), "{:?}", array(&control, "tank"));
    assert_eq!(control.tank().members[1].state, "in_sync");
}

/// A drive that lost its end before it was extended lacks a part of the content of its member. A drive with a foreign
/// signature at its new end would not be used at the next start.
#[test]
fn members_that_would_not_be_used_again_are_found_before_the_array_is_stopped() {
    let (control, drives) = Testbed::raid6(4);
    let before = size(&control, "tank");
    enlarge(&drives, 96 << 20);
    let file = OpenOptions::new().write(true).open(&drives[2]).expect("it is there");
    // The place of an md superblock of version 1.0: 8 KiB before the end, at a multiple of 4 KiB.
    let mut superblock = [0; 4096];
    superblock[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    file.write_all_at(&superblock, (96 << 20) - 8192).expect("there is room");
    check_refused(grow(&control, "tank"), Refused, "drive2 has");
    file.write_all_at(&[0; 4096], (96 << 20) - 8192).expect("there is room");
    file.write_all_at(&[0; 65536], (64 << 20) - 65536).expect("there is room");
    check_refused(grow(&control, "tank"), Refused, "drive2 was truncated");
    assert_eq!(size(&control, "tank"), before);
}

/// History: members whose former size was no multiple of 4 KiB were not checked.
#[test]
fn a_truncated_member_of_any_size_is_found_before_a_growth() {
    let control = Testbed::new();
    let (drives, bytes) = (control.drives(4), (64 << 20) + 512);
    for path in &drives {
        let file = OpenOptions::new().write(true).open(path).expect("it is there");
        file.set_len(bytes).expect("it can be enlarged");
    }
    control.create_array(&raid6(drives.clone())).expect("it is created");
    enlarge(&drives, 96 << 20);
    let file = OpenOptions::new().write(true).open(&drives[2]).expect("it is there");
    file.write_all_at(&[0; 128 << 10], bytes - (128 << 10)).expect("there is room");
    check_refused(grow(&control, "tank"), Refused, "drive2 was truncated");
}

/// A spare that no longer fits protects no array. Without a report, the operator would notice this only when a member
/// fails.
#[test]
fn spares_that_become_too_small_are_reported() {
    let (control, drives) = Testbed::mirror(4);
    enlarge(&drives[3..], 96 << 20);
    for (drive, array) in [(2, "tank"), (3, "")] {
        let array = array.to_owned();
        let add = AddSpareRequest { array, overwrite: true, ..spare(&drives[drive]) };
        control.add_spare(&add).expect("it fits");
    }
    enlarge(&drives[..2], 96 << 20);
    let dry = GrowArrayRequest { dry_run: true, ..request("tank") };
    let planned = control.grow_array(&dry).expect("it may");
    let changed = grow(&control, "tank").expect("it grows");
    for reported in [planned.warnings, changed.warnings] {
        assert!(matches!(&reported[..], [one] if one.contains(&drives[2])), "{reported:?}");
    }
}

/// The growth can be cancelled while the new area is prepared, and the array is then unchanged.
#[test]
fn growing_is_a_job_that_can_be_cancelled() {
    let (control, drives) = Testbed::mirror(2);
    enlarge(&drives, 96 << 20);
    let before = size(&control, "tank");
    let growth = Arc::new(Growth::default());
    let shown = Some(Arc::clone(&growth));
    control.with(|m| m.running[0].growth = shown).expect("it answers");
    let jobs = control.with(|m| m.list_jobs().jobs).expect("it answers");
    assert_eq!((jobs[0].id.as_str(), jobs[0].state.as_str()), ("tank/grow", "running"));
    let change = |action: &str| control.change_job(&change_job("tank/grow", action));
    check_refused(change("pause"), Usage, "can only be cancelled");
    assert_eq!(change("cancel").expect("it can be").result, "changed");
    let (intended, reserved) =
        control.reserve(|m| plan_growth(m, &request("tank"), Change::Grow)).expect("it may");
    let areas = vec![vec![intended.plan.new_area()]; 2];
    let given_up = make_room_in(&control, &intended, &areas, &growth);
    check_refused(given_up, State, "was abandoned; the array is unchanged");
    assert_eq!((size(&control, "tank"), growth.progress().done_bytes), (before, 0));
    assert!(is_healthy(&control, "tank"), "the job is over");
    drop(reserved);
}

/// An array of four drives with blocks of 4 KiB, its drives, and a host that is connected to its export.
fn exported() -> (Testbed, Vec<String>, FabricsDevice) {
    let control = Testbed::new();
    let drives = control.drives(4);
    let create = CreateArrayRequest { block_bytes: Some(4096), ..raid6(drives.clone()) };
    control.create_array(&create).expect("it is created");
    let address = control.export(&nvme_tcp(HOST)).uri.parse().expect("an address");
    let name = HostName { nqn: HOST.into(), id: [7; 16], keys: None, tls: None };
    let host = FabricsDevice::connect(&address, &name, Options::default());
    (control, drives, host.expect("it is admitted"))
}

/// Connects to the export tank as an NBD client does (NBD specification, "Fixed newstyle negotiation"). Returns the
/// stream, and the size that the server reports.
pub(super) fn connect_nbd(path: &std::path::Path) -> (UnixStream, u64) {
    let mut stream = UnixStream::connect(path).expect("it is listened");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let option = [&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &4_u32.to_be_bytes(), b"tank"].concat();
    stream.write_all(&[&3_u32.to_be_bytes()[..], &option].concat()).expect("it is taken");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the export");
    (stream, u64::from_be_bytes(answer[..8].try_into().expect("8 bytes")))
}

/// NBD clients cannot be made to wait. A command must not disconnect them without the consent of the operator.
#[test]
fn clients_of_nbd_are_disconnected_only_on_request() {
    let (control, drives) = Testbed::raid6(4);
    let socket = control.path("nbd");
    control.export(&nbd(&socket));
    let (mut client, before) = connect_nbd(&socket);
    enlarge(&drives, 96 << 20);
    check_refused(grow(&control, "tank"), Refused, "1 NBD clients");
    let dry = GrowArrayRequest { dry_run: true, ..request("tank") };
    let planned = control.grow_array(&dry).expect("it is only looked at");
    assert!(planned.warnings[0].contains("1 NBD clients"), "{:?}", planned.warnings);
    let dry = GrowArrayRequest { force: true, ..dry };
    assert!(control.grow_array(&dry).expect("it is only looked at").warnings.is_empty());
    assert_eq!(size(&control, "tank"), before);
    let force = GrowArrayRequest { force: true, ..request("tank") };
    assert_eq!(control.grow_array(&force).expect("it grows").result, "changed");
    assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0, "it is disconnected");
    let (_client, after) = connect_nbd(&socket);
    assert_eq!((after, after - before), (size(&control, "tank"), 64 << 20));
}

fn block(byte: u8) -> BufMut {
    let mut data = BufMut::alone(4096);
    data.as_mut_slice().fill(byte);
    data
}

/// Writes and reads blocks without a pause until `done`. Checks that no error occurs and that each read returns the
/// written data.
fn busy(host: &FabricsDevice, rounds: &AtomicU64, done: &AtomicBool) {
    let queue = host.open_queue(CoreIndex(0), 1).expect("it is connected");
    let mut wait = || control_wait()();
    let mut io = Blocking::new(queue, &mut wait);
    while !done.load(Ordering::Relaxed) {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        let at = Lba(round % 64 * 8);
        let byte = (round % 251) as u8;
        let data = Sg::from(block(byte).freeze());
        io.run(Op::Write { at, data, durability: Durability::Normal })
            .expect("a host sees no error");
        let there = io.read(at, BufMut::alone(4096)).expect("a host sees no error");
        assert!(there.as_slice().iter().all(|there| *there == byte), "round {round}");
    }
}

/// A host with continuous I/O is notified of the new size, sees no error, and uses the new size.
#[test]
fn a_connected_host_sees_a_namespace_grow_while_it_writes() {
    let (control, drives, host) = exported();
    let before = host.info().bytes();
    let (rounds, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let more = |client: &thread::ScopedJoinHandle<'_, ()>| {
        let seen = rounds.load(Ordering::Relaxed);
        while rounds.load(Ordering::Relaxed) < seen + 20 {
            assert!(!client.is_finished(), "the host has seen an error");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| busy(&host, &rounds, &done));
        for bytes in [80 << 20, 128 << 20] {
            more(&client);
            enlarge(&drives, bytes);
            assert_eq!(grow(&control, "tank").expect("it grows").result, "changed");
            tick_until(&control, "the news", || host.info().bytes() == size(&control, "tank"));
            more(&client);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(host.info().bytes(), before + (128 << 20));
    let queue = host.open_queue(CoreIndex(0), 1).expect("it is connected");
    let mut wait = control_wait();
    let mut io = Blocking::new(queue, &mut wait);
    let last = Lba((host.info().bytes() >> 12) - 1);
    let zeroes = io.read(last, BufMut::alone(4096)).expect("the new area is there");
    assert!(zeroes.as_slice().iter().all(|byte| *byte == 0));
    io.write_stable(last, Sg::from(block(0x77).freeze())).expect("and can be written");
    drop(io);
    drop(host);
    assert!(is_healthy(&control, "tank"));
}

/// An array that cannot be started again after it grew remains stopped until the operator decides what to do. The
/// operator may accept the loss of the last writes, so hosts assume this loss after each such start.
#[test]
fn a_host_starts_again_with_an_array_that_growing_left_stopped() {
    let (control, drives, host) = exported();
    let queue = host.open_queue(CoreIndex(0), 1).expect("it is connected");
    let mut wait = control_wait();
    let mut io = Blocking::new(queue, &mut wait);
    let (data, durability) = (Sg::from(block(0x77).freeze()), Durability::Normal);
    io.run(Op::Write { at: Lba(0), data, durability }).expect("it is written, and not flushed");

    enlarge(&drives, 96 << 20);
    let hidden: Vec<_> = drives[1..].iter().map(|path| format!("{path}.hidden")).collect();
    for (path, hidden) in drives[1..].iter().zip(&hidden) {
        std::fs::rename(path, hidden).expect("it is there");
    }
    let stopped = grow(&control, "tank").map(|change| change.result);
    check_refused(stopped, Refused, "array tank is stopped");
    for (path, hidden) in drives[1..].iter().zip(&hidden) {
        std::fs::rename(hidden, path).expect("it is there");
    }
    tick_until(&control, "the start", || {
        array(&control, "tank").is_ok_and(|a| a.states == ["online"])
    });
    // A renewal that is not a reconnect shows that the host assumes the loss of data that it did not flush.
    tick_until(&control, "the host", || host.renewals() > host.reconnects());
    drop(io);
    drop(host);
}

/// Remote drives that were extended on the other host.
#[test]
fn an_array_grows_after_its_remote_drives_were_made_larger() {
    let (machine, mut control) = Machine::connected(2);
    control.create_array(&mirror(&machine.addresses)).expect("it is created");
    write(&control, "tank", 4);
    let before = size(&control, "tank");
    enlarge(&machine.drives(), 96 << 20);
    for number in 0..2 {
        machine.control.grow_array(&request(&format!("lun{number}"))).expect("it grows");
    }
    tick_until(&control, "the news", || {
        let dry = GrowArrayRequest { dry_run: true, ..request("tank") };
        control.grow_array(&dry).is_ok_and(|change| change.result == "planned")
    });
    tick_until(&control, "peace", || is_healthy(&control, "tank"));
    assert_eq!(grow(&control, "tank").expect("it grows").result, "changed");
    assert_eq!(size(&control, "tank"), before + (32 << 20));
    read(&control, "tank", 4);
    tick_until(&control, "peace", || is_healthy(&control, "tank"));
    control.restart();
    tick_until(&control, "the start", || {
        array(&control, "tank").is_ok_and(|a| a.states == ["online"])
    });
    assert_eq!(size(&control, "tank"), before + (32 << 20));
}
