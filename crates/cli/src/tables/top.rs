//! The screen of `strake top`.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::Serialize;
use strake_api::v1::{Array, Problem};
use strake_terminal::text;

use super::{job, rates};
use crate::rates::{ArrayRates, Report};

/// What the screen shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shown {
    /// The rates since the look before.
    pub report: Report,
    /// All arrays, with their jobs.
    pub arrays: Vec<Array>,
    /// The problems of all objects.
    pub problems: Vec<Problem>,
    /// True if the daemon does not answer: the rest is from before.
    pub is_old: bool,
}

/// The order of arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Most requests first.
    #[default]
    Requests,
    /// Most bytes first.
    Bytes,
    /// Longest mean latency first.
    Latency,
    /// By name.
    Name,
}

/// What the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The order of arrays.
    pub sort: Sort,
    /// The members are shown too.
    pub members: bool,
    /// Nothing new is shown.
    pub paused: bool,
}

impl View {
    /// The view after a key was pressed; `None` if the key ends the command. Other keys change nothing.
    #[must_use]
    pub fn after(self, key: u8) -> Option<Self> {
        Some(match key {
            b'q' | b'Q' => return None,
            b'm' => Self { members: !self.members, ..self },
            b' ' => Self { paused: !self.paused, ..self },
            b's' => Self { sort: self.sort.next(), ..self },
            _ => self,
        })
    }
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Requests => Self::Bytes,
            Self::Bytes => Self::Latency,
            Self::Latency => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Latency => "latency",
            Self::Name => "name",
        }
    }

    fn order(self, one: &ArrayRates, other: &ArrayRates) -> Ordering {
        let value = |array: &ArrayRates| match self {
            Self::Requests => array.reads_per_s + array.writes_per_s,
            Self::Bytes => array.read_bytes_per_s + array.write_bytes_per_s,
            Self::Latency => array.read_ms.unwrap_or(0.0).max(array.write_ms.unwrap_or(0.0)),
            Self::Name => 0.0,
        };
        value(other).total_cmp(&value(one)).then_with(|| one.name.cmp(&other.name))
    }
}

/// The screen in `width` columns. What does not fit into a line is cut.
#[must_use]
pub fn screen(shown: &Shown, view: View, width: usize) -> String {
    let Shown { report, arrays, problems, .. } = shown;
    let mut out = title(shown, view);
    out.push_str("\n\n");
    let mut report = report.clone();
    report.arrays.sort_by(|one, other| view.sort.order(one, other));
    out.push_str(&rates::report(&report, view.members, width));
    let jobs = arrays.iter().flat_map(|array| array.progress.iter().map(move |job| (array, job)));
    for (at, (array, progress)) in jobs.enumerate() {
        let before = if at == 0 { "\n" } else { "" };
        let _ =
            writeln!(out, "{before}{}/{} {}", array.name, progress.job, job::progress(progress));
    }
    for (at, problem) in problems.iter().enumerate() {
        let before = if at == 0 { "\n" } else { "" };
        let _ = writeln!(out, "{before}{} {}: {}", problem.severity, problem.object, problem.what);
    }
    out.push_str("\nq quit  m members  s sort  space pause\n");
    out.lines().map(|line| text::head(line, width) + "\n").collect()
}

fn title(shown: &Shown, view: View) -> String {
    let count = shown.report.arrays.len();
    let mut out = format!(
        "strake top: {}, {:.1} s, sorted by {}",
        super::count(count as u64, "array"),
        shown.report.seconds,
        view.sort.word()
    );
    if view.paused {
        out.push_str(", paused");
    }
    if shown.is_old {
        out.push_str("; the daemon does not answer, waiting for it");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Shown, Sort, View, screen};
    use crate::rates::{ArrayRates, MemberRates, Report};
    use strake_api::v1::{Array, Problem, Progress};

    fn array(name: &str, reads_per_s: f64, read_bytes_per_s: f64, read_ms: f64) -> ArrayRates {
        let member = MemberRates {
            position: 0,
            path: "/dev/nvme0n1".into(),
            reads_per_s,
            ..MemberRates::default()
        };
        ArrayRates {
            name: name.into(),
            reads_per_s,
            read_bytes_per_s,
            read_ms: Some(read_ms),
            members: vec![member],
            ..ArrayRates::default()
        }
    }

    fn shown() -> Shown {
        let arrays = vec![
            array("slow", 10.0, 3e6, 9.0),
            array("busy", 5000.0, 2e6, 0.1),
            array("wide", 20.0, 9e6, 0.3),
        ];
        let progress = Progress {
            job: "rebuild".into(),
            state: "running".into(),
            done_bytes: 50,
            total_bytes: 100,
            ..Progress::default()
        };
        Shown {
            report: Report { seconds: 2.0, arrays },
            arrays: vec![Array {
                name: "wide".into(),
                progress: vec![progress],
                ..Array::default()
            }],
            problems: vec![Problem {
                object: "array/wide".into(),
                severity: "degraded".into(),
                what: "member 1 is missing".into(),
                ..Problem::default()
            }],
            is_old: false,
        }
    }

    #[test]
    fn the_screen_has_rates_jobs_and_problems() {
        let text = screen(&shown(), View::default(), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "strake top: 3 arrays, 2.0 s, sorted by requests",
                "",
                "ARRAY     R/S  W/S  RMIB/S  WMIB/S   R_MS  W_MS",
                "busy   5000.0  0.0    1.91    0.00  0.100     -",
                "wide     20.0  0.0    8.58    0.00  0.300     -",
                "slow     10.0  0.0    2.86    0.00  9.000     -",
                "",
                "wide/rebuild [#######.......] 50%, 50 B of 100 B",
                "",
                "degraded array/wide: member 1 is missing",
                "",
                "q quit  m members  s sort  space pause",
            ]
        );
        let members = screen(&shown(), View { members: true, ..View::default() }, 80);
        assert!(members.contains("\nbusy/0 "), "{members}");
        let lost = Shown { is_old: true, ..shown() };
        let text = screen(&lost, View { paused: true, ..View::default() }, 120);
        assert!(text.starts_with(
            "strake top: 3 arrays, 2.0 s, sorted by requests, paused; the daemon does"
        ));
        assert!(screen(&Shown::default(), View::default(), 80).contains("No running arrays."));
    }

    #[test]
    fn each_order_begins_with_its_largest_array() {
        let first = |sort| {
            let text = screen(&shown(), View { sort, ..View::default() }, 80);
            let lines = text.lines().skip(3).take(3);
            lines
                .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(first(Sort::Requests), ["busy", "wide", "slow"]);
        assert_eq!(first(Sort::Bytes), ["wide", "slow", "busy"]);
        assert_eq!(first(Sort::Latency), ["slow", "wide", "busy"]);
        assert_eq!(first(Sort::Name), ["busy", "slow", "wide"]);
    }

    #[test]
    fn no_line_is_longer_than_the_screen() {
        for width in [20, 40, 80] {
            let text = screen(&shown(), View { members: true, ..View::default() }, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn keys_change_the_view_and_one_ends_the_command() {
        let view = View::default();
        let pressed = |keys: &[u8]| keys.iter().try_fold(view, |view, key| view.after(*key));
        assert_eq!(pressed(b"q"), None);
        assert_eq!(pressed(b"xm"), Some(View { members: true, ..view }));
        assert_eq!(pressed(b"mm ssss "), Some(view));
        assert_eq!(pressed(b"s"), Some(View { sort: Sort::Bytes, ..view }));
    }
}
