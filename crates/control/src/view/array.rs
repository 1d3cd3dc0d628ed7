//! Converts an array to a message: its state, members and jobs, and the advice.

use crate::policy::members::absent_members;
use std::time::Instant;

use strake_api::v1::{self as api, Problem};
use strake_engine::{
    ArrayStatus, Consistency, Forecast, MemberHealth, MemberStatus, ScrubState, ScrubStatus,
};
use strake_raid::{Condition, MemberState};
use strake_units::{ByteSize, Nanos};
use strake_wording::{Text, await_goal, replace, say, show, show_scrub};

use crate::limits::BAD_RANGES_MAX;
use crate::policy::advice::{cause_of, copy_next, in_doubt_next, lost_next};
use crate::record::store::ArrayRecord;
use crate::remedy::{job, problem, split};
use crate::state::meters::Meter;
use crate::state::offline::geometry_message;
use crate::state::running::Running;
use crate::state::start::Starting;
use crate::view::pool::slot_message;
use crate::view::stats::counters;

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Running,
    Paused,
    Halted,
    /// The job waits for other jobs, which run first.
    Waiting,
}

impl Pace {
    fn of(status: &ArrayStatus, halted: bool) -> Self {
        if halted {
            Self::Halted
        } else if status.maintenance.paused {
            Self::Paused
        } else {
            Self::Running
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Halted => "halted",
            Self::Waiting => "waiting",
        }
    }
}

fn progress(
    job: &str,
    of: strake_engine::Progress,
    pace: Pace,
    meter: &mut Meter,
) -> api::Progress {
    let forecast = if pace == Pace::Running {
        meter.note(Instant::now(), of.done_bytes)
    } else {
        meter.rest();
        Forecast::default()
    };
    let left = of.total_bytes.saturating_sub(of.done_bytes);
    api::Progress {
        job: job.to_owned(),
        done_bytes: of.done_bytes,
        total_bytes: of.total_bytes,
        rate_bytes_per_s: forecast.rate_bytes_per_s(),
        eta_s: forecast.left(left).map(|left| left.0.div_ceil(Nanos::SECOND.0)),
        state: pace.word().to_owned(),
        ..api::Progress::default()
    }
}

impl Running {
    /// Returns the array as a message; `exports` contains the names of its exports.
    pub(crate) fn view(&mut self, exports: Vec<String>) -> api::Array {
        let status = self.array.status();
        let mut jobs = Vec::new();
        match status.rebuild {
            Some(of) => {
                let pace = Pace::of(&status, status.rebuild_halted);
                jobs.push(progress("rebuild", of, pace, &mut self.meters.rebuild));
            }
            None => self.meters.rebuild = Meter::default(),
        }
        match status.replace {
            Some(of) => {
                let pace = Pace::of(&status, status.rebuild_halted);
                jobs.push(progress("replace", of, pace, &mut self.meters.replace));
            }
            None => self.meters.replace = Meter::default(),
        }
        let resync = if self.fresh { "initialize" } else { "resync" };
        match status.resync {
            Some(of) => {
                let pace = Pace::of(&status, status.resync_halted);
                jobs.push(progress(resync, of, pace, &mut self.meters.resync));
            }
            None => self.meters.resync = Meter::default(),
        }
        match status.scrub.and_then(|scrub| under_way(&status, &scrub)) {
            Some((of, pace)) => jobs.push(progress("scrub", of, pace, &mut self.meters.scrub)),
            None => self.meters.scrub = Meter::default(),
        }
        match &self.growth {
            Some(growth) => {
                let of = growth.progress();
                jobs.push(progress("grow", of, Pace::Running, &mut self.meters.grow));
            }
            None => self.meters.grow = Meter::default(),
        }
        let pool = slot_message(self).unwrap_or_default();
        let recovery = Some(self.recovery).filter(|recovery| recovery.crashed);
        api::Array {
            resync_bytes_at_start: self.resync_bytes_at_start,
            recovery: recovery.map_or_else(String::new, |recovery| recovery.to_string()),
            pool: pool.name,
            pool_state: pool.state,
            ..array_message(&status, self.fresh, jobs, exports)
        }
    }
}

/// The progress and the state of a scrub that has not ended; `None` if it has ended.
fn under_way(status: &ArrayStatus, scrub: &ScrubStatus) -> Option<(strake_engine::Progress, Pace)> {
    let of = strake_engine::Progress {
        done_bytes: scrub.counts.done(),
        total_bytes: status.geometry.capacity_blocks() << status.geometry.block_size().shift(),
    };
    let first = status.resync.is_some() || status.rebuild.is_some() || status.replace.is_some();
    match scrub.state {
        ScrubState::Running if status.maintenance.paused => Some((of, Pace::Paused)),
        ScrubState::Running if first => Some((of, Pace::Waiting)),
        ScrubState::Running => Some((of, Pace::Running)),
        ScrubState::Paused => Some((of, Pace::Paused)),
        ScrubState::Finished | ScrubState::Stopped => None,
    }
}

fn array_message(
    status: &ArrayStatus,
    fresh: bool,
    progress: Vec<api::Progress>,
    exports: Vec<String>,
) -> api::Array {
    let geometry = &status.geometry;
    let shift = geometry.block_size().shift();
    let absent = absent_members(status);
    let paused = progress.iter().find(|job| job.state == Pace::Paused.word());
    let (reason, next) = advice(status, paused.map(|job| job.job.as_str()));
    let (next_action, remedy) = split(next);
    api::Array {
        name: status.name.to_string(),
        uuid: status.uuid.to_string(),
        states: states(status, fresh),
        members: status.members.iter().enumerate().map(|(at, m)| member(at, m)).collect(),
        progress,
        redundancy_left: geometry.redundancy(absent).map_or(0, u32::from),
        generation: status.generation,
        memory_bytes: status.scratch_bytes,
        memory_huge_bytes: status.scratch_huge_bytes,
        counters: Some(counters(status)),
        exports,
        reason,
        next_action,
        remedy,
        format: status.format.version().into(),
        consistency: status.consistency.to_string(),
        consistency_wanted: status
            .consistency_wanted
            .map_or_else(String::new, |mode| mode.to_string()),
        guarantees: guarantees(status),
        bad_blocks: status.bad_ranges.iter().map(|&(_, bytes)| bytes >> shift).sum(),
        bad_ranges: (status.bad_ranges.iter().take(BAD_RANGES_MAX))
            .map(|&(offset_bytes, length_bytes)| api::ByteRange { offset_bytes, length_bytes })
            .collect(),
        in_doubt_bytes: status.in_doubt.iter().map(|&(_, bytes)| bytes).sum(),
        in_doubt_ranges: (status.in_doubt.iter().take(BAD_RANGES_MAX))
            .map(|&(offset_bytes, length_bytes)| api::ByteRange { offset_bytes, length_bytes })
            .collect(),
        ..geometry_message(geometry)
    }
}

/// Describes the effect of a crash on the array in its current state.
fn guarantees(status: &ArrayStatus) -> Vec<String> {
    let geometry = &status.geometry;
    let holds = "no acknowledged write is lost, neighbouring blocks in the same stripe keep their content, and each \
                 block in flight is either old or new, never mixed";
    let crash = "after a crash";
    if status.consistency == Consistency::None {
        return vec![format!("{crash}: nothing is guaranteed, and nothing is checked")];
    }
    if geometry.parity_strips() == 0 {
        return vec![format!(
            "{crash}, also while members are missing or if the crash costs members, as long as copies remain: {holds}"
        )];
    }
    let mut lines = vec![format!("{crash}: {holds}")];
    let out = absent_members(status);
    let damage = "neighbouring blocks in the same stripe may be damaged: then the array does not start \
        automatically, and the regions are listed";
    lines.push(match status.consistency {
        Consistency::None | Consistency::Resync => format!("{crash} while members are missing: {damage}"),
        Consistency::Safe | Consistency::Strict if out.is_subset(status.logged) => {
            format!("{crash} while members are missing: the same")
        }
        Consistency::Safe | Consistency::Strict => format!(
            "{crash} at this moment: {damage}; this applies until the writes that started before a member went out \
                have finished"
        ),
    });
    lines.push(match status.consistency {
        Consistency::Strict if status.consistency_wanted.is_none() => {
            let more = "; after a crash that costs several members: the same, or the array does not start \
                automatically and the regions are listed";
            let more = if geometry.parity_strips() > 1 { more } else { "" };
            format!("{crash} that costs a member as well: the same{more}")
        }
        Consistency::None | Consistency::Resync | Consistency::Safe | Consistency::Strict => {
            format!("{crash} that costs a member as well: {damage}")
        }
    });
    lines
}

fn states(status: &ArrayStatus, fresh: bool) -> Vec<String> {
    let mut conditions = status.conditions;
    if status.lost {
        conditions = conditions.with(Condition::Lost);
    }
    let mut words: Vec<String> = conditions
        .iter()
        .filter(|c| !(status.lost && *c == Condition::Online))
        .map(|c| c.word().to_owned())
        .collect();
    if status.rebuild_halted {
        words.push("rebuild_halted".to_owned());
    }
    if status.resync_halted {
        words.push("resync_halted".to_owned());
    }
    if !status.in_doubt.is_empty() {
        words.push("in_doubt".to_owned());
    }
    if status.resync.is_some() {
        words.push(if fresh { "initializing" } else { "resyncing" }.to_owned());
    }
    words
}

pub(crate) fn member(at: usize, status: &MemberStatus) -> api::Member {
    let state = match status.state {
        MemberState::InSync => "in_sync",
        MemberState::Rebuilding { .. } => "rebuilding",
        MemberState::Faulty => "faulty",
        MemberState::Missing => "missing",
    };
    api::Member {
        position: at as u32,
        uuid: status.uuid.to_string(),
        state: state.to_owned(),
        path: status.path.clone(),
        cause: cause_of(status),
        replacement: status.replacement.clone(),
        stale_bytes: status.stale_bytes,
        errors: Some(errors_of(&status.health)),
        sitting_out: status.health.sitting_out,
        ..api::Member::default()
    }
}

/// Converts the error counters of the drive of a member to a message.
pub(crate) fn errors_of(health: &MemberHealth) -> api::DriveErrors {
    api::DriveErrors {
        medium: health.medium,
        repaired: health.repaired,
        slow: health.slow,
        timeouts: health.timeouts,
        device: health.device,
        read_p50_us: health.read_p50.0 / 1000,
        read_p99_us: health.read_p99.0 / 1000,
        sit_outs: health.sit_outs,
    }
}

/// The reason why the array is not in its normal state, and the remedy. `paused` is the first paused job.
fn advice(status: &ArrayStatus, paused: Option<&str>) -> (String, Text) {
    let name = &status.name;
    if status.lost || status.conditions.contains(Condition::Lost) {
        let reason = "more members are absent than the level tolerates; nothing is served";
        return (reason.to_owned(), lost_next(name));
    }
    if status.rebuild_halted {
        let reason = "the rebuild stopped: the bad block list is full";
        let next = format!(
            "copy the data of array {name}, then replace the drives with unreadable blocks"
        );
        return (reason.to_owned(), say(next));
    }
    if status.resync_halted {
        let reason = "the resync stopped: the bad block list is full";
        let again = api::RebuildArrayRequest { name: name.to_string(), dry_run: false };
        return (reason.to_owned(), Text::from(show(name)).say("; to try again: ").run(again));
    }
    let is_out = |m: &MemberStatus| matches!(m.state, MemberState::Faulty | MemberState::Missing);
    let next = match status.members.iter().position(is_out) {
        Some(at) => replace(name, Some(at as u32), "").into(),
        None if let Some(paused) = paused => job("resume", format!("{name}/{paused}")).into(),
        None if status.rebuild.is_some() => await_goal(name, "rebuild").into(),
        None if status.replace.is_some() => await_goal(name, "replace").into(),
        None if !status.bad_ranges.is_empty() => {
            say("restore the content from a backup: writing repairs the blocks")
        }
        None => Text::default(),
    };
    (String::new(), next)
}

/// The reason why the copy of a member waits, if it waits.
pub(crate) fn problem_of_copy(array: &api::Array) -> Option<Problem> {
    let member = array.members.iter().find(|m| !m.replacement_waits.is_empty())?;
    let (name, path) = (&array.name, &member.replacement);
    let what = format!(
        "the copy of member {} to {path} waits: {}",
        member.position, member.replacement_waits
    );
    Some(problem(format!("array/{name}"), "degraded", what, copy_next(name, path)))
}

/// The problem that a scrub found and did not repair, if any.
pub(crate) fn problem_of_scrub(array: &api::Array) -> Option<Problem> {
    let corrupt = Some(array.corrupt_bytes).filter(|bytes| *bytes > 0)?;
    let name = &array.name;
    let what = format!("a scrub found {} corrupt, which are not repaired yet", ByteSize(corrupt));
    Some(problem(format!("array/{name}"), "degraded", what, show_scrub(name)))
}

/// The problem of regions in doubt in an array, if any.
pub(crate) fn problem_of_doubt(array: &api::Array) -> Option<Problem> {
    let bytes = Some(array.in_doubt_bytes).filter(|bytes| *bytes > 0)?;
    let name = &array.name;
    let what = format!(
        "after a crash, a member went out of use before parity was consistent; {} may contain wrong blocks",
        ByteSize(bytes)
    );
    Some(problem(format!("array/{name}"), "degraded", what, in_doubt_next(name)))
}

/// The problem of an array, if any.
pub(crate) fn problem_of_array(array: &api::Array) -> Option<Problem> {
    let is = |state: &str| array.states.iter().any(|s| s == state);
    let severity = if is("lost") || is("offline") || is("starting") {
        "failed"
    } else if array.bad_blocks > 0
        || !array.reason.is_empty()
        || is("degraded")
        || is("rebuild_halted")
        || is("resync_halted")
    {
        "degraded"
    } else {
        return None;
    };
    let out: Vec<String> = array
        .members
        .iter()
        .filter(|m| m.state == "faulty" || m.state == "missing")
        .map(|m| format!("member {} {}", m.position, m.state))
        .collect();
    let what = if !array.reason.is_empty() {
        array.reason.clone()
    } else if out.is_empty() && array.progress.is_empty() && array.bad_blocks > 0 {
        format!("{} blocks are lost", array.bad_blocks)
    } else if out.is_empty() {
        let job = array.progress.first();
        job.map_or_else(
            || "a member is being rebuilt".to_owned(),
            |p| {
                let (done, total) = (ByteSize(p.done_bytes), ByteSize(p.total_bytes));
                match p.state.as_str() {
                    "paused" => format!("the {} is paused, {done} of {total} done", p.job),
                    _ => format!("rebuilding, {done} of {total} done"),
                }
            },
        )
    } else {
        format!("{}; failures tolerated: {}", out.join(", "), array.redundancy_left)
    };
    Some(Problem {
        object: format!("array/{}", array.name),
        severity: severity.to_owned(),
        what,
        next_action: array.next_action.clone(),
        remedy: array.remedy.clone(),
    })
}

/// The message for a recorded array that is being started, or whose start is due.
pub(crate) fn being_started(
    record: &ArrayRecord,
    starting: Option<&Starting>,
    exports: Vec<String>,
) -> api::Array {
    let watch = api::WatchArrayRequest { name: record.name.clone(), interval_us: 0 };
    let (next_action, remedy) = split(say("wait; ").run(watch));
    api::Array {
        name: record.name.clone(),
        uuid: record.uuid.clone(),
        states: vec!["starting".to_owned()],
        reason: starting.map_or_else(|| "it is being started".to_owned(), Starting::words),
        next_action,
        remedy,
        settings: Some(record.settings.message()),
        waits: starting.map(Starting::waits).unwrap_or_default(),
        exports,
        ..api::Array::default()
    }
}
