use super::check;
use super::fixtures::*;
use crate::tables::clock::Clock;
use crate::tables::{array as arrays, job, scrub, show, status};
use strake_api::v1::{
    Array, ArrayChange, ImportArraysResponse, ListArraysResponse, Problem, Progress, Scrub,
    ScrubChange, ScrubFinding, SystemStatus,
};

#[test]
fn one_array_in_every_state() {
    let resyncing = Array {
        progress: vec![progress("resync", "running")],
        resync_bytes_at_start: 640 << 20,
        recovery: "it was not shut down cleanly; did 3 writes again from the redo log".into(),
        ..array(&["online", "resyncing"])
    };
    let initializing = Array {
        progress: vec![progress("initialize", "running")],
        ..array(&["online", "initializing"])
    };
    let screens = [
        ("array-healthy", array(&["online"])),
        ("array-degraded", degraded()),
        ("array-no_redundancy", no_redundancy()),
        ("array-rebuilding", rebuilding("running")),
        ("array-paused", rebuilding("paused")),
        ("array-halted", halted()),
        ("array-replacing", replacing()),
        ("array-resyncing", resyncing),
        ("array-initializing", initializing),
        ("array-lost", lost()),
        ("array-offline", offline()),
        ("array-waiting", waiting()),
        ("array-forked", forked()),
        ("array-returned", returned()),
        ("array-bad-blocks", bad_blocks(3)),
        ("array-bad-blocks-many", bad_blocks(64)),
        ("array-sitting-out", sitting_out()),
        ("array-huge", huge()),
        ("array-bare", Array { name: "tank".into(), ..Array::default() }),
    ];
    for (name, array) in screens {
        check(name, |width| show::array(&array, &Clock::new(true), width));
    }
}

fn all() -> Vec<Array> {
    vec![
        array(&["online"]),
        degraded(),
        rebuilding("running"),
        rebuilding("paused"),
        halted(),
        replacing(),
        Array { name: "cold".into(), ..waiting() },
        lost(),
        huge(),
    ]
}

#[test]
fn all_arrays() {
    let answer = ListArraysResponse { arrays: all() };
    check("array-list", |width| arrays::list(&answer, width));
    check("array-list-empty", |width| arrays::list(&ListArraysResponse::default(), width));
}

#[test]
fn what_a_command_did_to_an_array() {
    let change = |result: &str, array: Array| {
        ArrayChange {
        result: result.into(),
        array: Some(array),
        plan: vec![
            "check that /dev/nvme0n1 (3.49 TiB, serial S1234), /dev/nvme1n1 (3.49 TiB, serial S1235) hold nothing"
                .into(),
            "write labels to 8 drives".into(),
        ],
        warnings: vec!["goes to standard error".into()],
        undo: String::new(),
    }
    };
    let plan = change("planned", array(&["online"]));
    check("array-planned", |width| arrays::change(&plan, None, width));
    let created = change("created", array(&["online"]));
    check("array-created", |width| arrays::change(&created, None, width));
    let failed = ArrayChange { plan: Vec::new(), ..change("changed", no_redundancy()) };
    check("array-changed", |width| arrays::change(&failed, None, width));
    let same = ArrayChange { plan: Vec::new(), ..change("unchanged", array(&["online"])) };
    check("array-unchanged", |width| arrays::change(&same, None, width));
    let destroyed = ArrayChange { plan: Vec::new(), ..change("changed", array(&[])) };
    check("array-destroyed", |width| arrays::change(&destroyed, Some("destroyed"), width));
}

#[test]
fn what_a_scan_found() {
    let found = |result: &str, arrays: Vec<Array>| ImportArraysResponse {
        result: result.into(),
        arrays,
        warnings: Vec::new(),
    };
    let all = found("changed", vec![array(&["online"]), waiting()]);
    check("import", |width| arrays::import(&all, width));
    let plan = found("planned", vec![array(&["online"])]);
    check("import-planned", |width| arrays::import(&plan, width));
    check("import-nothing", |width| arrays::import(&found("unchanged", Vec::new()), width));
}

#[test]
fn health_of_everything() {
    let status =
        SystemStatus { health: "ok".into(), daemon: Some(daemon()), ..SystemStatus::default() };
    check("status-empty", |width| status::show(&status, width));
    let fine = SystemStatus {
        arrays: vec![array(&["online"])],
        exports: vec![export()],
        ..status.clone()
    };
    check("status-ok", |width| status::show(&fine, width));
    let problem = |object: &str, severity: &str, array: Array| Problem {
        object: object.into(),
        severity: severity.into(),
        what: match array.reason.as_str() {
            "" => "member 3 is faulty; 1 more may be lost".into(),
            reason => reason.into(),
        },
        next_action: array.next_action,
        remedy: array.remedy,
    };
    let problems = vec![
        problem("array/cold", "failed", offline()),
        problem("array/tank", "degraded", degraded()),
        Problem {
            object: format!("drive/{PATH}"),
            severity: "degraded".into(),
            what: "12 errors; will probably fail soon".into(),
            ..Problem::default()
        },
    ];
    let arrays = vec![Array { name: "cold".into(), ..offline() }, degraded(), huge()];
    let bad = SystemStatus {
        health: "failed".into(),
        problems,
        arrays,
        exports: vec![export()],
        ..status
    };
    check("status-problems", |width| status::show(&bad, width));
}

#[test]
fn a_bar_is_full_only_when_the_job_is_done() {
    let at = |done_bytes, total_bytes| {
        let progress =
            Progress { job: "rebuild".into(), done_bytes, total_bytes, ..Progress::default() };
        (job::percent(&progress), job::progress(&progress))
    };
    assert_eq!(at(999, 1000), (99, "[#############.] 99%, 999 B of 1000 B".to_owned()));
    assert_eq!(at(1000, 1000).0, 100);
    assert_eq!(at(u64::MAX, u64::MAX).0, 100);
    assert_eq!(at(u64::MAX, 1).0, 100, "a server that counts too far");
    assert_eq!(at(0, 0).0, 100);
}

#[test]
fn times_are_short() {
    let cases = [
        (0, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (7325, "2h02m"),
        (359_999, "99h59m"),
        (360_000, "4 days"),
        (u64::MAX, "213503982334601 days"),
    ];
    for (seconds, text) in cases {
        assert_eq!(job::time(seconds), text);
    }
}

#[test]
fn scrubs() {
    let of = |state: &str, mode: &str| Scrub {
        array: "tank".into(),
        state: state.into(),
        mode: mode.into(),
        done_bytes: 1_700_000_000_000,
        total_bytes: 7_680_000_000_000,
        checked_bytes: 7_680_000_000_000,
        ended_us: Some(1_790_000_000_000_000),
        ..Scrub::default()
    };
    let finding = |verdict: &str, member: Option<u32>, at: u64| ScrubFinding {
        verdict: verdict.into(),
        member,
        stripe: at / 786_432,
        member_offset_bytes: at / 6,
        member_length_bytes: 4096,
        drive_offset_bytes: (16 << 20) + at / 6,
        array_offset_bytes: at,
        array_length_bytes: if member.is_some() { 4096 } else { 659_456 },
        repaired: false,
    };
    let findings = vec![
        finding("data_wrong", Some(2), 1_234_567_168),
        finding("parity_differs", None, 6_000_000_000_000),
        finding("unreadable", Some(7), 7_000_000_000_512),
    ];
    let never =
        Scrub { array: "tank".into(), next_us: Some(1_790_000_000_000_000), ..Scrub::default() };
    check("scrub-never", |width| scrub::scrub(&never, &Clock::new(true), width));
    let running =
        Scrub { rate_bytes_per_s: 2_100_000_000, eta_s: Some(2847), ..of("running", "check") };
    check("scrub-running", |width| scrub::scrub(&running, &Clock::new(true), width));
    check("scrub-clean", |width| scrub::scrub(&of("finished", "check"), &Clock::new(true), width));
    let bad = Scrub {
        wrong_bytes: 4096,
        unsure_bytes: 4096,
        unreadable_bytes: 4096,
        left_bytes: 12_288,
        unchecked_bytes: 1 << 30,
        unlisted_findings: 12,
        findings: findings.clone(),
        ..of("finished", "check")
    };
    check("scrub-found", |width| scrub::scrub(&bad, &Clock::new(true), width));
    // The array was started again after the scrub.
    let earlier = Scrub { array: "tank".into(), findings: findings.clone(), ..Scrub::default() };
    check("scrub-earlier", |width| scrub::scrub(&earlier, &Clock::new(true), width));
    let repaired = Scrub {
        repaired_bytes: 8192,
        left_bytes: 4096,
        mode: "repair".into(),
        unlisted_findings: 0,
        unchecked_bytes: 0,
        findings: findings
            .into_iter()
            .map(|f| ScrubFinding { repaired: f.member.is_some(), ..f })
            .collect(),
        ..bad.clone()
    };
    check("scrub-repaired", |width| scrub::scrub(&repaired, &Clock::new(true), width));
    let change = |result: &str, scrub: &Scrub| ScrubChange {
        result: result.into(),
        scrub: Some(Scrub { findings: Vec::new(), ..scrub.clone() }),
    };
    let begun = change("created", &of("waiting", "repair"));
    check("scrub-begun", |width| scrub::change(&begun, width));
    let paused = change("changed", &of("paused", "trust_data"));
    check("scrub-paused", |width| scrub::change(&paused, width));
    let scrubbed = Array { scrub: Some(repaired), ..array(&["online"]) };
    check("array-scrubbed", |width| show::array(&scrubbed, &Clock::new(true), width));
}
