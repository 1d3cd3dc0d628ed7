//! Commands on jobs, the background work of arrays: list, pause, resume, cancel, and set the priority.

use strake_api::v1::{self as api, ChangeJobRequest, Job, JobChange, ListJobsResponse};
use strake_engine::Pending;
use strake_wording::{Text, say, show};

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::remedy::{job, split};
use crate::upkeep::copies::cancel_waiting_copy;
use crate::upkeep::replacement::{begin_cancel, leave_alone, settle_replacements};
use crate::upkeep::settings::{end_pauses, put_settings};

/// A change of a job, and the remaining wait.
enum Begun {
    Done(Box<JobChange>),
    Wait(Pending, String),
}

impl Control {
    /// Changes a job: pause, resume, cancel, or its priority.
    ///
    /// # Errors
    /// If there is no such job, or the change does not apply to it.
    pub fn change_job(&self, request: &ChangeJobRequest) -> Result<JobChange, ControlError> {
        match self.run(|m| begin_change_job(m, request))? {
            Begun::Done(change) => Ok(*change),
            Begun::Wait(pending, id) => {
                pending.wait()?;
                let job = self.run(|m| {
                    settle_replacements(m)?;
                    Ok(m.list_jobs().jobs.into_iter().find(|j| j.id == id))
                })?;
                Ok(JobChange { result: "changed".into(), job })
            }
        }
    }
}

impl Manager {
    /// Returns every job that is running, paused or halted.
    pub fn list_jobs(&mut self) -> ListJobsResponse {
        let arrays = (0..self.running.len()).map(|at| self.view(at)).collect::<Vec<_>>();
        ListJobsResponse { jobs: arrays.iter().flat_map(jobs_of).collect() }
    }
}

fn begin_change_job(
    manager: &mut Manager,
    request: &ChangeJobRequest,
) -> Result<Begun, ControlError> {
    manager.check_open()?;
    // Pauses of finished jobs end first, so that they do not apply to the next job.
    end_pauses(manager);
    let jobs = manager.list_jobs().jobs;
    let Some(job) = jobs.iter().find(|job| job.id == request.id).cloned() else {
        let known: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
        let hint = if known.is_empty() {
            "no jobs exist at the moment".to_owned()
        } else {
            format!("existing jobs: {}", known.join(", "))
        };
        return Err(ControlError::not_found(format!("there is no job {:?}; {hint}", request.id)));
    };
    let at = manager.find_running(&job.array)?;
    let uuid = manager.running[at].uuid();
    let mut settings = manager.records.settings(&uuid);
    if job.kind == "grow" {
        return change_growth(manager, at, &job, request).map(|done| Begun::Done(Box::new(done)));
    }
    if job.kind == "scrub" && request.action != "set" {
        return change_scrub_job(manager, &job, request).map(|done| Begun::Done(Box::new(done)));
    }
    match (request.action.as_str(), request.priority) {
        ("pause", None) => settings = settings.with_pause_of(&job.kind),
        ("resume", None) if job.state == "halted" => {
            put_settings(manager, &uuid, settings.without_pause())?;
            tell_job(manager, &job, "is retried");
            return Ok(Begun::Wait(manager.running[at].array.begin_resume(), job.id));
        }
        ("resume", None) => settings = settings.without_pause(),
        ("set", Some(priority)) => settings.job_priority = Some(parse_priority(priority)?),
        ("set", None) => {
            let example = ChangeJobRequest { priority: Some(50), ..request.clone() };
            let what = say("give a priority from 0 to 100, for example: ").run(example);
            return Err(ControlError::usage(what));
        }
        ("cancel", None) if job.kind == "replace" => {
            let Some(member) = job.members.first().copied() else {
                return Err(cannot_cancel(&job));
            };
            if cancel_waiting_copy(manager, at, member)? {
                tell_job(manager, &job, "was cancelled");
                let result = "changed".to_owned();
                return Ok(Begun::Done(Box::new(JobChange { result, job: None })));
            }
            // A replacement that was cancelled must not be started again automatically.
            leave_alone(manager, at, member)?;
            let pending = begin_cancel(manager, at, member)?;
            tell_job(manager, &job, "was cancelled");
            return Ok(Begun::Wait(pending, job.id));
        }
        ("cancel", None) => return Err(cannot_cancel(&job)),
        ("pause" | "resume" | "cancel", Some(_)) => {
            return Err(ControlError::usage("a priority needs the action \"set\""));
        }
        (other, _) => {
            let what = format!("unknown action {other:?}; use pause, resume, cancel or set");
            return Err(ControlError::usage(what));
        }
    }
    let unchanged = settings == manager.records.settings(&uuid);
    if !unchanged {
        put_settings(manager, &uuid, settings)?;
        let how = match request.action.as_str() {
            "pause" => "was paused".to_owned(),
            "resume" => "was resumed".to_owned(),
            _ => format!("was given priority {}", settings.priority()),
        };
        tell_job(manager, &job, &how);
    }
    let result = if unchanged { "unchanged" } else { "changed" }.to_owned();
    let job = manager.list_jobs().jobs.into_iter().find(|j| j.id == job.id);
    Ok(Begun::Done(Box::new(JobChange { result, job })))
}

/// Changes a scrub job. A scrub can be paused separately from resync and rebuild, and can be cancelled.
fn change_scrub_job(
    manager: &mut Manager,
    job: &Job,
    request: &ChangeJobRequest,
) -> Result<JobChange, ControlError> {
    if request.priority.is_some() {
        return Err(ControlError::usage("a priority needs the action \"set\""));
    }
    let action = if request.action == "cancel" { "stop" } else { &request.action };
    let request = api::ChangeScrubRequest { name: job.array.clone(), action: action.to_owned() };
    let result = manager.change_scrub(&request)?.result;
    let job = manager.list_jobs().jobs.into_iter().find(|j| j.id == job.id);
    Ok(JobChange { result, job })
}

/// Changes a growth job. Zeroing the new area can be cancelled, which leaves the array unchanged.
fn change_growth(
    manager: &Manager,
    at: usize,
    job: &Job,
    request: &ChangeJobRequest,
) -> Result<JobChange, ControlError> {
    let growth = manager.running[at].growth.as_ref();
    match (growth, request.action.as_str()) {
        (Some(growth), "cancel") => growth.cancel(),
        (Some(_) | None, _) => {
            return Err(ControlError::usage(format!(
                "the grow of array {} can only be cancelled",
                job.array
            )));
        }
    }
    tell_job(manager, job, "was cancelled");
    Ok(JobChange { result: "changed".to_owned(), job: None })
}

fn tell_job(manager: &Manager, job: &Job, how: &str) {
    let what = format!("the {} of array {} {how}", job.kind, job.array);
    manager.record(Note::of_array(EventKind::JobChanged, &job.array, what));
}

/// Parses a priority.
pub(crate) fn parse_priority(priority: u32) -> Result<u8, ControlError> {
    u8::try_from(priority).ok().filter(|priority| *priority <= 100).ok_or_else(|| {
        ControlError::usage(format!(
            "priority {priority} is invalid; valid priorities are 0 to 100"
        ))
    })
}

fn cannot_cancel(of: &Job) -> ControlError {
    let Job { id, array, kind, .. } = of;
    let what = format!(
        "the {kind} of array {array} cannot be cancelled: without this job, redundancy would be missing permanently. \
         To give clients priority: "
    );
    let idle = ChangeJobRequest { priority: Some(0), ..job("set", id) };
    ControlError::refused(say(what).run(job("pause", id)).say(", or ").run(idle))
}

fn jobs_of(array: &api::Array) -> Vec<Job> {
    array.progress.iter().map(|progress| job_of(array, progress)).collect()
}

fn job_of(array: &api::Array, progress: &api::Progress) -> Job {
    let rebuilding = array.members.iter().filter(|m| m.state == "rebuilding").map(|m| m.position);
    let copied = array.members.iter().filter(|m| !m.replacement.is_empty()).map(|m| m.position);
    let members = match progress.job.as_str() {
        "rebuild" => rebuilding.collect(),
        "replace" => copied.collect(),
        _ => Vec::new(),
    };
    let id = format!("{}/{}", array.name, progress.job);
    let resume = job("resume", &id);
    let (reason, next) = match progress.state.as_str() {
        "halted" => (
            "the bad block list is full",
            Text::from(show(&array.name)).say("; to try again: ").run(resume),
        ),
        "paused" => ("", resume.into()),
        _ => ("", Text::default()),
    };
    let (next_action, remedy) = split(next);
    Job {
        id,
        array: array.name.clone(),
        kind: progress.job.clone(),
        state: progress.state.clone(),
        priority: progress.priority,
        done_bytes: progress.done_bytes,
        total_bytes: progress.total_bytes,
        rate_bytes_per_s: progress.rate_bytes_per_s,
        eta_s: progress.eta_s,
        members,
        reason: reason.to_owned(),
        next_action,
        remedy,
    }
}
