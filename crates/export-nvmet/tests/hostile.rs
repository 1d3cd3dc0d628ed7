//! Malicious hosts, and hosts that disconnect. None affects the target: another host is served before and after.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, capsule, h2c, until};
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use strake_block::buf::SEGMENTS_MAX;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::limits::{CANDIDATES_PER_ADDRESS_MAX, LARGE_BUFFERS, STOCK};
use strake_export_nvmet::{Removal, TargetConfig, nqn};
use strake_nvme_tcp::pdu::{Digests, IC_BYTES, IcReq};
use strake_nvme_wire::Sgl;
use strake_units::{BlockSize, Nanos};

/// A correct host.
struct Bystander {
    _admin: Host,
    io: Host,
}

impl Bystander {
    fn of(machine: &Machine) -> Self {
        let (admin, io) = machine.controller();
        Self { _admin: admin, io }
    }

    fn is_served(&mut self) {
        let data = vec![0x5a; 2 * BLOCK];
        assert_eq!(self.io.write(BLOCKS as u32 - 2, &data), 0);
        assert_eq!(self.io.read(BLOCKS as u32 - 2, 2), (data, 0));
    }
}

/// Runs `attack` on a separate I/O queue beside a correct host, and checks that all its resources are released.
fn check(attack: impl FnOnce(&mut Host)) {
    let machine = Machine::start();
    let mut bystander = Bystander::of(&machine);
    bystander.is_served();
    let (admin, mut io) = machine.controller();
    attack(&mut io);
    bystander.is_served();
    drop((admin, io));
    let left = || machine.target.exports()[0].connections;
    until("the queues of the host that went are gone", || left() == 2);
    bystander.is_served();
}

const LAST: u8 = 4;

/// CVE-2022-50717: a tag beyond the queue, and an unused tag.
#[test]
fn cve_2022_50717_data_with_a_tag_that_was_not_given_out() {
    check(|io| {
        io.put(&h2c(1, 0xffff, 0, 4096, LAST, &[0; 4096]));
        io.is_ended_because(1, 10);
    });
    check(|io| {
        io.put(&h2c(1, 3, 0, 4096, LAST, &[0; 4096]));
        io.is_ended_because(1, 10);
    });
}

/// CVE-2023-6356, CVE-2023-52454, CVE-2026-23112: data that does not match the R2T.
#[test]
fn cve_2023_6356_data_outside_what_was_asked_for() {
    let pieces: [(u32, u32, u8, u16, u32); 6] = [
        (4, 4096, 0, 4, 12),            // at an unaligned offset
        (16384, 4096, 0, 4, 12),        // behind the end
        (0, 32768, LAST, 4, 12),        // more than the R2T
        (u32::MAX - 1, 4096, 0, 4, 12), // around the end
        (0, 4096, LAST, 1, 1),          // with the LAST flag
        (0, 16384, 0, 1, 1),            // without the LAST flag
    ];
    for (offset, length, flags, status, field) in pieces {
        check(|io| {
            let (cid, tag) = io.announce(0, 4);
            io.put(&h2c(cid, tag, offset, length, flags, &vec![0; length as usize]));
            io.is_ended_because(status, field);
        });
    }
    check(|io| {
        let (cid, tag) = io.announce(0, 4);
        io.put(&h2c(cid, tag, 0, 512, 0, &[0; 4096]));
        io.is_ended_because(1, 16);
    });
    check(|io| {
        let (cid, tag) = io.announce(0, 4);
        io.put(&h2c(cid + 1, tag, 0, 16384, LAST, &[0; 16384]));
        io.is_ended_because(1, 8);
    });
}

/// CVE-2023-6535, CVE-2023-6536: data for a completed command.
#[test]
fn cve_2023_6535_data_for_a_command_that_is_over() {
    check(|io| {
        let (cid, tag) = io.announce(0, 4);
        io.put(&h2c(cid, tag, 0, 16384, LAST, &[7; 16384]));
        assert_eq!(io.finish().2, 0);
        assert_eq!(io.read(0, 4), (vec![7; 16384], 0));
        io.put(&h2c(cid, tag, 0, 16384, LAST, &[8; 16384]));
        io.is_ended_because(1, 10);
    });
}

/// CVE-2026-22998: data before its command has buffers, which are there after the R2T.
#[test]
fn cve_2026_22998_data_before_it_was_asked_for() {
    check(|io| {
        // The tag can be guessed; a host that guesses it gets the same result as a waiting host.
        let sgl = Sgl::Transport { length: 16384 };
        let mut burst = capsule(1, 0x77, sgl, &[(1, 1), (10, 0), (12, 3)], &[]);
        let (cid, tag) = io.announce(8, 4);
        io.put(&h2c(cid, tag, 0, 16384, LAST, &[1; 16384]));
        assert_eq!(io.finish().2, 0);
        burst.extend(h2c(0x77, tag, 0, 16384, LAST, &[9; 16384]));
        io.put(&burst);
        assert_eq!(io.pdu().map(|pdu| pdu.kind), Some(9));
        assert_eq!(io.finish().2, 0);
        assert_eq!(io.read(0, 4), (vec![9; 16384], 0));
    });
}

/// SPDK `8d1c4f74d4`: the length of the capsule differs from the length in the descriptor.
#[test]
fn spdk_8d1c4f74d4_a_capsule_that_contradicts_its_descriptor() {
    check(|io| {
        let before = io.read(0, 2);
        for (said, carried) in [(8192, 4096), (4096, 8192), (0, 4096), (u32::MAX, 4096)] {
            let words = [(1, 1), (10, 0), (12, 0)];
            let sgl = Sgl::InCapsule { offset: 0, length: said };
            io.send(1, sgl, &words, &vec![0xee; carried]);
            assert_eq!(io.finish().2, 0x0f, "{said} bytes said, {carried} sent");
        }
        let sgl = Sgl::InCapsule { offset: 4096, length: 4096 };
        io.send(1, sgl, &[(1, 1), (10, 0), (12, 0)], &[0xee; 4096]);
        assert_eq!(io.finish().2, 0x16, "an offset into the capsule");
        assert_eq!(io.read(0, 2), before);
    });
}

/// SPDK `414f91a0c7` and related bugs: fused commands, unknown opcodes, reserved descriptors.
#[test]
fn spdk_414f91a0c7_commands_that_are_not_possible() {
    check(|io| {
        let all = Sgl::Transport { length: 4096 };
        let words = [(1, 1), (10, 0), (12, 0)];
        for (fill, status) in [(0x41, 2), (0x42, 9), (0x43, 2), (0x00, 2), (0xc0, 2)] {
            let mut bytes = capsule(2, 9, all, &words, &[]);
            bytes[9] = fill;
            io.put(&bytes);
            assert_eq!(io.finish().2, status, "flags {fill:#x}");
        }
        for opcode in [0x04, 0x0a, 0x18, 0x80, 0xff] {
            io.send(opcode, all, &words, &[]);
            assert_eq!(io.finish().2, 0x01, "opcode {opcode:#x}");
        }
        let mut bytes = capsule(2, 9, all, &words, &[]);
        bytes[8 + 39] = 0x33;
        io.put(&bytes);
        assert_eq!(io.finish().2, 0x11, "a descriptor of another kind");
        io.send(2, Sgl::Transport { length: 0x10_1000 }, &[(1, 1), (10, 0), (12, 256)], &[]);
        assert_eq!(io.finish().2, 0x02, "more than MDTS");
    });
}

#[test]
fn a_write_whose_data_never_arrives_changes_nothing() {
    check(|io| {
        assert_eq!(io.write(0, &[3; 2 * BLOCK]), 0);
        let (cid, tag) = io.announce(0, 2);
        io.put(&h2c(cid, tag, 0, 8192, LAST, &[4; 8192])[..4000]);
        io.stream.shutdown(std::net::Shutdown::Write).expect("it can be shut");
        assert!(io.pdu().is_none(), "nothing is answered");
    });
}

/// More commands than the queue has entries: this violates the protocol, and affects only this host.
#[test]
fn a_flood_of_announcements_ends_the_connection() {
    check(|io| {
        let sgl = Sgl::Transport { length: 1 << 20 };
        let flood: Vec<u8> =
            (0..400).flat_map(|n| capsule(1, n, sgl, &[(1, 1), (10, 0), (12, 255)], &[])).collect();
        // The target may close during the write.
        let _ = io.stream.write_all(&flood);
        let mut asked = 0;
        while let Some(pdu) = io.pdu() {
            match pdu.kind {
                9 => asked += 1,
                3 => break,
                other => panic!("PDU {other} is not expected"),
            }
        }
        // Commands that fit the memory of the queue and half of the pool of its core.
        let most = (LARGE_BUFFERS + STOCK.large_buffers / 2) / SEGMENTS_MAX;
        assert!(asked <= most, "memory for {most} of them is there, {asked} were asked for");
    });
}

/// CVE-2016-5403 and similar bugs: a host that sends commands and never reads delays only itself.
#[test]
fn a_host_that_never_reads_holds_up_only_itself() {
    let machine = Machine::start();
    let mut bystander = Bystander::of(&machine);
    let (_admin, mut io) = machine.controller();
    let sgl = Sgl::Transport { length: 1 << 20 };
    for cid in 0..100 {
        io.put(&capsule(2, cid, sgl, &[(1, 1), (10, 0), (12, 255)], &[]));
    }
    for _ in 0..50 {
        bystander.is_served();
    }
    let target = &machine.target;
    assert!(target.remove_export(SUBSYSTEM, 1, Removal::IfUnused).is_err());
    target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it goes all the same");
    assert!(target.exports().is_empty());
}

/// CVE-2023-5178 and other bugs of the handshake: wrong PDUs, wrong orders, partial PDUs.
#[test]
fn cve_2023_5178_a_connection_that_begins_wrongly() {
    let machine = Machine::start();
    let mut bystander = Bystander::of(&machine);
    let capsule_first = capsule(6, 1, Sgl::Transport { length: 4096 }, &[], &[]);
    for (what, bytes, status, field) in [
        ("a capsule before anything was agreed on", capsule_first.clone(), 2, 0),
        ("noise", vec![0xa5; 64], 1, 0),
        ("another format", vec![0, 0, 128, 0, 128, 0, 0, 0, 9, 9], 6, 8),
    ] {
        let mut host = machine.dial();
        let padded = [bytes, vec![0; 128]].concat();
        host.put(&padded);
        let pdu = host.pdu().unwrap_or_else(|| panic!("{what}: no reason is given"));
        assert_eq!((pdu.kind, pdu.header[0], pdu.header[2]), (3, status, field), "{what}");
    }
    let mut twice = Host::asked(&machine);
    let asked = [&[0, 0, 128, 0, 128, 0, 0, 0][..], &[0; 120]].concat();
    twice.put(&asked);
    twice.is_ended_because(2, 0);
    let mut early = Host::asked(&machine);
    early.put(&capsule_first);
    assert_eq!(early.finish().2, 0x01, "Identify before Connect");
    // An incomplete capsule: the connection is closed at the time limit of the handshake, or with the target.
    let mut half = Host::asked(&machine);
    half.put(&capsule_first[..40]);
    bystander.is_served();
}

/// An address whose connections never continue excludes no other address.
#[test]
fn an_address_that_only_begins_keeps_no_other_out() {
    let machine = Machine::start();
    let (near, far) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let mut silent: Vec<Host> =
        (0..CANDIDATES_PER_ADDRESS_MAX).map(|_| Host::dial_from(&machine, far)).collect();
    let mut late = Host::dial_from(&machine, far);
    assert!(late.pdu().is_none(), "one too many is closed");
    // The close is not caused by the time limit: earlier connections are still open.
    silent[0].put(&IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 }.bytes());
    assert_eq!(silent[0].pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    let mut other = Host::dial_from(&machine, near);
    let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 };
    other.put(&asked.bytes());
    assert_eq!(other.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    assert!(other.connect(0, 0xffff, 0).is_ok());
    // Closed connections make room.
    drop(silent);
    until("there is room again", || {
        let mut again = Host::dial_from(&machine, far);
        again.stream.write_all(&asked.bytes()).is_ok() && again.pdu().is_some()
    });
}

/// Connections of an address that repeatedly violates the protocol are closed for a while; other addresses are served.
#[test]
fn an_address_that_breaks_the_protocol_again_and_again_gets_no_further() {
    let failed_handshake_time = Nanos(3600 * Nanos::SECOND.0);
    let ram = Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let machine =
        Machine::set_up(ram, TargetConfig { failed_handshake_time, ..TargetConfig::default() });
    let (_admin, mut io) = machine.controller();
    let far = Ipv4Addr::new(127, 0, 0, 2);
    for _ in 0..CANDIDATES_PER_ADDRESS_MAX {
        let mut host = Host::dial_from(&machine, far);
        host.put(&[0xa5; IC_BYTES]);
        assert_eq!(host.pdu().map(|pdu| pdu.kind), Some(3), "it is told what was wrong");
        assert!(host.pdu().is_none(), "and closed");
    }
    let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 }.bytes();
    let mut again = Host::dial_from(&machine, far);
    // The connection may already be closed.
    let _ = again.stream.write_all(&asked);
    assert!(again.pdu().is_none(), "what it says is not looked at");
    let mut other = Host::dial_from(&machine, Ipv4Addr::LOCALHOST);
    other.put(&asked);
    assert_eq!(other.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    assert_eq!(io.read(0, 1).1, 0, "and whoever was there before is served on");
}

/// Deny by default: only listed hosts connect, to the subsystem and to discovery.
#[test]
fn a_host_that_was_not_named_is_refused() {
    let machine = Machine::start();
    let stranger = "nqn.2014-08.org.nvmexpress:uuid:stranger";
    let (longer, louder) = (format!("{HOST}1"), HOST.replace("uuid:host", "uuid:Host"));
    for (names, wanted) in [
        ((HOST, SUBSYSTEM), None),
        ((HOST, nqn::DISCOVERY), None),
        ((stranger, SUBSYSTEM), Some(0x184)),
        ((stranger, nqn::DISCOVERY), Some(0x184)),
        ((HOST, "nqn.2014-08.org.nvmexpress:uuid:other"), Some(0x182)),
        (("", SUBSYSTEM), Some(0x182)),
        // Names are compared exactly: a prefix, an extension and another case do not match.
        ((&HOST[..HOST.len() - 1], SUBSYSTEM), Some(0x184)),
        ((&longer, SUBSYSTEM), Some(0x184)),
        ((&louder, SUBSYSTEM), Some(0x184)),
        ((&longer, nqn::DISCOVERY), Some(0x184)),
        ((HOST, &SUBSYSTEM[..SUBSYSTEM.len() - 1]), Some(0x182)),
        ((HOST, &SUBSYSTEM.replace("ram", "RAM")), Some(0x182)),
    ] {
        let mut host = Host::asked(&machine);
        let refused = host.connect_as(names, 0, 0xffff, 0).err();
        assert_eq!(refused, wanted, "{names:?}");
    }
    // An unlisted host also cannot connect to the controller of a listed host.
    let (_admin, _io) = machine.controller();
    for controller in 1..8 {
        let mut host = Host::asked(&machine);
        let refused = host.connect_as((stranger, SUBSYSTEM), 2, controller, 0).err();
        assert_eq!(refused, Some(0x182), "controller {controller}");
    }
}

/// A controller is disabled with its admin queue, and its I/O queues are closed.
#[test]
fn io_queues_leave_with_their_controller() {
    let machine = Machine::start();
    let (admin, mut io) = machine.controller();
    assert_eq!(io.write(0, &[1; BLOCK]), 0);
    drop(admin);
    assert!(io.pdu().is_none(), "the I/O queue is closed");
    let left = || machine.target.exports()[0].connections;
    until("both queues are gone", || left() == 0);
}

/// A controller without a Keep Alive within its timeout is closed (Base, section 3.9).
#[test]
fn a_host_that_is_silent_for_too_long_is_given_up() {
    let machine = Machine::start();
    let mut admin = Host::asked(&machine);
    let id = admin.connect(0, 0xffff, 50).expect("a controller") as u16;
    admin.enable();
    let mut io = machine.queue(1, id);
    assert!(admin.pdu().is_none(), "the admin queue is closed");
    assert!(io.pdu().is_none(), "the I/O queue is closed");
}

/// The target stops while hosts keep their connections open (CVE-2024-7409 is the same bug of NBD).
#[test]
fn the_target_stops_while_hosts_stay() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    let _silent = machine.dial();
    let _announced = io.announce(0, 4);
    let Machine { target, .. } = machine;
    target.stop().expect("nothing is in flight");
    assert!(io.pdu().is_none(), "the I/O queue is closed");
}
