use std::path::PathBuf;
use std::time::Duration;

use strake_dev_mem::Profile;
use strake_dev_uring::create_sparse;
use strake_raid::Level;

use super::{Bay, Latency, Outcome, Wish, edges, run};
use crate::scenario::{Case, Made};
use strake_load::histogram::Histogram;

const MIB: u64 = 1 << 20;

fn wish(case: Case, bay: Bay) -> Wish {
    Wish { case, bay, span: Duration::from_millis(20), verify: false }
}

fn check(wish: &Wish) -> Outcome {
    let mut reported = 0;
    let outcome = run(wish, |_| reported += 1).expect("it runs");
    assert!(reported > 0 && outcome.failed == 0, "{outcome:?}");
    assert!(outcome.own_ns > 0.0 && outcome.seconds >= 0.02);
    outcome
}

/// Files in a folder of their own, which goes away.
struct Files(PathBuf, Vec<PathBuf>);

impl Files {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("strake-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = |at| {
            let path = folder.join(format!("drive{at}"));
            create_sparse(&path, 64 * MIB).expect("a file");
            path
        };
        let paths = (0..3).map(file).collect();
        Self(folder, paths)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn memory_drives_of_all_kinds_take_any_load() {
    for (made, level, verify) in [
        (Made::Null, Some(Level::Raid6), false),
        (Made::Ram, Some(Level::Raid5), true),
        (Made::Model(Profile::SN861), None, false),
    ] {
        let count = if level.is_some() { 4 } else { 1 };
        let case = Case { level, count, made, write_percent: 50, depth: 16, ..Case::RAW };
        let wish = Wish { verify, ..wish(case, Bay::Made(made, count, Some(64 * MIB))) };
        let outcome = check(&wish);
        assert_eq!(outcome.wrong, verify.then_some(0));
        assert_eq!(outcome.case.starts_with("raid"), level.is_some());
    }
}

#[test]
fn files_are_left_as_empty_as_they_were() {
    let files = Files::new("empty");
    let case = Case {
        level: Some(Level::Raid5),
        made: Made::Real,
        count: 3,
        write_percent: 100,
        ..Case::RAW
    };
    let wish = wish(Case { depth: 4, ..case }, Bay::Paths(files.1.clone()));
    check(&wish);
    // The labels of the first run are gone, or this one would be refused.
    check(&wish);
}

#[test]
fn drives_that_hold_something_are_refused_and_left_alone() {
    let files = Files::new("full");
    let mut data = std::fs::read(&files.1[1]).expect("a file");
    data[5 * MIB as usize] = 1;
    std::fs::write(&files.1[1], &data).expect("a file");
    for (level, write_percent) in [(Some(Level::Raid5), 0), (None, 100)] {
        let case = Case { level, made: Made::Real, count: 3, write_percent, depth: 4, ..Case::RAW };
        let paths = if level.is_some() { files.1.clone() } else { vec![files.1[1].clone()] };
        let why = run(&wish(case, Bay::Paths(paths)), |_| ()).expect_err("it holds something");
        assert!(why.contains("is not empty") && why.contains("drive1"), "{why}");
    }
    assert!(std::fs::read(&files.1[1]).expect("a file") == data);
    // Reading harms nothing.
    let case = Case { made: Made::Real, depth: 4, ..Case::RAW };
    check(&wish(case, Bay::Paths(vec![files.1[1].clone()])));
}

#[test]
fn what_does_not_fit_is_refused() {
    let bay = Bay::Made(Made::Null, 1, Some(MIB));
    let why = run(&wish(Case { bytes: 2 << 20, ..Case::RAW }, bay), |_| ()).expect_err("too large");
    assert!(why.contains("do not fit"), "{why}");
}

#[test]
fn edges_are_whole_and_do_not_overlap() {
    for bytes in [4096, 16 * MIB, 17 * MIB, 32 * MIB, 100 * MIB + 4096] {
        let pieces = edges(bytes, 4096);
        let total: u64 = pieces.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(total, bytes.min(32 * MIB), "{bytes}");
        assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{bytes}");
        assert_eq!(pieces.last().map(|(at, len)| at + len), Some(bytes));
    }
}

#[test]
fn latency_is_that_of_the_histogram() {
    let histogram = Histogram::default();
    assert_eq!(Latency::of(&histogram.counts()), None);
    histogram.record(1000, 10);
    let latency = Latency::of(&histogram.counts()).expect("it counted");
    assert!((latency.mean_us - 1.0).abs() < 1e-9 && latency.max_us < 1.04);
}
