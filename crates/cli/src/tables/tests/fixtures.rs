//! Arrays in every state an operator can meet.

use strake_api::v1::{
    Array, ArraySettings, ByteRange, Controller, Core, Counters, Daemon, Drive, DriveErrors, Event,
    Export, Hook, Job, Member, Progress, Queue, Spare,
};

/// Bytes of the drives of these tests.
pub const DRIVE_BYTES: u64 = 3_840_755_982_336;

/// The longest name there can be.
pub const LONG: &str = "a-name-as-long-as-names-may-be-which-is-sixty-three-characters-";

/// A path that is hard to read.
pub const PATH: &str = "/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64HNE0T123456-part1";

pub fn member(position: u32, state: &str, cause: &str) -> Member {
    Member {
        position,
        state: state.into(),
        path: if state == "missing" { String::new() } else { format!("/dev/nvme{position}n1") },
        cause: cause.into(),
        errors: Some(DriveErrors::default()),
        ..Member::default()
    }
}

pub fn array(states: &[&str]) -> Array {
    Array {
        name: "tank".into(),
        uuid: "3f7420d0-d70f-46db-8f1d-75ebb959df7e".into(),
        states: states.iter().map(|s| (*s).into()).collect(),
        level: "6".into(),
        size_bytes: 6 * DRIVE_BYTES,
        strip_bytes: 128 << 10,
        block_bytes: 4096,
        stripe_data_bytes: 768 << 10,
        members: (0..8).map(|i| member(i, "in_sync", "")).collect(),
        redundancy_left: 2,
        generation: 17,
        memory_bytes: 52 << 20,
        memory_huge_bytes: 48 << 20,
        format: 2,
        consistency: "safe".into(),
        guarantees: vec!["after a crash: no acknowledged write is lost".into()],
        counters: Some(Counters {
            read_bytes: 5 << 40,
            write_bytes: 3 << 30,
            ..Counters::default()
        }),
        exports: vec!["tank".into()],
        settings: Some(ArraySettings {
            rebuild_priority: 50,
            auto_replace: true,
            auto_readd: true,
            replace_after_errors: 10,
            report_at_wear_percent: 95,
            scrub_every_s: 30 * 24 * 3600,
            scrub_repair: false,
        }),
        ..Array::default()
    }
}

pub fn progress(job: &str, state: &str) -> Progress {
    let running = state == "running";
    Progress {
        job: job.into(),
        done_bytes: 1_700_000_000_000,
        total_bytes: DRIVE_BYTES,
        rate_bytes_per_s: if running { 2_100_000_000 } else { 0 },
        eta_s: running.then_some(1019),
        state: state.into(),
        priority: 50,
    }
}

pub fn degraded() -> Array {
    let mut array = array(&["online", "degraded"]);
    array.members[3] = member(3, "faulty", "4 medium errors in 60 s, the last at LBA 1234567");
    array.members[3].errors =
        Some(DriveErrors { medium: 4, timeouts: 1, ..DriveErrors::default() });
    array.redundancy_left = 1;
    array.next_action = "strake array replace tank --member 3 --with DRIVE".into();
    array.counters =
        Some(Counters { degraded_reads: 12, medium_errors: 4, repairs: 3, ..Counters::default() });
    array
}

pub fn no_redundancy() -> Array {
    let mut array = degraded();
    array.states.push("no_redundancy".into());
    array.members[5] = member(5, "missing", "its drive was pulled");
    array.redundancy_left = 0;
    array
}

pub fn rebuilding(state: &str) -> Array {
    let mut array = array(&["online", "degraded", "no_redundancy", "rebuilding"]);
    array.members[3] = member(3, "rebuilding", "");
    array.members[3].stale_bytes = DRIVE_BYTES - 1_700_000_000_000;
    array.members[5] = member(5, "missing", "its drive was pulled");
    array.redundancy_left = 0;
    array.progress = vec![progress("rebuild", state)];
    array.next_action = match state {
        "paused" => "strake job resume tank/rebuild".into(),
        _ => "strake wait tank --for rebuild".into(),
    };
    array
}

pub fn halted() -> Array {
    let mut array = rebuilding("halted");
    array.states.push("rebuild_halted".into());
    array.reason =
        "member 3 cannot be rebuilt: the list of bad blocks is full (65536 records), and \
                    blocks of member 1 cannot be read"
            .into();
    array.next_action = "copy the data off, then strake array rebuild tank".into();
    array
}

pub fn replacing() -> Array {
    let mut array = array(&["online"]);
    array.members[2].replacement = "/dev/nvme9n1".into();
    array.members[2].errors =
        Some(DriveErrors { medium: 12, repaired: 12, ..DriveErrors::default() });
    array.progress = vec![progress("replace", "running")];
    array.next_action = "strake wait tank --for replace".into();
    array
}

pub fn offline() -> Array {
    let mut array = array(&["offline"]);
    for position in [1, 2, 6] {
        array.members[position as usize] = member(position, "missing", "");
    }
    for member in &mut array.members {
        member.errors = None;
    }
    array.redundancy_left = 0;
    array.exports.clear();
    array.counters = None;
    array.settings = None;
    array.reason = "3 of 8 members are missing and level 6 works without 2 of them at most: data \
                    cannot be read until at least one of them is back"
        .into();
    array.next_action = "strake array import tank --drives DRIVE,DRIVE,DRIVE".into();
    array
}

pub fn waiting() -> Array {
    let mut array = offline();
    array.members[1] = member(1, "in_sync", "");
    array.members[2] = member(2, "in_sync", "");
    array.reason = "member 6, last seen in sync, is not here; waiting for it, 21 s more".into();
    array.next_action =
        "bring it back, or start without it: strake array import tank --degraded".into();
    array
}

pub fn forked() -> Array {
    let mut array = offline();
    array.reason =
        "two halves of it ran without each other: members 0, 1, 2, 3 since generation 17 \
                    (912 changes), members 4, 5, 6, 7 since generation 17 (3 changes)"
            .into();
    array.next_action = "take the half away whose changes shall be lost, then strake array import \
                         tank --degraded"
        .into();
    array
}

pub fn lost() -> Array {
    let mut array = no_redundancy();
    array.states = ["online", "lost"].map(str::to_owned).to_vec();
    array.members[0] = member(0, "faulty", "the drive does not answer");
    array.reason = "3 members are gone and level 6 covers 2; every request fails".into();
    array.next_action = "bring members back, then strake daemon stop && strake daemon start".into();
    array
}

pub fn returned() -> Array {
    let mut array = degraded();
    array.members[3] = member(3, "missing", "its drive was pulled");
    array.members[3].stale_bytes = 3 << 30;
    array.members[3].returned = true;
    array.members[3].path = "/dev/nvme11n1".into();
    array.next_action = "strake array readd tank --member 3".into();
    array
}

pub fn bad_blocks(ranges: u64) -> Array {
    let mut array = array(&["online"]);
    array.bad_blocks = ranges * 2;
    array.bad_ranges = (0..ranges)
        .map(|i| ByteRange { offset_bytes: (i * 7 + 1) << 33, length_bytes: 8192 })
        .collect();
    array.next_action = "restore the content from a backup: writing repairs the blocks".into();
    array
}

pub fn sitting_out() -> Array {
    let mut array = array(&["online"]);
    array.members[7].sitting_out = true;
    array.members[7].errors = Some(DriveErrors {
        slow: 4711,
        read_p50_us: 900,
        read_p99_us: 48_000,
        sit_outs: 1,
        ..DriveErrors::default()
    });
    array
}

/// As many members as there can be, under paths and a name as long as they get.
pub fn huge() -> Array {
    let mut array = array(&["online", "degraded", "rebuilding"]);
    array.name = LONG.into();
    (array.level, array.group_size) = ("60".into(), 16);
    array.members = (0..64).map(|i| member(i, "in_sync", "")).collect();
    for member in &mut array.members {
        member.path = PATH.replace("T123456", &format!("T{:06}", member.position));
    }
    array.members[63].state = "rebuilding".into();
    array.progress = vec![Progress {
        done_bytes: 999_999_999_999_999,
        total_bytes: u64::MAX / 8,
        rate_bytes_per_s: 1_098_765_432,
        eta_s: Some(359_999),
        ..progress("rebuild", "running")
    }];
    array.exports = (0..9).map(|i| format!("{LONG}{i}")).collect();
    array
}

pub fn daemon() -> Daemon {
    Daemon {
        version: "0.1.0".into(),
        pid: 4711,
        uptime_us: 7_325_000_000,
        state_dir: "/var/lib/strake".into(),
        socket: "/run/strake/straked.sock".into(),
        role: "operator".into(),
        cores: vec![
            Core { index: 0, cpu: Some(2), notice: String::new() },
            Core {
                index: 1,
                cpu: None,
                notice: "pinning to CPU 3 was refused: not in this control group".into(),
            },
        ],
        memory_bytes: 104 << 20,
        cpu_us: 1_390_000,
        state: "serving".into(),
    }
}

pub fn export() -> Export {
    Export {
        name: "tank".into(),
        array: "tank".into(),
        via: "nbd".into(),
        listen: "unix:/run/strake/exports/customers/tank.sock".into(),
        uri: "nbd+unix:///tank?socket=/run/strake/exports/tank.sock".into(),
        connections: 4,
        read_bytes: 5 << 40,
        write_bytes: 3 << 30,
        state: "online".into(),
        ..Export::default()
    }
}

fn queue(number: u32) -> Queue {
    let busy = u64::from(number);
    Queue {
        number,
        address: format!("192.0.2.7:{}", 52_144 + number),
        tls: true,
        header_digest: true,
        data_digest: true,
        age_us: 83_000_000_000,
        reads: busy * 1_234_567_890,
        writes: busy * 9_876_543,
        others: 1 + busy * 4711,
        received_bytes: busy * 9_876_543 * 4096,
        sent_bytes: 4096 + busy * 1_234_567_890 * 4096,
        errors: busy,
        ..Queue::default()
    }
}

/// Of a drive of another machine: one at work, and one that waits for a connection.
pub fn drive_queues() -> Vec<Queue> {
    let (reads, writes) = (1_234_567, 98_765);
    let busy = Queue { association: 3, connects: 3, retries: 12, held: 2, ..queue(1) };
    let busy = Queue { reads, writes, ..busy };
    let lost = Queue { number: 0, association: 0, age_us: 0, held: 32, ..busy.clone() };
    vec![busy, lost]
}

pub fn controller() -> Controller {
    Controller {
        id: 3,
        nqn: "nqn.2014-08.org.nvmexpress:uuid:db1".into(),
        host_id: "11111111-2222-4333-8444-555555555555".into(),
        keep_alive_ms: 5000,
        queues: vec![queue(0), queue(1)],
    }
}

pub fn drive(path: &str, state: &str, note: &str) -> Drive {
    Drive {
        path: path.into(),
        kind: "nvme".into(),
        size_bytes: DRIVE_BYTES,
        block_bytes: 512,
        model: "Fast Drive 9000".into(),
        serial: "S1234".into(),
        identity: "eui.0025384b11b0a1c2".into(),
        state: state.into(),
        note: note.into(),
        ..Drive::default()
    }
}

/// A member with everything known about it, and trouble.
pub fn sick() -> Drive {
    Drive {
        array: "tank".into(),
        member: Some(3),
        slot: "0000:41:00.0".into(),
        wear_percent: Some(97),
        temperature_c: Some(71),
        aliases: vec![PATH.into(), "/dev/disk/by-path/pci-0000:41:00.0-nvme-1".into()],
        errors: Some(DriveErrors {
            medium: 12,
            repaired: 11,
            slow: 4711,
            timeouts: 1,
            device: 2,
            read_p50_us: 85,
            read_p99_us: 48_123,
            sit_outs: 3,
        }),
        ..drive("/dev/nvme3n1", "member", "will probably fail soon")
    }
}

pub fn spare(path: &str, state: &str, note: &str) -> Spare {
    Spare {
        path: path.into(),
        identity: "eui.0025384b11b0a1c2".into(),
        serial: "S1234".into(),
        size_bytes: DRIVE_BYTES,
        state: state.into(),
        note: note.into(),
        ..Spare::default()
    }
}

pub fn job(kind: &str, state: &str) -> Job {
    let p = progress(kind, state);
    Job {
        id: format!("tank/{kind}"),
        array: "tank".into(),
        kind: kind.into(),
        state: state.into(),
        priority: p.priority,
        done_bytes: p.done_bytes,
        total_bytes: p.total_bytes,
        rate_bytes_per_s: p.rate_bytes_per_s,
        eta_s: p.eta_s,
        members: vec![3, 5],
        ..Job::default()
    }
}

pub fn event(number: u64, severity: &str, what: &str) -> Event {
    Event {
        number,
        time_us: 1_795_241_523_000_000 + number * 1_234_567,
        severity: severity.into(),
        kind: "command".into(),
        object: "array/tank".into(),
        what: what.into(),
        actor: "straked".into(),
        ..Event::default()
    }
}

pub fn hook(name: &str, kind: &str, target: &str) -> Hook {
    Hook {
        name: name.into(),
        kind: kind.into(),
        target: target.into(),
        severity: "warning".into(),
        delivered: 1234,
        ..Hook::default()
    }
}
