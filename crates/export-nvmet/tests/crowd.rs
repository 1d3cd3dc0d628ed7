//! The maximum number of connections, their memory, and the resources that remain for others when hosts use all they
//! may.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, export, h2c, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::sync::Arc;
use strake_block::buf::SEGMENTS_MAX;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::limits::{
    CONNECTIONS_MAX, CONNECTIONS_OF_HOST_MAX, CONNECTIONS_PER_HOST_MAX, H2C_BYTES_MAX,
    LARGE_BUFFERS, QUEUES_MAX, STOCK, TRANSFER_BYTES_MAX,
};
use strake_export_nvmet::{Export, PoolSizes, Removal, TargetConfig};
use strake_nvme_tcp::pdu::{Digests, IcReq};
use strake_nvme_wire::{Sgl, Status};
use strake_units::{BlockSize, Nanos};

/// Both ends of every connection are in this process.
const FILES: u64 = 4 * CONNECTIONS_MAX as u64;

/// Largest memory of an idle connection, including the test's end of the connection.
const IDLE_BYTES_MAX: usize = 192 << 10;

/// Largest additional memory after a write of one block.
const WRITER_BYTES_MAX: usize = 64 << 10;

fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|now| now < FILES) {
        let raised = Rlimit { current: Some(FILES), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("the machine allows as many open files");
    }
}

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
    };
    // Reserved huge pages are counted separately.
    (kib("VmRSS:") + kib("HugetlbPages:")) << 10
}

fn host_name(number: u32) -> String {
    format!("{HOST}-{number}")
}

fn subsystem_name(number: u32) -> String {
    format!("{SUBSYSTEM}-{number}")
}

/// A machine with this number of subsystems and hosts.
fn machine(subsystems: u32, hosts: u32, config: TargetConfig) -> Machine {
    allow_files();
    let config = TargetConfig { failed_handshake_time: Nanos(0), ..config };
    let device = || Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096));
    let machine = Machine::set_up(device(), config);
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let hosts: Vec<_> = (0..hosts).map(host_name).collect();
    for number in 0..subsystems {
        let (nqn, hosts) = (subsystem_name(number), hosts.clone());
        let export = Export { nqn, hosts, uuid: [number as u8; 16], ..export(device()) };
        machine.target.add_export(&export).expect("the name is free");
    }
    machine
}

/// Connects a controller of a host with this number of I/O queues; the admin queue is the first.
fn controller(machine: &Machine, names: (&str, &str), queues: u16) -> Vec<Host> {
    let mut admin = Host::asked_by(machine, names.0);
    let id = admin.connect_as(names, 0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut all = vec![admin];
    for number in 1..=queues {
        let mut io = Host::asked_by(machine, names.0);
        io.connect_as(names, number, id, 0).unwrap_or_else(|why| panic!("{number}: {why:#x}"));
        all.push(io);
    }
    all
}

fn write_one_each(hosts: &mut [Host]) {
    let length = BLOCK as u32;
    for host in hosts.iter_mut() {
        let words = [(1, 1), (10, 0), (12, 0)];
        host.send(1, Sgl::InCapsule { offset: 0, length }, &words, &[7; BLOCK]);
    }
    for host in hosts {
        assert_eq!(host.finish().2, 0);
    }
}

/// One listener serves its maximum number of connections in little memory, a host gets no more than its share, and a
/// connection above the limit is counted.
#[test]
fn a_listener_has_a_thousand_connections() {
    const HOSTS: u32 = CONNECTIONS_MAX / CONNECTIONS_OF_HOST_MAX;
    const SUBSYSTEMS: u32 = CONNECTIONS_OF_HOST_MAX / CONNECTIONS_PER_HOST_MAX;
    let machine = machine(SUBSYSTEMS + 1, HOSTS, TargetConfig::default());
    let beyond = subsystem_name(SUBSYSTEMS);
    let (mut admins, mut ios, mut before) = (Vec::new(), Vec::new(), 0);
    for host in (0..HOSTS).map(host_name) {
        for number in 0..2 * SUBSYSTEMS {
            let mut all = controller(&machine, (&host, &subsystem_name(number / 2)), QUEUES_MAX);
            if before == 0 {
                before = resident();
                println!("{} connections: {} KiB", all.len(), before >> 10);
            }
            ios.extend(all.split_off(1));
            admins.extend(all);
        }
        println!("{} connections: {} KiB", admins.len() + ios.len(), resident() >> 10);
        if admins.len() + ios.len() < CONNECTIONS_MAX as usize {
            let mut more = Host::asked_by(&machine, &host);
            more.connect_as((&host, &beyond), 0, 0xffff, 0).expect_err("it has all it may have");
            assert_eq!(more.said, Status::BUSY);
        }
    }
    let count = admins.len() + ios.len();
    assert_eq!(count, CONNECTIONS_MAX as usize);
    let idle = resident().saturating_sub(before);
    assert!(idle < count * IDLE_BYTES_MAX, "{} KiB", idle >> 10);
    write_one_each(&mut ios);
    let wrote = resident().saturating_sub(before);
    println!("a write each: {} KiB more", wrote.saturating_sub(idle) >> 10);
    assert!(wrote < idle + count * WRITER_BYTES_MAX, "{} KiB", (wrote - idle) >> 10);

    assert_eq!(machine.target.turned_away(), 0);
    assert!(machine.dial().pdu().is_none(), "there is no room");
    assert_eq!(machine.target.turned_away(), 1, "it is counted");
    drop(ios.pop());
    until("there is room again", || {
        let mut next = machine.dial();
        // The connection may be closed before the host has sent anything.
        let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 };
        next.stream.write_all(&asked.bytes()).is_ok() && next.pdu().is_some()
    });
    write_one_each(&mut ios);
}

/// Sends the data of the next R2T.
fn give(host: &mut Host, cid: u16, byte: u8) {
    let r2t = host.pdu().expect("the connection stays");
    assert_eq!(r2t.kind, 9, "R2T");
    let tag = u16::from_le_bytes([r2t.header[2], r2t.header[3]]);
    let (whole, part) = (TRANSFER_BYTES_MAX, H2C_BYTES_MAX);
    for offset in (0..whole).step_by(part as usize) {
        let flags = if offset + part == whole { 4 } else { 0 };
        host.put(&h2c(cid, tag, offset, part, flags, &vec![byte; part as usize]));
    }
}

/// A host takes all the memory it can get and never returns it. Whether the pool of its core has some left for others
/// or is empty, every command of another host is executed, including the largest ones.
#[test]
fn a_host_that_holds_all_it_may_delays_no_other() {
    const GREEDY: u16 = 15;
    let length = TRANSFER_BYTES_MAX;
    let largest = [(1, 1), (10, 0), (12, length / BLOCK as u32 - 1)];
    let nothing = PoolSizes { small_buffers: 2, large_buffers: 2, ..STOCK };
    // The number of commands for which two cores lend buffers to one host.
    for (stock, lent) in [(STOCK, 2 * STOCK.large_buffers / 2 / SEGMENTS_MAX), (nothing, 0)] {
        let machine = machine(1, 2, TargetConfig { stock, ..TargetConfig::default() });
        let subsystem = subsystem_name(0);
        let mut greedy = controller(&machine, (&host_name(0), &subsystem), GREEDY);
        let mut asked_for = 0;
        for queue in &mut greedy[1..] {
            for _ in 0..100 {
                queue.send(1, Sgl::Transport { length }, &largest, &[]);
            }
            // This command is received behind all others, and needs no memory.
            queue.send(0, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
            let kinds = std::iter::from_fn(|| queue.pdu()).map(|pdu| pdu.kind);
            asked_for += kinds.take_while(|kind| *kind == 9).count();
        }
        let own = LARGE_BUFFERS / SEGMENTS_MAX * usize::from(GREEDY);
        assert_eq!(asked_for, own + lent, "it has what it may have");

        let mut other = controller(&machine, (&host_name(1), &subsystem), 3);
        for queue in &mut other[1..] {
            assert_eq!(queue.write(0, &[9; BLOCK]), 0);
            let cid = queue.send(1, Sgl::Transport { length }, &largest, &[]);
            give(queue, cid, 5);
            assert_eq!(queue.finish().2, 0, "Write");
            let cid = queue.send(5, Sgl::Transport { length }, &largest, &[]);
            give(queue, cid, 5);
            assert_eq!(queue.finish().2, 0, "Compare");
            let (data, status) = queue.read(0, length / BLOCK as u32);
            assert_eq!((data.len(), status), (length as usize, 0));
            assert!(data.iter().all(|byte| *byte == 5));
        }
    }
}
