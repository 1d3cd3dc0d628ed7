//! Several namespaces in a subsystem, which are added and removed while hosts are connected.

mod common;

use common::{BLOCK, BLOCKS, Host, Machine, SUBSYSTEM, code, export};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use strake_block::BlockDevice;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, ExportErrorKind, Removal};
use strake_nvme_wire::feature::event;
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

const ACCESS: (u64, u64) = (event::ACCESS_CHANGED_RESULT, 0);
const NAMESPACES: (u64, u64) = (event::NAMESPACES_CHANGED_RESULT, 0);

fn ram(blocks: u64) -> Option<Arc<dyn BlockDevice>> {
    Some(Arc::new(RamDevice::new(blocks, BlockSize::B4096)))
}

fn other(namespace: u32, device: Option<Arc<dyn BlockDevice>>) -> Export {
    let first = export(Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096)));
    Export { namespace, uuid: [namespace as u8; 16], device, ..first }
}

/// The outcome of a read of block 0 of a namespace.
fn read(io: &mut Host, namespace: u32) -> (Vec<u8>, u16) {
    let length = BLOCK as u32;
    io.send(2, Sgl::Transport { length }, &[(1, namespace)], &[]);
    let (data, _, status) = io.finish();
    (data, status)
}

fn write(io: &mut Host, namespace: u32, byte: u8) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, namespace)], &[byte; BLOCK]);
    io.finish().2
}

/// An Identify data structure.
fn identify(admin: &mut Host, cns: u32, namespace: u32) -> (Vec<u8>, u16) {
    let sgl = Sgl::Transport { length: 4096 };
    admin.send(6, sgl, &[(1, namespace), (10, cns)], &[]);
    let (data, _, status) = admin.finish();
    (data, status)
}

/// The first bytes of a log page.
fn log(admin: &mut Host, page: u32, length: u32) -> Vec<u8> {
    let words = [(10, (length / 4 - 1) << 16 | page)];
    admin.send(2, Sgl::Transport { length }, &words, &[]);
    let (data, _, status) = admin.finish();
    assert_eq!(status, 0, "log page {page:#x}");
    data
}

/// A controller whose host enabled events, with one I/O queue.
fn controller(machine: &Machine) -> (Host, Host) {
    let (mut admin, io) = machine.controller();
    let wanted = event::NAMESPACES_CHANGED | event::ACCESS_CHANGED;
    admin.send(9, Sgl::Transport { length: 0 }, &[(10, 0x0b), (11, wanted)], &[]);
    assert_eq!(admin.finish().2, 0, "Set Features");
    (admin, io)
}

/// Sends an Asynchronous Event Request, and waits for its completion; returns the result and the status.
fn reported(admin: &mut Host) -> (u64, u64) {
    admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    let (_, result, status) = admin.finish();
    (result, status.into())
}

/// Reads the changed namespaces, and the access states.
fn look(admin: &mut Host) -> (Vec<u8>, Vec<(u8, u8)>) {
    let changed = log(admin, 4, 4096).chunks(4).map(|c| c[0]).take_while(|&n| n > 0).collect();
    let page = log(admin, 0x0c, 16 + 4 * 36);
    let groups = page[16..].chunks(36).take(usize::from(page[8]));
    (changed, groups.map(|group| (group[32], group[16])).collect())
}

#[test]
fn each_namespace_is_its_own_device() {
    let machine = Machine::start();
    machine.target.add_export(&other(5, ram(64))).expect("a second namespace");
    let (mut admin, mut io) = machine.controller();
    assert_eq!(identify(&mut admin, 2, 0).0[..12], [1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(identify(&mut admin, 2, 1).0[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
    let (page, status) = identify(&mut admin, 0, 5);
    assert_eq!((status, page[0], page[92]), (0, 64, 5), "its size and group");
    assert_eq!(identify(&mut admin, 3, 5).0[4..20], [5; 16], "its UUID");
    assert_eq!(identify(&mut admin, 0, 2), (vec![0; 4096], 0), "a number that is not in use");
    assert_eq!(identify(&mut admin, 0, 33).1, code(Status::INVALID_NAMESPACE), "too high a number");

    assert_eq!((write(&mut io, 1, 0x11), write(&mut io, 5, 0x55)), (0, 0));
    assert_eq!((read(&mut io, 1).0, read(&mut io, 5).0), (vec![0x11; BLOCK], vec![0x55; BLOCK]));
    for number in [0, 2, u32::MAX] {
        assert_eq!(read(&mut io, number).1, code(Status::INVALID_NAMESPACE), "{number}");
    }
    let done: Vec<_> = machine.target.exports().iter().map(|e| (e.namespace, e.writes)).collect();
    assert_eq!(done, [(1, 1), (5, 1)]);
}

/// VMware finds only namespaces with an NGUID or an EUI64 (<https://github.com/spdk/spdk/issues/3041>).
#[test]
fn a_namespace_has_the_same_nguid_on_every_path_and_after_a_restart() {
    let nguid = |machine: &Machine| {
        let (mut admin, _io) = machine.controller();
        let page = identify(&mut admin, 0, 5).0;
        let descriptors = identify(&mut admin, 3, 5).0;
        assert_eq!(descriptors[..4], [3, 16, 0, 0], "its UUID");
        assert_eq!(descriptors[20..24], [2, 16, 0, 0], "its NGUID");
        assert_eq!(descriptors[24..40], page[104..120], "both places agree");
        assert_eq!(page[120..128], [0; 8], "there is no EUI64");
        <[u8; 16]>::try_from(&page[104..120]).expect("16 bytes")
    };
    let start = || {
        let machine = Machine::start();
        machine.target.add_export(&other(5, ram(64))).expect("a second namespace");
        machine
    };
    let machine = start();
    let (one, other_path) = (nguid(&machine), nguid(&machine));
    assert_eq!(one, [5, 5, 5, 5, 5, 5, 5, 5, 6, 5, 5, 5, 5, 5, 5, 5]);
    assert_eq!((other_path, nguid(&start())), (one, one));
}

#[test]
fn hosts_see_namespaces_come_and_go() {
    let machine = Machine::start();
    let (mut admin, mut io) = controller(&machine);
    assert_eq!(look(&mut admin), (vec![], vec![(1, 1)]), "nothing is new");

    machine.target.add_export(&other(2, ram(64))).expect("a second namespace");
    assert_eq!((reported(&mut admin), reported(&mut admin)), (ACCESS, NAMESPACES));
    assert_eq!(look(&mut admin), (vec![2], vec![(1, 1), (2, 1)]));
    assert_eq!(look(&mut admin).0, [0_u8; 0], "it was seen");
    assert_eq!(write(&mut io, 2, 0x22), 0, "a queue that was there before");

    let in_use = machine.target.remove_export(SUBSYSTEM, 2, Removal::IfUnused);
    assert_eq!(in_use.map_err(|e| e.kind), Err(ExportErrorKind::InUse));
    machine.target.remove_export(SUBSYSTEM, 2, Removal::Force).expect("it goes");
    assert_eq!((reported(&mut admin), reported(&mut admin)), (ACCESS, NAMESPACES));
    assert_eq!(look(&mut admin), (vec![2], vec![(1, 1)]));
    assert_eq!(read(&mut io, 2).1, code(Status::INVALID_NAMESPACE));
    assert_eq!(write(&mut io, 1, 0x11), 0, "the other one stays");

    // The namespace ID is free, also for another size.
    machine.target.add_export(&other(2, ram(128))).expect("the number is free");
    assert_eq!((reported(&mut admin), reported(&mut admin)), (ACCESS, NAMESPACES));
    assert_eq!(identify(&mut admin, 0, 2).0[0], 128);
    assert!(io.pdu().is_none(), "what was meant for the one before reaches no other device");
    let (_admin, mut io) = machine.controller();
    assert_eq!(read(&mut io, 2), (vec![0; BLOCK], 0), "another device");
}

#[test]
fn a_namespace_without_its_device_cannot_be_reached_until_it_is_there() {
    let machine = Machine::start();
    machine.target.add_export(&other(2, None)).expect("one without a device");
    let (mut admin, mut io) = controller(&machine);
    let inaccessible = code(Status::INACCESSIBLE);
    assert_eq!(look(&mut admin).1, [(1, 1), (2, 3)]);
    assert_eq!(identify(&mut admin, 2, 0).0[..8], [1, 0, 0, 0, 2, 0, 0, 0], "it is listed");
    assert_eq!(identify(&mut admin, 0, 2).1, inaccessible);
    assert_eq!(identify(&mut admin, 3, 2).0[4..20], [2; 16], "its UUID is known");
    assert_eq!((read(&mut io, 2).1, write(&mut io, 2, 1)), (inaccessible, inaccessible));

    machine.target.add_export(&other(2, ram(64))).expect("its device is there now");
    assert_eq!((reported(&mut admin), reported(&mut admin)), (ACCESS, NAMESPACES));
    assert_eq!(look(&mut admin), (vec![2], vec![(1, 1), (2, 1)]));
    assert_eq!((write(&mut io, 2, 0x22), read(&mut io, 2)), (0, (vec![0x22; BLOCK], 0)));
}

/// Unflushed writes may be lost with the device: the queue is closed, and the host reads the namespace again.
#[test]
fn a_namespace_whose_device_goes_stays_and_gets_another() {
    let machine = Machine::start();
    machine.target.add_export(&other(2, ram(64))).expect("a second namespace");
    let (mut admin, mut io) = controller(&machine);
    assert_eq!(look(&mut admin).1, [(1, 1), (2, 1)]);
    assert_eq!((write(&mut io, 1, 0x11), write(&mut io, 2, 0x22)), (0, 0));
    for number in [2, 2, 9] {
        machine.target.detach_device(SUBSYSTEM, number);
    }
    assert!(machine.target.offers(SUBSYSTEM, 2));
    assert_eq!(reported(&mut admin), ACCESS);
    assert_eq!(look(&mut admin), (vec![], vec![(1, 1), (2, 3)]), "it is listed as before");
    assert_eq!(read(&mut io, 2).1, code(Status::INACCESSIBLE));
    assert_eq!(read(&mut io, 1), (vec![0x11; BLOCK], 0), "the other is served on");

    machine.target.add_export(&other(2, ram(64))).expect("its device is there again");
    assert!(io.pdu().is_none(), "nothing is said over it to another device");
    let (mut admin, mut io) = machine.controller();
    assert_eq!(look(&mut admin).1, [(1, 1), (2, 1)]);
    assert_eq!(read(&mut io, 2), (vec![0; BLOCK], 0));
}

/// An array that was stopped cleanly and is started again larger has every acknowledged write: hosts stay connected,
/// are notified of the new size, and use the additional blocks.
#[test]
fn a_namespace_grows_while_hosts_are_connected() {
    let machine = Machine::start();
    let small = RamDevice::new(64, BlockSize::B4096);
    machine.target.add_export(&other(2, Some(Arc::new(small.clone())))).expect("sound");
    let (mut admin, mut io) = controller(&machine);
    assert_eq!(write(&mut io, 2, 0x22), 0);
    let asked = admin.send(0x0c, Sgl::Transport { length: 0 }, &[], &[]);
    let leaving = machine.target.detach_device(SUBSYSTEM, 2);
    assert!(leaving.is_over(Duration::from_secs(60)), "nothing is in flight");
    let (_, result, _) = admin.finish();
    assert_eq!((result, asked), (ACCESS.0, asked), "it was told at once");
    assert_eq!(read(&mut io, 2).1, code(Status::INACCESSIBLE), "it waits");
    machine.target.keep_instance(SUBSYSTEM, 2);

    let large = RamDevice::new(128, BlockSize::B4096);
    let mut held = vec![0; 64 * BLOCK];
    small.read_at(0, &mut held).expect("inside");
    large.write_at(0, &held).expect("inside");
    machine.target.add_export(&other(2, Some(Arc::new(large)))).expect("it is back");
    assert_eq!(reported(&mut admin), NAMESPACES, "how it is reached was told and not read yet");
    assert_eq!(look(&mut admin), (vec![2], vec![(1, 1), (2, 1)]));
    assert_eq!(identify(&mut admin, 0, 2).0[..8], 128_u64.to_le_bytes(), "its new size");
    assert_eq!(read(&mut io, 2), (vec![0x22; BLOCK], 0), "over the same queue");
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    io.send(1, sgl, &[(1, 2), (10, 127)], &[0x77; BLOCK]);
    assert_eq!(io.finish().2, 0, "its last block");
    let length = BLOCK as u32;
    io.send(2, Sgl::Transport { length }, &[(1, 2), (10, 127)], &[]);
    let (data, _, status) = io.finish();
    assert_eq!((data, status), (vec![0x77; BLOCK], 0));

    // The mark applies to one device: the next one is a new instance, unless `keep_instance` is called again.
    drop(machine.target.detach_device(SUBSYSTEM, 2));
    assert_eq!(read(&mut io, 2).1, code(Status::INACCESSIBLE));
    machine.target.add_export(&other(2, ram(128))).expect("its device is there again");
    assert!(io.pdu().is_none(), "nothing is said over it to another device");
}

/// A device that is smaller or has another block size is a new instance, even after `keep_instance`: a host that
/// continued would access the wrong blocks, and would zero or deallocate those.
#[test]
fn a_device_that_is_smaller_or_has_other_blocks_is_another() {
    let devices = [(63, BlockSize::B4096, false), (512, BlockSize::B512, false)];
    for (blocks, size, stays) in devices.into_iter().chain([(64, BlockSize::B4096, true)]) {
        let machine = Machine::start();
        machine.target.add_export(&other(2, ram(64))).expect("a second namespace");
        let (_admin, mut io) = machine.controller();
        assert_eq!(write(&mut io, 2, 0x22), 0);
        let leaving = machine.target.detach_device(SUBSYSTEM, 2);
        assert!(leaving.is_over(Duration::from_secs(60)), "nothing is in flight");
        machine.target.keep_instance(SUBSYSTEM, 2);
        let next: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(blocks, size));
        machine.target.add_export(&other(2, Some(next))).expect("its device is there again");
        if stays {
            assert_eq!(read(&mut io, 2).1, 0, "over the same queue");
        } else {
            assert!(io.pdu().is_none(), "nothing is said over it to {blocks} blocks of {size:?}");
        }
    }
}

/// The ID of a namespace that was removed during a write is used for another device: the write must not reach that
/// device.
#[test]
fn a_write_to_a_namespace_that_has_gone_reaches_no_other() {
    let machine = Machine::start();
    machine.target.add_export(&other(2, ram(64))).expect("a second namespace");
    let (_first, mut io) = machine.controller();
    let length = 4 * BLOCK as u32;
    let cid = io.send(1, Sgl::Transport { length }, &[(1, 2), (12, 3)], &[]);
    let asked = io.pdu().expect("the connection stays");
    let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
    machine.target.remove_export(SUBSYSTEM, 2, Removal::Force).expect("it goes");
    let fresh: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(64, BlockSize::B4096));
    machine.target.add_export(&other(2, Some(fresh))).expect("the number is free");
    // The queue may already be closed.
    let _ = io.stream.write_all(&common::h2c(cid, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert!(io.pdu().is_none(), "the queue ends");
    let (_admin, mut io) = machine.controller();
    assert_eq!(read(&mut io, 2), (vec![0; BLOCK], 0));
}

#[test]
fn namespaces_that_would_clash_are_refused() {
    let machine = Machine::start();
    let refused = |export: Export| {
        machine.target.add_export(&export).map_err(|error| error.kind).expect_err("it is refused")
    };
    assert_eq!(refused(other(1, ram(64))), ExportErrorKind::Duplicate, "another under one number");
    assert_eq!(refused(Export { uuid: [7; 16], ..other(2, ram(64)) }), ExportErrorKind::Duplicate);
    assert_eq!(refused(other(0, ram(64))), ExportErrorKind::BadExport);
    assert_eq!(refused(other(33, ram(64))), ExportErrorKind::BadExport);
    let hosts = vec!["nqn.2014-08.org.nvmexpress:uuid:another".to_owned()];
    assert_eq!(refused(Export { hosts, ..other(2, ram(64)) }), ExportErrorKind::BadExport);
    let unknown = machine.target.remove_export(SUBSYSTEM, 2, Removal::Force);
    assert_eq!(unknown.map_err(|e| e.kind), Err(ExportErrorKind::Unknown));
}
