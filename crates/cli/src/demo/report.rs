//! What the demo says: a paragraph per step for people, one line at the end for scripts.

use crate::output::{Format, Layout, json, tell};
use serde::Serialize;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// One word.
    pub name: String,
    /// What was done, and what came of it.
    pub what: String,
    /// How long it took.
    pub seconds: f64,
    /// Bytes moved for it, either way; 0 when that is not the point.
    pub bytes: u64,
    /// Millions of bytes per second.
    pub megabytes_per_s: f64,
    /// Requests per second; 0 when they were not counted.
    pub iops: f64,
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// True when every step worked and every byte was right.
    pub ok: bool,
    /// Bytes read and found to be what was written.
    pub verified_bytes: u64,
    /// Requests that failed and 4 KiB pieces that differed.
    pub errors: u64,
    /// Members that were replaced and are in sync.
    pub rebuilt_members: u32,
    /// Bytes that had to be resynchronized after the kill.
    pub resynchronized_bytes: u64,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// How long all of it took.
    pub seconds: f64,
    /// Why it ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Says what happens and remembers it.
pub struct Report {
    format: Format,
    began: Instant,
    step_began: Instant,
    summary: Summary,
}

/// How much a step moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes, either way.
    pub bytes: u64,
    /// Requests, 0 when they were not counted.
    pub requests: u64,
}

impl Report {
    /// A report that begins now. In [`Format::Json`] everything but the last line goes to standard error.
    #[must_use]
    pub fn new(format: Format) -> Self {
        let now = Instant::now();
        Self { format, began: now, step_began: now, summary: Summary::default() }
    }

    /// Says a line that is no step.
    pub fn say(&self, text: &str) {
        match self.format {
            Format::Table => answer(text),
            Format::Json => tell(text),
        }
    }

    /// The clock of the next step begins now, not when the last one was reported.
    pub fn begin(&mut self) {
        self.step_began = Instant::now();
    }

    /// A step is done: says what it did, how fast, and what to type on real drives.
    pub fn step(&mut self, name: &str, what: &str, moved: Moved, real: Option<&str>) {
        let step = step(name, what, self.step_began.elapsed(), moved);
        let number = self.summary.steps.len() + 1;
        self.say(&format!("{number:>2}. {what} ({})", pace(&step)));
        if let Some(command) = real {
            self.say(&format!("    on real drives: {command}"));
        }
        self.summary.steps.push(step);
        self.begin();
    }

    /// What is known so far, to be added to.
    pub const fn summary(&mut self) -> &mut Summary {
        &mut self.summary
    }

    /// Ends the report with its last line.
    pub fn end(mut self) -> Summary {
        self.summary.seconds = rounded(self.began.elapsed().as_secs_f64());
        let summary = self.summary;
        match self.format {
            Format::Table => answer(&format!("\n{}", sentence(&summary))),
            Format::Json => answer(&json(&summary, Layout::Line)),
        }
        summary
    }
}

/// A line on standard output. As with [`tell`], a reader that has gone does not end the demo, which has a daemon to
/// stop and files to remove.
fn answer(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn step(name: &str, what: &str, time: Duration, moved: Moved) -> Step {
    let seconds = time.as_secs_f64();
    let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    Step {
        name: name.to_owned(),
        what: what.to_owned(),
        seconds: rounded(seconds),
        bytes: moved.bytes,
        megabytes_per_s: rounded(per_second(moved.bytes) / 1e6),
        iops: per_second(moved.requests).round(),
    }
}

/// Three digits after the point are all that a person or a script needs.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// `2.0 s, 512 MB/s, 12000 IOPS`, as far as it was measured.
fn pace(step: &Step) -> String {
    let mut out = format!("{:.1} s", step.seconds);
    if step.bytes > 0 {
        out += &format!(", {:.0} MB/s", step.megabytes_per_s);
    }
    if step.iops > 0.0 {
        out += &format!(", {:.0} IOPS", step.iops);
    }
    out
}

/// The last line for people.
fn sentence(summary: &Summary) -> String {
    let verified = strake_units::ByteSize(summary.verified_bytes);
    match (&summary.error, summary.ok) {
        (None, true) => format!(
            "All of it worked: {verified} read back and compared, 0 errors, {} members rebuilt, {:.0} s.",
            summary.rebuilt_members, summary.seconds
        ),
        (Some(why), _) => format!("THE DEMO FAILED after {:.0} s: {why}", summary.seconds),
        (None, false) => {
            format!("THE DEMO FAILED: {} errors among {verified} compared.", summary.errors)
        }
    }
}
