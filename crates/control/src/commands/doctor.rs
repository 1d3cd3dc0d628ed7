//! Checks for faults and risks of arrays, drives, exports and the host, with remedies.

use std::collections::BTreeMap;

use strake_api::v1::{
    AddHostRequest, Array, DoctorCheck, DoctorReport, Drive, Hook, ListEventsRequest, Problem,
    ReleaseExportRequest, SetArrayRequest, StartDaemon, TestHookRequest,
};
use strake_units::MemberSet;
use strake_wording::{Text, replace, say, show};

use crate::commands::pools::Pools;
use crate::control::Control;
use crate::error::ControlError;
use crate::exports::exposure::exposed;
use crate::finding::{Finding, check, fine};
use crate::hooks::refusals;
use crate::manager::Manager;
use crate::measures::Measure;
use crate::policy::advice::spare_next;
use crate::policy::spares::fits;
use crate::record::access::{Before, Exposure};
use crate::remedy::{job, state_remedy};

mod machine;
mod pools;

/// Percentage of the rated endurance from which a drive should be replaced soon.
const WEAR_WARNING: u32 = 90;

/// Percentage of the rated endurance at which the rating ends.
const WEAR_FAILED: u32 = 100;

/// Temperature in degrees Celsius from which drives slow down or fail early. The usual operating limit is 70.
const TEMPERATURE_WARNING: i32 = 70;

/// Converts a problem into a check.
fn of_problem(name: String, finding: Finding, problem: Problem) -> (Finding, DoctorCheck) {
    let Problem { what, next_action: words, remedy: parts, .. } = problem;
    check(name, finding, what, Text { words, parts })
}

type Checks = Vec<(Finding, DoctorCheck)>;

impl Control {
    /// Runs all checks.
    ///
    /// # Errors
    /// If an earlier command panicked.
    pub fn doctor(&self) -> Result<DoctorReport, ControlError> {
        let (mut checks, hooks, alerts) =
            self.with(|m| (all_checks(m), hooks_of(m), m.hooks.alerts.clone()))?;
        // These access drives and files, so the lock is not held.
        let refusals: BTreeMap<String, String> = refusals(&alerts).into_iter().collect();
        let of_hook =
            |(hook, fails): &(Hook, bool)| of_hook(hook, *fails, refusals.get(&hook.name));
        checks.extend(hooks.iter().map(of_hook));
        let drives = self.list_drives()?;
        checks.extend(drives.iter().flat_map(of_drive));
        let pools = Pools::of(self).list_pools()?.pools;
        checks.extend(pools.iter().map(pools::of_pool));
        let arrays = self.with(|m| m.arrays())?;
        checks.extend(arrays.iter().filter_map(|array| of_neighbours(array, &drives)));
        let host = self.with(|m| m.drives.machine().clone())?;
        checks.extend(machine::checks(&host));
        let worst = checks.iter().map(|(finding, _)| *finding).max().unwrap_or(Finding::Ok);
        // Problems come first. Among equal results, checks about data come first.
        checks.sort_by_key(|(finding, _)| std::cmp::Reverse(*finding));
        let health = match worst {
            Finding::Ok => "ok",
            Finding::Warning => "degraded",
            Finding::Failed => "failed",
        };
        let checks = checks.into_iter().map(|(_, check)| check).collect();
        Ok(DoctorReport { health: health.to_owned(), checks })
    }
}

fn all_checks(manager: &mut Manager) -> Checks {
    let mut checks = Checks::new();
    for array in manager.arrays() {
        checks.extend(of_array(&array));
        checks.extend(of_spares_for(manager, &array));
    }
    checks.extend(of_spares(manager));
    for export in manager.exports() {
        let name = format!("export/{}", export.name);
        checks.push(match (export.state.as_str(), export.reason.as_str()) {
            ("online", "") => fine(name, format!("offered on {}", export.listen)),
            ("online", _) => {
                let release = ReleaseExportRequest { name: export.name };
                let next =
                    say("read the reason; if the hosts that hold reservations will not return: ")
                        .run(release);
                check(name, Finding::Warning, export.reason, next)
            }
            _ => check(name, Finding::Failed, export.reason, show(&export.array)),
        });
    }
    let exposed = exposed(&manager.records).into_iter();
    checks.extend(exposed.map(|(name, what, next)| {
        check(format!("export/{name} network"), Finding::Warning, what, next)
    }));
    let hosts = manager.records.hosts.iter().filter(|host| host.is_locked());
    checks.extend(hosts.map(|host| {
        let what =
            "the secret or key of this host is not set on this daemon, so the host cannot connect";
        let add = AddHostRequest { nqn: host.nqn.clone(), ..Default::default() };
        check(format!("host {}", host.nqn), Finding::Warning, what, add)
    }));
    checks.extend(of_daemon(manager));
    checks
}

/// Returns the hooks, and whether each fails.
fn hooks_of(manager: &Manager) -> Vec<(Hook, bool)> {
    let hooks = manager.list_hooks().hooks.into_iter();
    hooks.map(|hook| (hook.clone(), manager.hooks.is_failing(&hook))).collect()
}

fn of_spares(manager: &Manager) -> Checks {
    let spares = manager.list_spares().spares.into_iter();
    spares
        .map(|spare| {
            let name = format!("spare {}", spare.path);
            if spare.state == "ready" {
                return fine(name, "ready");
            }
            check(name, Finding::Warning, spare.note, spare_next(&spare.path))
        })
        .collect()
}

/// Checks that a spare is available for a failure of a member of `array`.
fn of_spares_for(manager: &Manager, array: &Array) -> Option<(Finding, DoctorCheck)> {
    let running = manager.running_of(&array.uuid)?;
    let status = running.array.status();
    if status.geometry.redundancy(MemberSet::EMPTY).is_none_or(|redundancy| redundancy == 0) {
        return None;
    }
    let name = format!("array/{} spares", array.name);
    let ready = manager.records.spares.iter().filter(|spare| {
        let own = spare.array.is_empty() || spare.array == array.uuid;
        own && manager.spares.ready(spare).is_some_and(|drive| fits(&status, drive).is_ok())
    });
    let count = ready.count();
    Some(match (count, manager.records.settings(&array.uuid).auto_replace) {
        // Not every array needs one.
        (0, _) => fine(name, "none configured"),
        (_, false) => {
            let name_of = array.name.clone();
            let next =
                SetArrayRequest { name: name_of, auto_replace: Some(true), ..Default::default() };
            check(name, Finding::Warning, "spares are not used automatically", next)
        }
        (count, true) => fine(name, format!("ready: {count}")),
    })
}

fn of_daemon(manager: &Manager) -> Checks {
    let mut checks = Checks::new();
    let dir = manager.records.store.dir();
    let name = "daemon state directory";
    let trouble = manager
        .state_trouble()
        .or_else(|| manager.records.store.prepare(&manager.records).err().map(|error| error.what));
    checks.push(match trouble {
        Some(why) => {
            let next = format!("free space in {}, or make the directory writable", dir.display());
            check(name, Finding::Failed, why, next)
        }
        None => machine::space(name, dir),
    });
    if let Some(what) = manager.state_lost() {
        checks.push(check("daemon configuration", Finding::Failed, what, state_remedy()));
    }
    checks.push(of_access(manager));
    checks.extend(manager.options.measures.iter().map(Measure::checked));
    checks.push(if manager.records.store.was_unclean() {
        let what = "the previous daemon was not shut down cleanly";
        let last = ListEventsRequest { last: 50, ..Default::default() };
        check("daemon last stop", Finding::Warning, what, last)
    } else {
        fine("daemon last stop", "clean")
    });
    for core in manager.daemon("", 0, 0).cores {
        let name = format!("daemon core {}", core.index);
        checks.push(if core.notice.is_empty() {
            fine(name, "CPU assignment in effect")
        } else {
            let other = StartDaemon { cores: "CPUS".to_owned(), ..StartDaemon::default() };
            check(name, Finding::Warning, core.notice, say("choose other CPUs: ").run(other))
        });
    }
    checks
}

/// Checks that only the user of the daemon can read the recorded secrets and change the state directory.
fn of_access(manager: &Manager) -> (Finding, DoctorCheck) {
    let name = "daemon state access";
    let store = &manager.records.store;
    if let Some(Exposure { what, next }) = store.exposures().into_iter().next() {
        return check(name, Finding::Failed, what, next);
    }
    let (check_all, replace) = (
        "check the recorded arrays, exports, hosts, hooks and remote drives",
        "replace the secrets of hosts, hooks and remote drives",
    );
    let (done, next) = match store.before() {
        Before { writable: true, readable: true, .. } => (
            "read the recorded secrets and change the state",
            format!("{check_all}, and {replace}"),
        ),
        Before { writable: true, .. } => ("change the state", check_all.to_owned()),
        Before { readable: true, .. } => ("read the recorded secrets", replace.to_owned()),
        Before { .. } => {
            return fine(name, "only the user of the daemon can read secrets and write");
        }
    };
    let what = format!("before this start of the daemon, other users could {done}");
    check(name, Finding::Warning, what, next)
}

fn of_array(array: &Array) -> Checks {
    let Array { name, .. } = array;
    let mut checks = vec![of_redundancy(array)];
    if let Some(found) = crate::view::array::problem_of_scrub(array) {
        let name = format!("array/{name} contents");
        checks.push(of_problem(name, Finding::Warning, found));
    }
    if let Some(copy) = crate::view::array::problem_of_copy(array) {
        let name = format!("array/{name} copy");
        checks.push(of_problem(name, Finding::Warning, copy));
    }
    for progress in &array.progress {
        let what = format!("array/{name} {}", progress.job);
        let resume = job("resume", format!("{name}/{}", progress.job));
        checks.push(match progress.state.as_str() {
            "halted" => {
                let stalled = "stopped: the bad block list is full";
                check(what, Finding::Failed, stalled, show(name))
            }
            "paused" => check(what, Finding::Warning, "is paused", resume),
            _ => fine(what, "continues"),
        });
    }
    if array.bad_blocks > 0 {
        let what = format!("{} blocks are unreadable", array.bad_blocks);
        let next =
            say("restore the blocks from a backup; ").run(show(name)).say(" lists the blocks");
        checks.push(check(format!("array/{name} blocks"), Finding::Failed, what, next));
    }
    for (state, problem) in crate::view::doubt::problems(array) {
        checks.push(of_problem(format!("array/{name} {state}"), Finding::Warning, problem));
    }
    if array.in_doubt_bytes > 0 {
        let what =
            format!("{} may contain wrong blocks", strake_units::ByteSize(array.in_doubt_bytes));
        let next = crate::policy::advice::in_doubt_next(name);
        checks.push(check(format!("array/{name} doubt"), Finding::Failed, what, next));
    }
    for member in &array.members {
        let name = format!("array/{name} member {}", member.position);
        let next = replace(&array.name, Some(member.position), "");
        if member.sitting_out {
            let what = format!(
                "{} is much slower than the other members, so reads avoid this member",
                member.path
            );
            checks.push(check(name.clone(), Finding::Warning, what, next.clone()));
        }
        let errors = member.errors.unwrap_or_default();
        let count = errors.medium + errors.timeouts + errors.device;
        if count > 0 && member.state == "in_sync" {
            let what = format!(
                "{}: {} unreadable blocks, {} time-outs and {} other errors since the daemon started",
                member.path, errors.medium, errors.timeouts, errors.device
            );
            checks.push(check(name, Finding::Warning, what, next));
        }
    }
    checks
}

fn of_redundancy(array: &Array) -> (Finding, DoctorCheck) {
    let name = format!("array/{} redundancy", array.name);
    match crate::view::array::problem_of_array(array) {
        Some(problem) if problem.severity == "failed" => of_problem(name, Finding::Failed, problem),
        Some(problem) => of_problem(name, Finding::Warning, problem),
        None => {
            let (members, left) = (array.members.len(), array.redundancy_left);
            let noun = if left == 1 { "failure" } else { "failures" };
            fine(name, format!("{members} members in sync, tolerates {left} {noun}"))
        }
    }
}

/// Checks a hook. `refusal` is the reason why its program would not run.
fn of_hook(hook: &Hook, fails: bool, refusal: Option<&String>) -> (Finding, DoctorCheck) {
    let name = format!("hook {}", hook.name);
    let next = TestHookRequest { name: hook.name.clone() };
    if let Some(why) = refusal {
        return check(name, Finding::Warning, format!("the program would not run: {why}"), next);
    }
    if !fails {
        return fine(name, format!("{} events delivered", hook.delivered));
    }
    check(name, Finding::Warning, format!("the last delivery failed: {}", hook.last_error), next)
}

fn of_drive(drive: &Drive) -> Checks {
    let mut checks = Checks::new();
    let name = |what: &str| format!("drive {} {what}", drive.path);
    let ours = !drive.array.is_empty() || !drive.spare_of.is_empty();
    if let Some(wear) = drive.wear_percent {
        let what = format!("{wear} % of its rated endurance is used");
        let next = "plan its replacement";
        checks.push(match wear {
            WEAR_FAILED.. if ours => check(name("wear"), Finding::Failed, what, next),
            WEAR_WARNING.. if ours => check(name("wear"), Finding::Warning, what, next),
            _ => fine(name("wear"), what),
        });
    }
    if let Some(temperature) = drive.temperature_c {
        let what = format!("{temperature} degrees Celsius");
        checks.push(if ours && temperature >= TEMPERATURE_WARNING {
            let next = "check fans and airflow";
            check(name("temperature"), Finding::Warning, what, next)
        } else {
            fine(name("temperature"), what)
        });
    }
    checks
}

/// Finds members of one array that are on one drive, or in one slot, because they fail together.
fn of_neighbours(array: &Array, drives: &[Drive]) -> Option<(Finding, DoctorCheck)> {
    let mine: Vec<&Drive> = drives.iter().filter(|d| d.array == array.name).collect();
    let together = mine.iter().enumerate().find_map(|(at, drive)| {
        let same = |other: &&&Drive| {
            (!drive.serial.is_empty() && other.serial == drive.serial)
                || (!drive.slot.is_empty() && other.slot == drive.slot)
        };
        mine[at + 1..].iter().find(same).map(|other| (drive.path.as_str(), other.path.as_str()))
    });
    let name = format!("array/{} placement", array.name);
    match together {
        Some((a, b)) => {
            let what = format!("{a} and {b} are in one drive or slot and can fail together");
            let next = Text::from(replace(&array.name, None, "")).say(" (in another slot)");
            Some(check(name, Finding::Warning, what, next))
        }
        None => None,
    }
}
