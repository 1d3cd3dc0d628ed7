//! `strake pool`, `strake volume` and `strake snapshot` against a daemon that answers from a script.

use crate::fake::{Ran, Script, Served, against};
use crate::terminal::Terminal;
use strake_api::v1::{Pool, Volume};

/// Two volumes and a snapshot in a pool.
pub fn script() -> Script {
    let volume = |name: &str, kind: &str, origin: &str| Volume {
        name: name.into(),
        pool: "data".into(),
        kind: kind.into(),
        origin: origin.into(),
        size_bytes: 10 << 30,
        ..Volume::default()
    };
    let pool = |name: &str, state: &str| Pool {
        name: name.into(),
        state: state.into(),
        ..Pool::default()
    };
    Script {
        pools: vec![pool("data", "online"), pool("log", "read-only"), pool("old", "offline")],
        volumes: vec![
            volume("data/vm1", "volume", ""),
            volume("data/copy", "volume", "data/before"),
            volume("data/before", "snapshot", "data/vm1"),
        ],
        ..Script::default()
    }
}

/// Runs `line` and holds the exit code.
fn check(line: &str, code: i32) -> Ran {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ran = against("volumes", script(), &arguments);
    assert_eq!(ran.code, code, "{line}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    ran
}

#[test]
fn every_verb_reaches_its_call() {
    for (line, part) in [
        (
            "pool create data tank --dry-run",
            "CreatePoolRequest { name: \"data\", array: \"tank\", dry_run: true, overwrite: false",
        ),
        ("pool create data tank --overwrite --yes", "dry_run: false, overwrite: true"),
        ("pool create data tank --force --yes", "dry_run: false, overwrite: true"),
        (
            "pool destroy data --force --yes",
            "DestroyPoolRequest { name: \"data\", dry_run: false, force: true",
        ),
        ("pool destroy data --dry-run", "dry_run: true, force: false"),
        (
            "volume create data/vm1 100G --thick --quota 2T",
            "CreateVolumeRequest { name: \"data/vm1\", size_bytes: 107374182400, thick: true, \
             quota_bytes: 2199023255552, dry_run: false",
        ),
        ("volume list", "ListVolumesRequest { pool: \"\", kind: \"volume\""),
        ("snapshot list data", "ListVolumesRequest { pool: \"data\", kind: \"snapshot\""),
        ("volume show data/before", "GetVolumeRequest { name: \"data/before\""),
        ("snapshot show data/before", "GetVolumeRequest { name: \"data/before\""),
        (
            "volume resize data/vm1 20G",
            "ResizeVolumeRequest { name: \"data/vm1\", size_bytes: 21474836480, discard_tail: false",
        ),
        (
            "volume resize data/vm1 +1G --dry-run",
            "size_bytes: 11811160064, discard_tail: false, dry_run: true",
        ),
        (
            "volume resize data/vm1 -1G --discard-tail --yes",
            "size_bytes: 9663676416, discard_tail: true",
        ),
        (
            "volume resize --discard-tail --yes data/vm1 -1G",
            "size_bytes: 9663676416, discard_tail: true",
        ),
        ("volume set data/vm1 --thick", "thick: Some(true), quota_bytes: None"),
        ("volume set data/vm1 --thin --quota none", "thick: Some(false), quota_bytes: Some(0)"),
        ("volume set data/vm1 --quota 1G", "thick: None, quota_bytes: Some(1073741824)"),
        (
            "volume rename data/vm1 web --dry-run",
            "RenameVolumeRequest { name: \"data/vm1\", new_name: \"web\", dry_run: true",
        ),
        (
            "volume destroy data/vm1 --yes",
            "DestroyVolumeRequest { name: \"data/vm1\", dry_run: false",
        ),
        (
            "snapshot destroy data/before --dry-run",
            "DestroyVolumeRequest { name: \"data/before\", dry_run: true",
        ),
        (
            "volume clone data/before data/new",
            "CloneSnapshotRequest { snapshot: \"data/before\", name: \"data/new\", dry_run: false",
        ),
        (
            "snapshot create data/db db-1 data/log log-1 --dry-run",
            "[NewSnapshot { volume: \"data/db\", name: \"db-1\" }, NewSnapshot { volume: \"data/log\", name: \"log-1\" \
             }], dry_run: true",
        ),
        ("snapshot create data/vm1@now", "[NewSnapshot { volume: \"data/vm1\", name: \"now\" }]"),
        (
            "snapshot rollback data/vm1 data/before --yes",
            "RollbackVolumeRequest { name: \"data/vm1\", snapshot: \"data/before\", dry_run: false",
        ),
        ("export create data/vm1 --via nbd --listen 127.0.0.1:0", "array: \"data/vm1\""),
    ] {
        let ran = check(line, 0);
        assert!(ran.heard.last().is_some_and(|h| h.contains(part)), "{line}: {:?}", ran.heard);
    }
}

/// Without a terminal and without --yes, nothing is lost.
#[test]
fn what_loses_data_needs_a_confirmation() {
    for line in [
        "pool create data tank --overwrite",
        "pool destroy data --force",
        "volume destroy data/vm1",
        "volume resize data/vm1 1G --discard-tail",
        "snapshot destroy data/before",
        "snapshot rollback data/vm1 data/before",
    ] {
        let ran = check(line, 3);
        assert!(ran.stderr.contains("add --yes"), "{line}: {}", ran.stderr);
        let is_harmless = |heard: &String| heard.starts_with("GetVolumeRequest");
        assert!(ran.heard.iter().all(is_harmless), "{line}: {:?}", ran.heard);
    }
}

/// At a terminal, the plan is shown before the question, and only the name is an answer.
#[test]
fn a_person_sees_the_plan_and_types_the_name() {
    for (line, question) in [
        ("pool destroy data", "Type data to continue:"),
        ("volume destroy data/vm1", "Type data/vm1 to continue:"),
        ("snapshot rollback data/vm1 data/before", "Type data/vm1 to continue:"),
    ] {
        let served = Served::new("volumes-ask", script());
        let arguments: Vec<&str> = line.split(' ').collect();
        let (status, printed) = Terminal::start(served.command(&arguments)).confirm_all();
        assert!(status.success() && printed.contains(question), "{line}: {printed}");
        assert!(printed.contains("  - write "), "{line} shows no plan: {printed}");
        let heard = served.heard();
        let dry: Vec<bool> = heard.iter().map(|h| h.contains("dry_run: true")).collect();
        assert_eq!(dry, [true, false], "{line}: {heard:?}");
    }
}

#[test]
fn what_is_no_volume_or_snapshot_is_refused_with_the_form() {
    for (line, why) in [
        ("volume create data 1G", "POOL/NAME"),
        ("volume show data/vm1@before", "such as data/before"),
        ("snapshot destroy data/vm1 --yes", "data/vm1 is a volume, not a snapshot"),
        ("snapshot show data/vm1", "data/vm1 is a volume, not a snapshot"),
        ("snapshot create data/vm1", "has no name"),
        ("snapshot create data/vm1 data/now", "data/now is no name"),
        ("volume resize data/vm1 -10G --dry-run", "cannot be resized by -10 GiB"),
        ("volume create data/vm1 1G --quota 0", "at least 1 byte"),
        ("volume set data/vm1 --quota 0", "write none"),
        ("volume set data/vm1", "--thick"),
        ("volume set data/vm1 --thick --thin", "cannot be used with"),
    ] {
        let ran = check(line, 3);
        let text: String = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(why), "{line}: {text}");
        let is_change = |heard: &String| !heard.starts_with("GetVolumeRequest");
        assert!(!ran.heard.iter().any(is_change), "{line}: {:?}", ran.heard);
    }
}

#[test]
fn a_comparison_is_read_to_its_end_and_adjacent_ranges_are_one() {
    let ran = check("snapshot diff data/before data/vm1", 0);
    let rows: Vec<Vec<&str>> =
        ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1..4], [vec!["0", "4096"], vec!["8192", "8192"], vec!["65536", "4096"]]);
    assert!(ran.stdout.ends_with("3 ranges, 16 KiB\n"), "{}", ran.stdout);
    let json = check("snapshot diff data/before data/vm1 --json", 0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("one document");
    assert_eq!(json["ranges"][1]["length_bytes"], 8192);
    assert_eq!(json["next_byte"], serde_json::Value::Null);
    // A daemon that makes no progress would be asked for ever.
    let ran = against("volumes-stuck", script(), &["snapshot", "diff", "data/stuck", "data/vm1"]);
    assert!(ran.code == 2 && ran.stderr.contains("compared nothing"), "{}", ran.stderr);
}

#[test]
fn the_exit_code_of_a_pool_is_its_health() {
    for (line, code) in [("pool show data", 0), ("pool show log", 1), ("pool show old", 2)] {
        check(line, code);
    }
    check("pool list", 0);
}
