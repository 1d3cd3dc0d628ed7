//! The program `strake-bench`: arguments in, measurements, the answer printed.

pub mod args;
pub mod failure;
mod load;
pub mod save;
pub mod tables;

use crate::net::Peer;
use crate::profile::Profile;
use crate::run::{Choice, Compare, RUNS, cold_bytes, run as run_goal};
use crate::scenario::Options;
use crate::{goals, machine, profile};
use args::{BenchRun, BenchVerb, Beside, BuiltIn, Cli};
use clap::{CommandFactory as _, Parser as _};
use failure::{Failure, USAGE};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;
use strake_parity::Kernel;
use strake_terminal::manual::{self, Sections};
use strake_terminal::output::{Output, tell_person};

/// Runs the command that `arguments` spell, the first of them being the program's own name, and returns the exit code.
/// Answers go to standard output, errors to standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help and version are answers; everything else that clap prints is a misuse.
        Err(error) => {
            // Nothing can be done when standard error itself is gone.
            let _ = error.print();
            return if error.use_stderr() { USAGE } else { 0 };
        }
    };
    match run(cli.verb, &Output::stdout(cli.output)) {
        Ok(()) => 0,
        Err(failure) => {
            tell_person(&format!("strake: {failure}"));
            failure.code()
        }
    }
}

fn run(verb: BenchVerb, out: &Output) -> Result<(), Failure> {
    match verb {
        BenchVerb::List => out.print(&list(), tables::list)?,
        BenchVerb::Run(arguments) => measure(&arguments, out)?,
        BenchVerb::Report { folder } => save::again(&folder, out)?,
        BenchVerb::Load(arguments) => load::run(&arguments, out)?,
        BenchVerb::Profile { drive } => out.text(match drive {
            BuiltIn::Sn861 => profile::SN861,
            BuiltIn::M9650 => profile::M9650,
        })?,
        BenchVerb::Man { folder } => pages(&folder, out)?,
    }
    Ok(())
}

fn pages(folder: &Path, out: &Output) -> Result<(), Failure> {
    manual::write(Cli::command(), folder, Sections::default())?;
    let first = folder.join("strake-bench.1");
    out.text(&format!("manual pages are in {}: man -l {}", folder.display(), first.display()))?;
    Ok(())
}

/// A goal, and whether `bench run` knows how to measure it.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// What is measured.
    pub work: String,
    /// What it is compared with.
    pub anchor: String,
    /// What to reach.
    pub goal: String,
    /// What we would like to reach.
    pub moonshot: String,
    /// Whether it can be run.
    pub runs: bool,
}

fn list() -> Vec<Listed> {
    let listed = |goal: goals::Goal| Listed {
        id: goal.id.to_owned(),
        work: goal.work.to_owned(),
        anchor: goal.anchor.to_owned(),
        goal: goal.goal.to_owned(),
        moonshot: goal.moonshot.to_owned(),
        runs: RUNS.contains(&goal.id),
    };
    goals::all().into_iter().map(listed).collect()
}

fn measure(arguments: &BenchRun, out: &Output) -> Result<(), Failure> {
    let choice = choice(arguments)?;
    let mut reports = Vec::new();
    for id in ids(&arguments.goals) {
        let report = run_goal(id, &choice, |what| progress(&format!("{id}: {what}")));
        let report = report.map_err(|unknown| Failure::usage(unknown.to_string()))?;
        if let Some(folder) = &arguments.save {
            save::one(&report, folder)?;
        }
        reports.push(report);
    }
    progress("");
    if let Some(folder) = &arguments.save {
        save::book(folder)?;
    }
    if reports.iter().all(|report| report.rows.is_empty()) {
        let text = arguments.filter.as_deref().unwrap_or_default();
        return Err(Failure::usage(format!(
            "no case has {text:?} in its name: see the names with --output json"
        )));
    }
    match reports.as_slice() {
        [report] => out.print(report, tables::report)?,
        _ => out.print(&reports, |reports, width| tables::reports(reports, width))?,
    }
    Ok(())
}

/// What was asked for, each once, in the order of the request.
fn ids(goals: &[String]) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    for goal in goals {
        let one = [goal.as_str()];
        let meant: &[&str] = if goal == "all" { &RUNS } else { &one };
        let new: Vec<&str> = meant.iter().filter(|id| !ids.contains(id)).copied().collect();
        ids.extend(
            new.into_iter().map(|id| RUNS.into_iter().find(|known| *known == id).unwrap_or(id)),
        );
    }
    ids
}

fn choice(arguments: &BenchRun) -> Result<Choice, Failure> {
    let options = Options {
        profile: drive_profile(arguments.profile.as_deref())?,
        filter: arguments.filter.clone(),
        repeats: arguments.repeats.map(usize::from),
        span: Duration::from_millis(arguments.milliseconds),
        cold_bytes: cold_bytes(machine::Machine::here().last_cache),
    };
    let kernel = kernel(arguments.kernel.as_deref())?;
    let compare = compare(arguments)?;
    let peer = peer(arguments)?;
    Ok(Choice { options, isal: arguments.isal.clone(), kernel, compare, peer })
}

/// What stands beside ours in net; refused where net is not asked for.
fn peer(arguments: &BenchRun) -> Result<Option<Peer>, Failure> {
    let Some(address) = arguments.peer.clone() else { return Ok(None) };
    if !ids(&arguments.goals).contains(&"net") {
        return Err(Failure::usage(
            "--peer is about net, which is not among the goals: add it, or leave --peer out"
                .to_owned(),
        ));
    }
    Ok(Some(Peer { address, process: arguments.peer_process }))
}

/// What stands beside ours in G14; refused where G14 is not asked for, since it would change nothing.
fn compare(arguments: &BenchRun) -> Result<Compare, Failure> {
    let has_files = ids(&arguments.goals).contains(&"G14");
    match arguments.compare {
        Some(_) if !has_files => Err(Failure::usage(
            "--compare is about G14, which is not among the goals: add it, or leave --compare out"
                .to_owned(),
        )),
        None | Some(Beside::Fio) => Ok(Compare::Fio),
        Some(Beside::Nothing) => Ok(Compare::Nothing),
    }
}

/// What modelled drives are like.
fn drive_profile(path: Option<&Path>) -> Result<Profile, Failure> {
    let load = |path| profile::load(path).map_err(|e| Failure::usage(e.to_string()));
    path.map_or_else(|| Ok(Options::default().profile), load)
}

fn kernel(name: Option<&str>) -> Result<Kernel, Failure> {
    let Some(name) = name else {
        return Ok(Kernel::fit());
    };
    Kernel::named(name).ok_or_else(|| {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        Failure::usage(format!("no kernel {name:?} runs here: use one of {}", names.join(", ")))
    })
}

/// Says on a terminal what is being measured, in place.
fn progress(what: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A terminal that is gone must not end the measurement.
        let _ = write!(stderr, "\r\x1b[K{what}").and_then(|()| stderr.flush());
    }
}
