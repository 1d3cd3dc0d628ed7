//! Inputs that broke other targets, by their known names. Each completes or is rejected, and the next command on the
//! connection, or the next connection, is served.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM};
use common::{capsule, connect_data, export, h2c, u32_of, until};
use std::sync::{Arc, Mutex};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::limits::{QUEUES_MAX, REGISTRANTS_MAX, REGISTRANTS_PER_NAME_MAX};
use strake_export_nvmet::{Export, Ledger, Registrant, Removal, Reservations, nqn};
use strake_nvme_tcp::digest;
use strake_nvme_tcp::pdu::{Digests, IcReq, Use};
use strake_nvme_wire::Sgl;
use strake_units::BlockSize;

/// Sends an attack on an admin queue, then checks that the controller works.
fn check_admin(attack: impl FnOnce(&mut Host)) {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    attack(&mut admin);
    admin.send(0x06, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    let (page, _, status) = admin.finish();
    assert_eq!((page.len(), status), (4096, 0));
    assert_eq!(io.read(0, 1), (vec![0; BLOCK], 0));
}

/// A Connect command with any size and names.
fn connect(host: &mut Host, queue: u16, controller: u16, size: u32, names: [&[u8]; 2]) -> u16 {
    let mut data = vec![0; 1024];
    data[..16].fill(1);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + names[0].len()].copy_from_slice(names[0]);
    data[512..512 + names[1].len()].copy_from_slice(names[1]);
    let words = [(1, 1), (10, u32::from(queue) << 16), (11, size)];
    host.send(0x7f, Sgl::InCapsule { offset: 0, length: 1024 }, &words, &data);
    host.finish().2
}

const NAMES: [&[u8]; 2] = [SUBSYSTEM.as_bytes(), HOST.as_bytes()];

/// CVE-2023-6121: names that fill their fields without a terminator.
#[test]
fn cve_2023_6121_names_without_an_end() {
    let machine = Machine::start();
    let long = [b"nqn.".to_vec(), vec![b'a'; 252]].concat();
    for names in [[&long[..], NAMES[1]], [NAMES[0], &long], [&long, &long], [NAMES[0], &[]]] {
        assert_eq!(connect(&mut Host::asked(&machine), 0, 0xffff, 31, names), 0x182);
    }
    assert_eq!(connect(&mut Host::asked(&machine), 0, 0xffff, 31, NAMES), 0);
}

/// CVE-2026-64534: a data digest mismatch for a command that was rejected before.
#[test]
fn cve_2026_64534_a_wrong_digest_behind_a_refused_command() {
    let machine = Machine::start();
    let (_admin, id) = {
        let mut admin = Host::asked(&machine);
        let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
        admin.enable();
        (admin, id)
    };
    let mut io = machine.dial();
    let digests = Digests { header: Use::Off, data: Use::On };
    io.put(&IcReq { alignment: 0, digests, r2ts_max: 0 }.bytes());
    assert_eq!(io.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    let send = |io: &mut Host, opcode, words: &[(usize, u32)], data: &[u8], damage| {
        let length = data.len() as u32;
        let mut bytes = capsule(opcode, 7, Sgl::InCapsule { offset: 0, length }, words, data);
        bytes[1] = 2;
        let total = bytes.len() as u32 + 4;
        bytes[4..8].copy_from_slice(&total.to_le_bytes());
        let mut end = digest::of(data);
        end[0] ^= damage;
        io.put(&[bytes, end.to_vec()].concat());
        io.finish().2
    };
    let mut data = vec![0; 1024];
    data[..16].fill(1);
    data[16..18].copy_from_slice(&id.to_le_bytes());
    data[256..256 + SUBSYSTEM.len()].copy_from_slice(SUBSYSTEM.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let words = [(1, 1), (10, 1 << 16), (11, 127)];
    assert_eq!(send(&mut io, 0x7f, &words, &data, 0), 0, "Connect");
    let beyond = [(1, 1), (10, BLOCKS as u32), (12, 0)];
    for damage in [1, 0, 0xff] {
        assert_eq!(send(&mut io, 1, &beyond, &[9; BLOCK], damage), 0x80, "behind the end");
        assert_eq!(send(&mut io, 0x0a, &beyond, &[9; BLOCK], damage), 0x01, "no such command");
    }
    let first = [(1, 1), (10, 0), (12, 0)];
    assert_eq!(send(&mut io, 1, &first, &[9; BLOCK], 1), 0x22, "damaged data is not written");
    assert_eq!(send(&mut io, 1, &first, &[8; BLOCK], 0), 0);
    assert_eq!(machine.queue(2, id).read(0, 1), (vec![8; BLOCK], 0));
}

/// SPDK `f513182217`: Identify with a buffer larger than a page, and with a smaller one.
#[test]
fn spdk_f513182217_identify_into_other_room() {
    check_admin(|admin| {
        for (cns, room, bytes, status) in
            [(5, 0x2000, 0, 2), (1, 0x2000, 4096, 0), (0, 4092, 0, 0x0f), (3, 0, 0, 0x0f)]
        {
            admin.send(0x06, Sgl::Transport { length: room }, &[(1, 1), (10, cns)], &[]);
            let (page, _, ended) = admin.finish();
            assert_eq!((page.len(), ended), (bytes, status), "CNS {cns}, {room} bytes");
        }
    });
}

/// SPDK `7a2a588c62`, `4201dfaff3`: reads of log pages behind their ends.
#[test]
fn spdk_7a2a588c62_log_pages_from_behind_their_ends() {
    let read = |host: &mut Host, page: u32, offset: u64, length: u32| {
        let numd = length / 4 - 1;
        let words = [
            (10, page | numd << 16),
            (11, numd >> 16),
            (12, offset as u32),
            (13, (offset >> 32) as u32),
        ];
        host.send(0x02, Sgl::Transport { length }, &words, &[]);
        let (bytes, _, status) = host.finish();
        (bytes, status)
    };
    check_admin(|admin| {
        for (page, size) in [(1, 64 * 64_u64), (2, 512), (3, 512), (4, 4096)] {
            assert_eq!(read(admin, page, size, 64), (vec![0; 64], 0), "page {page} at its end");
            for offset in [size + 4, 2, u64::MAX, u64::MAX - 3, 1 << 63] {
                assert_eq!(read(admin, page, offset, 64).1, 2, "page {page} from byte {offset}");
            }
        }
        assert_eq!(read(admin, 0xc0, 0, 64).1, 0x109, "no such page");
    });
    let machine = Machine::start();
    let mut discovery = Host::asked(&machine);
    discovery.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).expect("discovery");
    discovery.enable();
    for offset in [4096, u64::MAX - 3, 1 << 63] {
        assert_eq!(read(&mut discovery, 0x70, offset, 1024), (vec![0; 1024], 0), "from {offset}");
    }
}

/// SPDK `acc4d1766c`, `e749fa9c27`: responses that need several buffers.
#[test]
fn spdk_acc4d1766c_an_answer_in_several_buffers() {
    let machine = Machine::start();
    let mut discovery = Host::asked(&machine);
    discovery.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).expect("discovery");
    discovery.enable();
    let length = 700 << 10;
    let numd = length / 4 - 1;
    let words = [(10, 0x70 | numd << 16), (11, numd >> 16)];
    discovery.send(0x02, Sgl::Transport { length }, &words, &[]);
    let (page, _, status) = discovery.finish();
    assert_eq!((page.len(), status, u32_of(&page[8..])), (length as usize, 0, 1));
    assert!(page[2048..].iter().all(|byte| *byte == 0));
    let words = [(10, 0x70 | 0xffff << 16), (11, 0xffff)];
    discovery.send(0x02, Sgl::Transport { length: u32::MAX }, &words, &[]);
    assert_eq!(discovery.finish().2, 2, "more than a transfer");
}

/// SPDK `9e3d841d3e`, `30ee7c04c6`, `a1b2c9d635`: a queue ID in use, invalid queue sizes, Disconnect.
#[test]
fn spdk_9e3d841d3e_queues_twice_and_of_no_size() {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    let id = 1;
    assert_eq!(connect(&mut Host::asked(&machine), 1, id, 127, NAMES), 0x0c, "connected already");
    for (queue, controller, size) in [(0, 0xffff, 0), (0, 0xffff, 32), (0, 0xffff, 0xffff)] {
        let refused = connect(&mut Host::asked(&machine), queue, controller, size, NAMES);
        assert_eq!(refused, 0x182, "{size} entries of an admin queue");
    }
    for size in [0, 128, 0xffff] {
        let refused = connect(&mut Host::asked(&machine), 2, id, size, NAMES);
        assert_eq!(refused, 0x182, "{size} entries of an I/O queue");
    }
    for queue in [QUEUES_MAX + 1, 0xffff] {
        let refused = connect(&mut Host::asked(&machine), queue, id, 127, NAMES);
        assert_eq!(refused, 0x182, "queue {queue}");
    }
    for reason in [6, 0, 0x77, 0xffff_u16] {
        let mut host = machine.queue(2, id);
        let [low, high] = reason.to_le_bytes();
        let mut ended = vec![2, 0, 24, 0, 24, 0, 0, 0, low, high];
        ended.resize(24, 0);
        host.put(&ended);
        assert!(host.pdu().is_none(), "the connection is closed");
        // The queue ID is free after the target has closed the connection, which the host may see a moment earlier.
        while connect(&mut Host::asked(&machine), 2, id, 127, NAMES) == 0x0c {
            std::thread::yield_now();
        }
        while machine.target.exports()[0].connections != 2 {
            std::thread::yield_now();
        }
    }
    assert_eq!(io.read(0, 1), (vec![0; BLOCK], 0));
    admin.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(admin.finish().2, 0, "Keep Alive");
}

/// A reservation record that survives a target.
#[derive(Default)]
struct Page(Mutex<Option<Reservations>>);

impl Ledger for Page {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String> {
        *self.0.lock().expect("no panic") = reservations.cloned();
        Ok(())
    }
}

/// A machine with a second namespace, whose reservations are recorded on this page, for all hosts of [`name_of`].
fn kept_on(page: &Arc<Page>) -> Machine {
    let machine = Machine::start();
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let ids = (0..=REGISTRANTS_MAX as u16).step_by(REGISTRANTS_PER_NAME_MAX);
    let hosts: Vec<_> = ids.map(name_of).collect();
    let ram = || Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let first = Export { hosts: hosts.clone(), ..export(ram()) };
    let ledger: Option<Arc<dyn Ledger>> = Some(Arc::clone(page) as _);
    let second = Export { ledger, namespace: 2, uuid: [2; 16], hosts, ..export(ram()) };
    for one in [first, second] {
        machine.target.add_export(&one).expect("a namespace");
    }
    machine
}

/// The NQN of a host; the registrants of one NQN stay within the limit.
fn name_of(id: u16) -> String {
    format!("{HOST}-{}", usize::from(id) / REGISTRANTS_PER_NAME_MAX)
}

fn identifier(id: u16) -> [u8; 16] {
    let mut host = [1; 16];
    host[..2].copy_from_slice(&id.to_le_bytes());
    host
}

/// The queues of a host with a unique identifier.
fn controller_of(machine: &Machine, id: u16) -> (Host, Host) {
    let mut data = connect_data((&name_of(id), SUBSYSTEM), 0xffff);
    data[..16].copy_from_slice(&identifier(id));
    let mut connect = |queue: u32| {
        let mut host = Host::asked(machine);
        let words = [(1, 1), (10, queue << 16), (11, 31)];
        host.send(0x7f, Sgl::InCapsule { offset: 0, length: 1024 }, &words, &data);
        let (_, number, status) = host.finish();
        assert_eq!(status, 0, "queue {queue} of host {id}");
        data[16..18].copy_from_slice(&(number as u16).to_le_bytes());
        host
    };
    let mut admin = connect(0);
    admin.enable();
    let io = connect(1);
    (admin, io)
}

/// Reservation Report of the second namespace in its extended form, with a buffer of this size.
fn report(io: &mut Host, length: u32) -> Vec<u8> {
    let words = [(1, 2), (10, length / 4 - 1), (11, 1)];
    io.send(0x0e, Sgl::Transport { length }, &words, &[]);
    let (report, _, status) = io.finish();
    assert_eq!((report.len(), status), (length as usize, 0), "{length} bytes");
    report
}

const WHOLE_REPORT: u32 = 64 * (REGISTRANTS_MAX as u32 + 1);

/// CVE-2025-57275: more registrants than the limit, recorded so that they survive a restart.
#[test]
fn cve_2025_57275_more_registrants_than_there_is_room_for() {
    let page = Arc::new(Page::default());
    let machine = kept_on(&page);
    let register = |id: u16| {
        let (admin, mut io) = controller_of(&machine, id);
        let sgl = Sgl::InCapsule { offset: 0, length: 16 };
        // The registrations persist through a power loss (CPTPL of 3).
        io.send(0x0d, sgl, &[(1, 2), (10, 3 << 30)], &[[0; 8], [1; 8]].concat());
        let status = io.finish().2;
        let seen = report(&mut io, 64);
        drop((admin, io));
        until("places are free", || machine.target.exports()[0].connections < 8);
        (status, u16::from_le_bytes([seen[5], seen[6]]), seen[9])
    };
    let most = u16::try_from(REGISTRANTS_MAX).expect("it is small");
    for id in 1..=most {
        assert_eq!(register(id), (0, id, 1), "host {id}");
    }
    assert_eq!(register(most + 1), (0x06, most, 1), "there is no room, and nothing breaks");
    let before = report(&mut controller_of(&machine, 1).1, WHOLE_REPORT);
    drop(machine);
    let again = kept_on(&page);
    let (_admin, mut io) = controller_of(&again, most + 1);
    assert!(report(&mut io, WHOLE_REPORT) == before, "what a restart left is what was there");
}

/// SPDK `6b372f419d`: a report of more registrants than there are hosts, with a buffer that is too small, and with a
/// larger one.
#[test]
fn spdk_6b372f419d_a_report_of_more_registrants_than_hosts() {
    let registrant = |number: usize| Registrant {
        host: identifier(number as u16),
        name: name_of(number as u16),
        key: number as u64 + 1,
    };
    let registrants = (0..REGISTRANTS_MAX).map(registrant).collect();
    let kept = Reservations { persists: true, registrants, ..Reservations::default() };
    let machine = kept_on(&Arc::new(Page(Mutex::new(Some(kept)))));
    let (_admin, mut io) = controller_of(&machine, 3);
    let whole = report(&mut io, WHOLE_REPORT);
    assert_eq!(whole[5..7], (REGISTRANTS_MAX as u16).to_le_bytes());
    for (number, one) in whole[64..].chunks(64).enumerate() {
        assert_eq!(one[8..16], (number as u64 + 1).to_le_bytes(), "key {number}");
        assert_eq!(one[16..32], identifier(number as u16), "host {number}");
    }
    for length in [4, 8, 64, 100, 4096, WHOLE_REPORT - 4] {
        assert!(report(&mut io, length) == whole[..length as usize], "{length} bytes");
    }
    let longer = report(&mut io, WHOLE_REPORT + 4096);
    assert!(longer[..whole.len()] == whole && longer[whole.len()..].iter().all(|byte| *byte == 0));
}

/// nvmet `cb8563f5`: the data of one command in several PDUs with unaligned offsets.
#[test]
fn nvmet_cb8563f5_data_in_pieces_of_odd_sizes() {
    let machine = Machine::start();
    let (_admin, mut io) = machine.controller();
    let data: Vec<u8> = (0..4 * BLOCK as u32).map(|at| (at / 4 + at) as u8).collect();
    for sizes in [&[4, 508, 3584][..], &[4092, 8, 4092], &[511, 2, 1], &[16383]] {
        assert_eq!(io.write(0, &[0; BLOCK]), 0);
        let (cid, tag) = io.announce(0, 4);
        let rest = data.len() - sizes.iter().sum::<usize>();
        let mut at = 0;
        for size in sizes.iter().copied().chain([rest]) {
            let last = if at + size == data.len() { 4 } else { 0 };
            let piece = &data[at..at + size];
            io.put(&h2c(cid, tag, at as u32, size as u32, last, piece));
            at += size;
        }
        assert_eq!(io.finish().2, 0, "{sizes:?} and the rest");
        assert!(io.read(0, 4) == (data.clone(), 0), "{sizes:?} and the rest");
    }
}
