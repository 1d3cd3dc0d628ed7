//! Inputs that broke other targets, by the names they are known under. Each is answered or refused, and the next
//! command on the connection, or the next connection, is served.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, capsule, connect_data, u32_of, until};
use strake_export_nvmet::limits::{QUEUES_MAX, REGISTRANTS_MAX};
use strake_export_nvmet::nqn;
use strake_nvme_wire::pdu::{Digests, IcReq, Use};
use strake_nvme_wire::{Sgl, digest};

/// Runs an attack on an admin queue, then sees that the controller works.
fn check_admin(attack: impl FnOnce(&mut Host)) {
    let machine = Machine::start();
    let (mut admin, mut io) = machine.controller();
    attack(&mut admin);
    admin.send(0x06, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    let (page, _, status) = admin.finish();
    assert_eq!((page.len(), status), (4096, 0));
    assert_eq!(io.read(0, 1), (vec![0; BLOCK], 0));
}

/// A Connect of a queue as it is, whatever its size and names.
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

/// CVE-2023-6121: names that fill their fields without an end.
#[test]
fn cve_2023_6121_names_without_an_end() {
    let machine = Machine::start();
    let long = [b"nqn.".to_vec(), vec![b'a'; 252]].concat();
    for names in [[&long[..], NAMES[1]], [NAMES[0], &long], [&long, &long], [NAMES[0], &[]]] {
        assert_eq!(connect(&mut Host::asked(&machine), 0, 0xffff, 31, names), 0x182);
    }
    assert_eq!(connect(&mut Host::asked(&machine), 0, 0xffff, 31, NAMES), 0);
}

/// CVE-2026-64534: a digest that is wrong, of data of a command that was refused before.
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

/// SPDK `f513182217`: Identify into more room than a page, and into less.
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

/// SPDK `7a2a588c62`, `4201dfaff3`: log pages from behind their ends.
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

/// SPDK `6b372f419d`, `acc4d1766c`, `e749fa9c27`: answers that need several buffers.
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

/// SPDK `9e3d841d3e`, `30ee7c04c6`, `a1b2c9d635`: a queue that is connected, sizes that are none, requests to end.
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
        // The place is free again once the connection is gone, which its host may learn a moment earlier.
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

/// CVE-2025-57275: more registrants than a list has room for, and reports into less room than they take.
#[test]
fn cve_2025_57275_more_registrants_than_there_is_room_for() {
    let machine = Machine::start();
    let register = |id: u16| {
        let mut data = connect_data((HOST, SUBSYSTEM), 0xffff);
        data[..2].copy_from_slice(&id.to_le_bytes());
        let sgl = |length| Sgl::InCapsule { offset: 0, length };
        let mut connect = |queue: u32| {
            let mut host = Host::asked(&machine);
            let words = [(1, 1), (10, queue << 16), (11, 31)];
            host.send(0x7f, sgl(1024), &words, &data);
            let (_, number, status) = host.finish();
            assert_eq!(status, 0, "queue {queue} of host {id}");
            data[16..18].copy_from_slice(&(number as u16).to_le_bytes());
            host
        };
        let mut admin = connect(0);
        admin.enable();
        let mut io = connect(1);
        io.send(0x0d, sgl(16), &[(1, 1), (10, 0)], &[[0; 8], [1; 8]].concat());
        let status = io.finish().2;
        for length in [4_u32, 64, 100, 4096] {
            let words = [(1, 1), (10, length / 4 - 1), (11, 1)];
            io.send(0x0e, Sgl::Transport { length }, &words, &[]);
            let (report, _, ended) = io.finish();
            assert_eq!((report.len(), ended), (length as usize, 0), "{length} bytes");
            assert!(length < 64 || report[5] >= 1, "registrants");
        }
        drop((admin, io));
        until("places are free", || machine.target.exports()[0].connections < 8);
        status
    };
    let most = u16::try_from(REGISTRANTS_MAX).expect("it is small");
    for id in 1..=most {
        assert_eq!(register(id), 0, "host {id}");
    }
    assert_eq!(register(most + 1), 0x06, "there is no room, and nothing breaks");
}
