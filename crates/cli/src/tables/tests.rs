//! Tables as people see them, at 80 columns. After a change on purpose, `STRAKE_BLESS=1` writes them anew.

use crate::tables;
use std::path::Path;
use strake_api::v1::{
    Array, Core, Counters, Daemon, Drive, Export, ListArraysResponse, ListDrivesResponse,
    ListExportsResponse, Member, Problem, Progress, SystemStatus,
};

const WIDTH: usize = 80;

/// Holds `table` against `tests/golden/NAME.txt`, and every line of it against the width.
fn check(name: &str, table: &str) {
    for line in table.lines() {
        assert!(line.chars().count() <= WIDTH, "{name}: longer than {WIDTH} columns: {line:?}");
        assert_eq!(line, line.trim_end(), "{name}: blanks at the end");
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("STRAKE_BLESS").is_some() {
        std::fs::write(&path, table).expect("the golden folder is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("every table has its file in tests/golden");
    assert_eq!(table, golden, "{name} changed");
}

fn member(position: u32, state: &str, cause: &str) -> Member {
    Member {
        position,
        state: state.into(),
        path: if state == "missing" { String::new() } else { format!("/dev/nvme{position}n1") },
        cause: cause.into(),
        ..Member::default()
    }
}

fn array(states: &[&str]) -> Array {
    Array {
        name: "tank".into(),
        uuid: "3f7420d0-d70f-46db-8f1d-75ebb959df7e".into(),
        states: states.iter().map(|s| (*s).into()).collect(),
        level: "6".into(),
        size_bytes: 6 * 3_840_755_982_336,
        strip_bytes: 128 << 10,
        block_bytes: 4096,
        stripe_data_bytes: 768 << 10,
        members: (0..8).map(|i| member(i, "in_sync", "")).collect(),
        redundancy_left: 2,
        generation: 17,
        counters: Some(Counters {
            read_bytes: 5 << 40,
            write_bytes: 3 << 30,
            ..Counters::default()
        }),
        exports: vec!["tank".into()],
        ..Array::default()
    }
}

fn degraded() -> Array {
    let mut array = array(&["online", "degraded"]);
    array.members[3] = member(3, "faulty", "4 medium errors in 60 s, the last at LBA 1234567");
    array.redundancy_left = 1;
    array.next_action = "strake array replace tank --member 3 --with DRIVE".into();
    array.counters =
        Some(Counters { degraded_reads: 12, medium_errors: 4, repairs: 3, ..Counters::default() });
    array
}

fn rebuilding() -> Array {
    let mut array = array(&["online", "degraded", "exhausted", "rebuilding"]);
    array.members[3] = member(3, "rebuilding", "");
    array.members[5] = member(5, "missing", "");
    array.redundancy_left = 0;
    array.progress = vec![Progress {
        job: "rebuild".into(),
        done_bytes: 1_700_000_000_000,
        total_bytes: 3_840_755_982_336,
        rate_bytes_per_s: 2_100_000_000,
        eta_s: Some(1019),
        ..Progress::default()
    }];
    array.next_action = "strake wait tank --for rebuild".into();
    array
}

fn offline() -> Array {
    let mut array = array(&["offline"]);
    for position in [1, 2, 6] {
        array.members[position as usize] = member(position, "missing", "");
    }
    array.redundancy_left = 0;
    array.exports.clear();
    array.counters = None;
    array.reason =
        "3 of 8 members are missing and level 6 works without 2 of them at most: data cannot be \
                    read until at least one of them is back"
            .into();
    array.next_action = "strake array import tank --drives DRIVE,DRIVE,DRIVE".into();
    array
}

fn daemon() -> Daemon {
    Daemon {
        version: "0.1.0".into(),
        pid: 4711,
        uptime_us: 7_325_000_000,
        state_dir: "/var/lib/strake".into(),
        socket: "/run/strake/straked.sock".into(),
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

fn export() -> Export {
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

#[test]
fn one_array() {
    check("array-healthy", &tables::show::array(&array(&["online"]), WIDTH));
    check("array-degraded", &tables::show::array(&degraded(), WIDTH));
    check("array-rebuilding", &tables::show::array(&rebuilding(), WIDTH));
    check("array-offline", &tables::show::array(&offline(), WIDTH));
}

#[test]
fn all_arrays() {
    let mut long = array(&["online", "initializing"]);
    long.name = "a-name-as-long-as-names-may-be-which-is-sixty-three-characters".into();
    (long.level, long.group_size) = ("60".into(), 16);
    let arrays = vec![array(&["online"]), degraded(), rebuilding(), offline(), long];
    check("array-list", &tables::array::list(&ListArraysResponse { arrays }, WIDTH));
    check("array-list-empty", &tables::array::list(&ListArraysResponse::default(), WIDTH));
}

#[test]
fn status() {
    let empty =
        SystemStatus { health: "ok".into(), daemon: Some(daemon()), ..SystemStatus::default() };
    check("status-empty", &tables::status::show(&empty, WIDTH));
    let problem = |object: &str, severity: &str, array: Array| Problem {
        object: object.into(),
        severity: severity.into(),
        what: if array.reason.is_empty() {
            "member 3 is faulty; 1 more may be lost".into()
        } else {
            array.reason
        },
        next_action: array.next_action,
    };
    let problems = vec![
        problem("array/cold", "failed", offline()),
        problem("array/tank", "degraded", degraded()),
    ];
    let arrays = vec![Array { name: "cold".into(), ..offline() }, degraded()];
    let status = SystemStatus {
        health: "failed".into(),
        problems,
        arrays,
        exports: vec![export()],
        ..empty
    };
    check("status-problems", &tables::status::show(&status, WIDTH));
}

#[test]
fn drives_exports_and_the_daemon() {
    let drive = |path: &str, state: &str, note: &str| Drive {
        path: path.into(),
        kind: "nvme".into(),
        size_bytes: 3_840_755_982_336,
        block_bytes: 512,
        model: "Somebody's Fast Drive 9000 Enterprise".into(),
        serial: "S1234".into(),
        identity: "eui.0025384b11b0a1c2".into(),
        state: state.into(),
        note: note.into(),
        ..Drive::default()
    };
    let member =
        Drive { array: "tank".into(), member: Some(3), ..drive("/dev/nvme3n1", "member", "") };
    let drives = vec![
        drive("/dev/nvme0n1", "free", ""),
        member.clone(),
        drive(
            "/home/somebody/with/a/long/way/to/drives/d17.img",
            "occupied",
            "an ext4 file system",
        ),
    ];
    check("drive-list", &tables::drive::list(&ListDrivesResponse { drives }, WIDTH));
    check("drive-show", &tables::drive::show(&member, WIDTH));
    let offline = Export {
        name: "cold".into(),
        state: "offline".into(),
        reason: "array cold is offline".into(),
        ..export()
    };
    check(
        "export-list",
        &tables::export::list(&ListExportsResponse { exports: vec![export(), offline] }, WIDTH),
    );
    check("daemon", &tables::daemon::show(&daemon(), WIDTH));
}

#[test]
fn a_bar_is_full_only_when_the_job_is_done() {
    let at = |done_bytes, total_bytes| {
        let progress =
            Progress { job: "rebuild".into(), done_bytes, total_bytes, ..Progress::default() };
        (tables::job::percent(&progress), tables::job::progress(&progress))
    };
    assert_eq!(at(999, 1000), (99, "[#############.] 99%, 999 B of 1000 B".to_owned()));
    assert_eq!(at(1000, 1000).0, 100);
    assert_eq!(at(u64::MAX, u64::MAX).0, 100);
    assert_eq!(at(u64::MAX, 1).0, 100, "a server that counts too far");
    assert_eq!(at(0, 0).0, 100);
}

#[test]
fn times_are_short() {
    for (seconds, text) in
        [(0, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (7325, "2h02m")]
    {
        assert_eq!(tables::job::time(seconds), text);
    }
}
