//! `strake wait`: until an array has reached a goal.

use crate::args::{Goal, WaitArgs};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::WATCH_INTERVAL;
use crate::output::{Output, printable, tell};
use crate::tables;
use crate::watch::{Absence, reopened};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use strake_api::v1::{Array, Progress, WatchArrayRequest};
use strake_terminal::limits::WIDTH;
use strake_terminal::text::head;
use tonic::Streaming;

/// Where an array stands with respect to a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There.
    Reached,
    /// On its way, or not yet.
    Waiting,
    /// It is stalled, and goes on only when the operator acts.
    Halted,
    /// It cannot get there: data or the array is gone.
    Lost,
}

/// Where `array` stands with respect to `goal`.
///
/// [`Goal::Rebuild`] is reached when no member is being rebuilt; whether that is a success, [`Rebuilds`] tells.
#[must_use]
pub fn standing(array: &Array, goal: Goal) -> Standing {
    let is = |state: &str| array.states.iter().any(|s| s == state);
    if is("lost") {
        return Standing::Lost;
    }
    if !is("online") {
        return Standing::Waiting;
    }
    let runs = |job: &str| array.progress.iter().any(|p| p.job == job);
    let halted = |job: &str| array.progress.iter().any(|p| p.job == job && p.state == "halted");
    let rebuilding = is("rebuilding") || array.members.iter().any(|m| m.state == "rebuilding");
    let rebuild_halted = is("rebuild_halted") || halted("rebuild");
    let replacing = runs("replace") || array.members.iter().any(|m| !m.replacement.is_empty());
    let resyncing = is("resyncing") || runs("resync");
    let initializing = is("initializing") || runs("initialize");
    let whole = array.members.iter().all(|m| m.state == "in_sync") && !is("degraded");
    let (reached, stands_still) = match goal {
        Goal::Rebuild => (!rebuilding && !rebuild_halted, rebuild_halted),
        Goal::Replace => (!replacing, halted("replace")),
        Goal::Resync => (!resyncing && !initializing, halted("resync") || halted("initialize")),
        Goal::Initialize => (!initializing, halted("initialize")),
        Goal::Scrub => (!runs("scrub"), false),
        Goal::Healthy => {
            let busy = rebuilding || replacing || resyncing || initializing;
            // Nothing but a repair puts right what a scrub left, and nothing but a person accepts what is in doubt.
            let corrupt = ["corrupt", "in_doubt", "suspect", "unverified"].into_iter().any(is);
            let stuck = corrupt && array.progress.is_empty();
            (whole && !busy && !is("no_redundancy") && !corrupt, rebuild_halted || stuck)
        }
        Goal::Online => (true, false),
    };
    match (reached, stands_still) {
        (true, _) => Standing::Reached,
        (false, true) => Standing::Halted,
        (false, false) => Standing::Waiting,
    }
}

/// What a wait for a rebuild has seen: a rebuild that ended is not one that succeeded.
#[derive(Clone, Debug, Default)]
pub struct Rebuilds {
    /// Members that were being rebuilt at some time.
    seen: BTreeSet<u32>,
}

impl Rebuilds {
    /// Takes note of an answer.
    pub fn note(&mut self, array: &Array) {
        let rebuilding = array.members.iter().filter(|m| m.state == "rebuilding");
        self.seen.extend(rebuilding.map(|m| m.position));
    }

    /// Why the end of the rebuild is no success, when `array` is the last answer: a member that was being rebuilt is
    /// not in sync, or none was and the array lacks one all the same.
    #[must_use]
    pub fn failure(&self, array: &Array) -> Option<String> {
        let out = array.members.iter().filter(|m| m.state != "in_sync");
        let mut out = out.filter(|m| self.seen.is_empty() || self.seen.contains(&m.position));
        let member = out.next()?;
        let was = if self.seen.is_empty() { "is not being rebuilt" } else { "was being rebuilt" };
        Some(format!("member {} {was} and is {}", member.position, member.state))
    }
}

/// Waits, showing progress on standard error, and prints the array at the end.
///
/// # Errors
/// When the daemon cannot be reached or goes away, or the array does not exist or is taken away.
pub async fn run(arguments: &WaitArgs, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let interval_us = u64::try_from(WATCH_INTERVAL.as_micros()).unwrap_or(u64::MAX);
    let arrays = Connection::open(socket).await?.arrays();
    let open = async || {
        let request = WatchArrayRequest { name: arguments.name.clone(), interval_us };
        Ok(arrays.clone().watch_array(request).await?.into_inner())
    };
    let mut changes = open().await?;
    let mut shown = Shown::of(out);
    let mut last = None;
    let mut rebuilds = Rebuilds::default();
    let mut absence = Absence::default();
    let watching = async {
        loop {
            let seen = |array: &Array| rebuilds.note(array);
            match until(&mut changes, arguments.goal, &mut shown, &mut last, seen).await {
                Err(error) => {
                    absence.noted(error)?;
                    changes = reopened(&open, &mut absence).await?;
                    absence.ended();
                }
                ended => return ended,
            }
        }
    };
    let ended = match arguments.timeout {
        None => watching.await?,
        Some(limit) => match tokio::time::timeout(limit, watching).await {
            Ok(ended) => ended?,
            Err(_) => Standing::Waiting,
        },
    };
    shown.end();
    if let Some(array) = &last {
        out.print(array, tables::array::line)?;
    }
    let name = &arguments.name;
    let failed = last.as_ref().filter(|_| ended == Standing::Reached);
    let failed = failed.filter(|_| arguments.goal == Goal::Rebuild);
    if let Some(why) = failed.and_then(|array| rebuilds.failure(array)) {
        tell(format_args!("strake: {name}: not rebuilt: {why}: strake array show {name}"));
        return Ok(Exit::Degraded);
    }
    if let Some(array) = last.as_ref().filter(|_| ended == Standing::Reached)
        && arguments.goal == Goal::Scrub
        && is_corrupt(array)
    {
        tell(format_args!("strake: {name}: {CORRUPT}: strake array scrub show {name}"));
        return Ok(Exit::Degraded);
    }
    match ended {
        Standing::Reached => Ok(Exit::Fine),
        Standing::Lost => Ok(Exit::Failed),
        Standing::Halted => {
            let reason = last.map_or_else(String::new, |array| why_halted(&array).to_owned());
            tell(format_args!("strake: {name}: needs an action to continue: {reason}"));
            Ok(Exit::Degraded)
        }
        Standing::Waiting => {
            tell(format_args!(
                "strake: {name}: timed out before the goal was reached: strake array show {name}"
            ));
            Ok(if last.is_some() { Exit::Degraded } else { Exit::Unknown })
        }
    }
}

/// Why an array with findings of a scrub is not healthy.
const CORRUPT: &str = "a scrub found corrupt data that are not repaired";

fn is_corrupt(array: &Array) -> bool {
    array.states.iter().any(|state| state == "corrupt")
}

/// Why an array does not reach the goal without the operator.
fn why_halted(array: &Array) -> &str {
    let is = |word: &str| array.states.iter().any(|state| state == word);
    if !array.reason.is_empty() {
        return &array.reason;
    }
    let halted = is("rebuild_halted") || array.progress.iter().any(|p| p.state == "halted");
    match () {
        () if halted => "a job was halted",
        () if is_corrupt(array) => CORRUPT,
        () if is("in_doubt") => "blocks of a member may have been reconstructed wrongly",
        () if is("suspect") => "blocks of a member were computed from inconsistent stripes",
        () if is("unverified") => "redundancy was not verified after a crash",
        () => "a job was halted",
    }
}

/// Reads answers until one settles the matter, leaving the latest in `last`.
pub(crate) async fn until(
    changes: &mut Streaming<Array>,
    goal: Goal,
    shown: &mut Shown,
    last: &mut Option<Array>,
    mut seen: impl FnMut(&Array),
) -> Result<Standing, CliError> {
    while let Some(array) = changes.message().await? {
        seen(&array);
        let standing = standing(&array, goal);
        shown.show(&array);
        *last = Some(array);
        if standing != Standing::Waiting {
            return Ok(standing);
        }
    }
    Err(CliError::from(tonic::Status::unavailable(
        "the daemon ended the watch: the array was removed, or the daemon stopped; see strake status",
    )))
}

/// What a person has been shown so far.
pub(crate) struct Shown {
    terminal: bool,
    quiet: bool,
    last: String,
}

impl Shown {
    pub(crate) fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, quiet: false, last: String::new() }
    }

    /// Shows nothing if `out` prints nothing.
    pub(crate) fn of(out: &Output) -> Self {
        Self { quiet: out.is_quiet(), ..Self::new() }
    }

    /// Shows how far `array` is: rewrites its line on a terminal; elsewhere prints one when it says something new.
    pub(crate) fn show(&mut self, array: &Array) {
        if self.quiet {
            return;
        }
        if self.terminal {
            self.last = moment(array, screen_width());
            // Carriage return and "erase to the end of the line" (ECMA-48 EL).
            let mut stderr = std::io::stderr();
            // As with tell(): a terminal that is gone ends nothing.
            let _ = write!(stderr, "\r\x1b[K{}", self.last).and_then(|()| stderr.flush());
            return;
        }
        let news = milestone(array);
        if news != self.last {
            tell(&news);
            self.last = news;
        }
    }

    /// Leaves the cursor on a fresh line.
    pub(crate) fn end(&mut self) {
        if self.terminal && !self.last.is_empty() {
            tell("");
        }
    }
}

/// Columns of the terminal that progress is shown on, which is that of standard error.
fn screen_width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |w| w.ws_col);
    if columns == 0 { WIDTH } else { usize::from(columns) }
}

/// The line of this moment, in less than `width` columns: one that is folded by the terminal cannot be rewritten.
#[must_use]
pub fn moment(array: &Array, width: usize) -> String {
    let jobs: Vec<String> =
        array.progress.iter().map(|p| format!("{} {}", p.job, tables::job::progress(p))).collect();
    let text = match jobs.is_empty() {
        true => format!("{}: {}", array.name, array.states.join(" ")),
        false => format!("{}: {}", array.name, jobs.join("; ")),
    };
    head(&printable(&text), width.saturating_sub(1))
}

/// The line that changes with states and with every tenth of a job: what a log wants.
#[must_use]
pub fn milestone(array: &Array) -> String {
    let tenth = |p: &Progress| {
        let state = if ["", "running"].contains(&p.state.as_str()) { "" } else { &p.state };
        let tenth = tables::job::percent(p) / 10 * 10;
        format!(", {} {tenth}% {state}", p.job).trim_end().to_owned()
    };
    let jobs: String = array.progress.iter().map(tenth).collect();
    format!("{}: {}{jobs}", array.name, array.states.join(" "))
}

#[cfg(test)]
mod tests {
    use super::{CORRUPT, Rebuilds, why_halted};
    use strake_api::v1::{Array, Member};

    fn array(states: &[&str]) -> Array {
        let member = |(at, state): (usize, &&str)| Member {
            position: at as u32,
            state: (*state).to_owned(),
            ..Member::default()
        };
        let members = states.iter().enumerate().map(member).collect();
        Array { members, ..Array::default() }
    }

    /// The story: `strake wait --for healthy` on an array with findings of a scrub said that a job was halted.
    #[test]
    fn the_reason_why_an_array_stays_unhealthy_is_true() {
        let with = |states: &[&str], reason: &str| {
            let states = states.iter().map(|state| (*state).to_owned()).collect();
            Array { states, reason: reason.to_owned(), ..Array::default() }
        };
        assert_eq!(why_halted(&with(&["online", "corrupt"], "")), CORRUPT);
        assert_eq!(why_halted(&with(&["online", "corrupt"], "a drive")), "a drive");
        assert_eq!(why_halted(&with(&["rebuild_halted", "corrupt"], "")), "a job was halted");
        assert!(why_halted(&with(&["online", "unverified"], "")).contains("not verified"));
    }

    /// The story: the target of a rebuild was pulled in the middle. The rebuild was over, so `strake wait --for
    /// rebuild` ended with 0, and a script went on to pull the next drive.
    #[test]
    fn a_rebuild_that_ended_without_its_member_in_sync_is_a_failure() {
        let check = |seen: &[&[&str]], last: &[&str], failure: Option<&str>| {
            let mut rebuilds = Rebuilds::default();
            seen.iter().for_each(|states| rebuilds.note(&array(states)));
            let reported = rebuilds.failure(&array(last));
            match failure {
                None => assert_eq!(reported, None, "{seen:?} {last:?}"),
                Some(words) => {
                    assert!(reported.as_ref().is_some_and(|t| t.contains(words)), "{reported:?}");
                }
            }
        };
        let (whole, out) = (["in_sync", "in_sync"], ["in_sync", "missing"]);
        let rebuilding = ["in_sync", "rebuilding"];
        check(&[&rebuilding], &whole, None);
        check(&[&rebuilding], &out, Some("member 1 was being rebuilt and is missing"));
        check(&[&rebuilding, &out], &["in_sync", "faulty"], Some("is faulty"));
        check(&[], &whole, None);
        check(&[], &out, Some("member 1 is not being rebuilt and is missing"));
        // Another member without a drive is not what was waited for.
        check(&[&["rebuilding", "missing"]], &["in_sync", "missing"], None);
    }
}
