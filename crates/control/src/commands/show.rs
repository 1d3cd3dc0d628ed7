//! Queries: arrays, exports, the daemon and the status of everything, as messages of the interface.

use strake_api::v1::{self as api, Core, Daemon, Export as ExportMessage, Problem, SystemStatus};
use strake_engine::{Array, ArrayLatencies};
use strake_reactor::{CoreThread, Pinning, monotonic};
use strake_units::MemberIndex;
use strake_wording::{show, show_scrub};

use crate::commands::exports::export_message;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::names::is_called;
use crate::policy::advice::{keep_open, other_half, spare_next};
use crate::record::store::ArrayRecord;
use crate::remedy::{problem, split, state_remedy};
use crate::upkeep::copies::show_waiting_copies;
use crate::upkeep::doubt::suspect_now;
use crate::upkeep::prospects::{has_returned, refused_prospect};
use crate::upkeep::scrubs::{corrupt_bytes, scrub_view};
use crate::view::array::being_started;
use crate::view::doubt::show_doubts;
use crate::view::queues::controller;
use crate::view::stats::{by_operation, counters};
use crate::view::traces::{Clocks, trace};

impl Manager {
    /// Returns every array: running arrays, and recorded arrays that do not run.
    pub fn arrays(&mut self) -> Vec<api::Array> {
        let mut arrays: Vec<api::Array> = (0..self.running.len()).map(|at| self.view(at)).collect();
        arrays.extend(self.offline_arrays());
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        arrays
    }

    /// Returns the recorded arrays that do not run.
    pub(crate) fn offline_arrays(&self) -> impl Iterator<Item = api::Array> {
        let offline = |record: &&ArrayRecord| self.position_of(&record.uuid).is_none();
        self.records.arrays.iter().filter(offline).map(|record| self.offline_view(record))
    }

    fn offline_view(&self, record: &ArrayRecord) -> api::Array {
        let entry = self.entries.get(&record.uuid);
        let starting = entry.starting.as_ref();
        let exports = self.records.export_names(&record.uuid);
        // The reason from the last attempt is more specific.
        let Some(offline) = &entry.offline else { return being_started(record, starting, exports) };
        let mut view = offline.view(record, exports);
        // The state persists until the array runs again.
        view.states.extend(entry.loss.is_some().then(|| "lost".to_owned()));
        if let Some(starting) = starting {
            view.waits = starting.waits();
        }
        view
    }

    /// Returns one array by name or identity.
    ///
    /// # Errors
    /// If there is no such array.
    pub fn array(&mut self, name: &str) -> Result<api::Array, ControlError> {
        let found = self.arrays().into_iter().find(|a| is_called(name, &a.name, &a.uuid));
        found.ok_or_else(|| self.no_such_array(name))
    }

    pub(crate) fn view(&mut self, at: usize) -> api::Array {
        let uuid = self.running[at].uuid();
        let exports = self.records.export_names(&uuid);
        let settings = self.records.settings(&uuid);
        let mut view = self.running[at].view(exports);
        show_waiting_copies(self, &uuid, &mut view);
        for progress in &mut view.progress {
            progress.priority = u32::from(settings.priority());
        }
        view.settings = Some(settings.message());
        let scrub = scrub_view(self, at, &view);
        let unverified_us = self.running[at].doubt.unverified_us;
        show_doubts(&suspect_now(self, at), unverified_us, &mut view);
        view.corrupt_bytes = corrupt_bytes(self, at);
        if view.corrupt_bytes > 0 {
            view.states.push("corrupt".to_owned());
            if view.next_action.is_empty() {
                (view.next_action, view.remedy) = split(show_scrub(&view.name));
            }
        }
        view.scrub = Some(scrub);
        let mut back = None;
        for member in &mut view.members {
            let index = MemberIndex(member.position as u8);
            member.returned = has_returned(self, &uuid, index);
            if member.returned {
                back = back.or(Some(index));
            } else if let Some((path, why)) = refused_prospect(self, &uuid, index) {
                member.cause =
                    format!("{}; its drive at {path} cannot be re-added: {why}", member.cause);
            }
            let slot = member.position as usize;
            let notes = self.entries.get(&uuid).slot(slot);
            let out = member.state == "missing" || member.state == "faulty";
            if let Some(why) = notes.unreachable.as_ref().filter(|_| !out) {
                let name = self.running[at].array.name();
                member.cause =
                    format!("{why}; the drive is used as long as the daemon has it open");
                view.reason = format!(
                    "the data depend on member {slot}, and {why}: the drive can be used only as long as the daemon \
                        has it open"
                );
                (view.next_action, view.remedy) = split(keep_open(name.as_str()));
            }
            if let Some(path) = notes.other_half.as_ref().filter(|_| out) {
                let name = self.running[at].array.name();
                member.returned = false;
                let (cause, next) = other_half(name.as_str(), slot, path);
                member.cause = cause;
                (view.next_action, view.remedy) = split(next);
                view.reason = format!("member {slot}: {}", member.cause);
            } else if let Some(objection) = notes.objection.as_ref().filter(|_| out) {
                member.cause.clone_from(objection);
            }
        }
        if let Some(member) = back.filter(|_| view.reason.is_empty()) {
            let member = Some(u32::from(member.0));
            let readd =
                api::ReaddMemberRequest { name: view.name.clone(), member, ..Default::default() };
            (view.next_action, view.remedy) = split(readd);
        }
        view
    }
}

impl Manager {
    /// Returns the latencies of the running arrays: of requests, and of the I/Os of each member by its position.
    #[must_use]
    pub fn latencies(&self) -> Vec<(String, ArrayLatencies)> {
        let of = |array: &Array| (array.name().to_string(), array.latencies());
        self.running.iter().map(|running| of(&running.array)).collect()
    }

    /// Returns the counters and latencies of a running array.
    ///
    /// # Errors
    /// If there is no such array, or it is not running.
    pub fn array_stats(&mut self, name: &str) -> Result<api::ArrayStats, ControlError> {
        let array = &self.running[self.find_running(name)?].array;
        let (status, latencies) = (array.status(), array.latencies());
        let members = status.members.iter().zip(&latencies.members).enumerate();
        Ok(api::ArrayStats {
            name: status.name.to_string(),
            uuid: status.uuid.to_string(),
            counters: Some(counters(&status)),
            requests: by_operation(&latencies.requests),
            members: members
                .map(|(position, (member, latencies))| api::MemberStats {
                    position: position as u32,
                    path: member.path.clone(),
                    ios: by_operation(latencies),
                })
                .collect(),
        })
    }
}

impl Manager {
    /// Returns the recorded requests of a running array.
    ///
    /// # Errors
    /// If there is no such array, or it is not running.
    pub fn traces(&mut self, name: &str) -> Result<api::ListTracesResponse, ControlError> {
        let clocks = Clocks { wall_us: self.options.clock.now_us(), monotonic: monotonic() };
        let array = &self.running[self.find_running(name)?].array;
        let (geometry, uuid, traces) = (array.geometry(), array.uuid(), array.traces());
        Ok(api::ListTracesResponse {
            name: array.name().to_string(),
            uuid: uuid.to_string(),
            traces: traces.iter().map(|t| trace(t, &geometry, uuid, clocks)).collect(),
        })
    }
}

impl Manager {
    /// Returns an export with its hosts.
    ///
    /// # Errors
    /// If there is no export with this name.
    pub fn export(&self, name: &str) -> Result<ExportMessage, ControlError> {
        let record = self.records.export_record(name)?;
        let mut message = export_message(self, record);
        if let Some(server) = self.exports.at(&record.listen) {
            message.controllers = server.controllers(record).into_iter().map(controller).collect();
        }
        Ok(message)
    }
}

impl Manager {
    /// Describes the daemon, without the role of the caller. `socket` is its listening address; `memory_bytes` and
    /// `cpu_us` are the resources of the process.
    #[must_use]
    pub fn daemon(&self, socket: &str, memory_bytes: u64, cpu_us: u64) -> Daemon {
        let core = |(index, core): (usize, &CoreThread)| {
            let (cpu, notice) = match core.pinning() {
                Pinning::Any => (None, String::new()),
                Pinning::Pinned { cpu } => (Some(cpu as u32), String::new()),
                Pinning::Refused { cpu, os } => {
                    let why = std::io::Error::from_raw_os_error(os);
                    (None, format!("not pinned to CPU {cpu}: {why}"))
                }
            };
            Core { index: index as u32, cpu, notice }
        };
        Daemon {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_us: self.started.elapsed().as_micros() as u64,
            state_dir: self.records.store.dir().display().to_string(),
            socket: socket.to_owned(),
            cores: self.cores.iter().enumerate().map(core).collect(),
            memory_bytes,
            cpu_us,
            state: if self.stopping { "stopping" } else { "serving" }.to_owned(),
            role: String::new(),
        }
    }

    /// Returns the status of all objects in one answer, with problems first.
    pub fn status(&mut self, daemon: Daemon) -> SystemStatus {
        let arrays = self.arrays();
        let exports = self.exports();
        let mut problems: Vec<Problem> =
            arrays.iter().filter_map(crate::view::array::problem_of_array).collect();
        problems.extend(arrays.iter().filter_map(crate::view::array::problem_of_scrub));
        problems.extend(arrays.iter().filter_map(crate::view::array::problem_of_doubt));
        let doubts = arrays.iter().flat_map(crate::view::doubt::problems);
        problems.extend(doubts.map(|(_, problem)| problem));
        problems.extend(arrays.iter().filter_map(crate::view::array::problem_of_copy));
        problems.extend(exports.iter().filter(|e| e.state != "online").map(|e| {
            problem(format!("export/{}", e.name), "failed", e.reason.clone(), show(&e.array))
        }));
        problems.extend(self.list_spares().spares.iter().filter(|s| s.state != "ready").map(|s| {
            let what = format!("the spare is {}: {}", s.state, s.note);
            problem(format!("spare {}", s.path), "degraded", what, spare_next(&s.path))
        }));
        problems.extend(self.state_trouble().map(|why| {
            let what = format!("the state directory cannot be written: {why}");
            let dir = self.records.store.dir().display();
            problem("daemon", "degraded", what, format!("free space in {dir}, or make it writable"))
        }));
        problems.extend(
            self.state_lost().map(|what| problem("daemon", "failed", what, state_remedy())),
        );
        problems.sort_by_key(|p| p.severity != "failed");
        let health = match problems.first() {
            None => "ok",
            Some(worst) if worst.severity == "failed" => "failed",
            Some(_) => "degraded",
        };
        SystemStatus { health: health.to_owned(), problems, daemon: Some(daemon), arrays, exports }
    }
}
