//! The hosts that may connect to exports over NVMe/TCP: changes of the lists, and disconnects.

use std::collections::BTreeSet;

use strake_api::v1::{
    DisconnectHostRequest, ExportChange, HostChange, ReleaseExportRequest, SetExportRequest,
};
use strake_export_nvmet::{Dismissal, nqn};
use strake_wording::{command, say};

use crate::commands::exports::{export_change, lock_kept_hosts};
use crate::commands::hosts::host_change;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::keys::check_keys;
use crate::exports::requests::request_of;
use crate::limits::HOSTS_MAX;
use crate::manager::Manager;
use crate::record::store::{Config, ExportRecord};

impl Control {
    /// Changes the hosts that may connect to an export, and waits without the lock for the I/O of disconnected hosts.
    /// Other hosts stay connected.
    ///
    /// # Errors
    /// If there is no such export, it has no list of hosts, no host would remain, a host lacks a key that the export
    /// needs, the change cannot be recorded, or I/O of a disconnected host does not complete.
    pub fn set_export(&self, request: &SetExportRequest) -> Result<ExportChange, ControlError> {
        let (change, dismissals) = self.run(|m| m.set_export(request))?;
        wait(&dismissals)?;
        Ok(change)
    }

    /// Disconnects a host from all exports, and waits without the lock for its I/O. The host may connect again. For a
    /// host that is not connected, the result is "unchanged".
    ///
    /// # Errors
    /// If the name is not valid, or I/O of the host does not complete.
    pub fn disconnect_host(
        &self,
        request: &DisconnectHostRequest,
    ) -> Result<HostChange, ControlError> {
        let name = &request.nqn;
        check_name(name)?;
        let dismissals: Vec<Dismissal> = self.run(|m| {
            m.check_open()?;
            let servers = m.exports.servers();
            Ok(servers.filter_map(|server| server.disconnect_host(name)).collect())
        })?;
        wait(&dismissals)?;
        let result = if dismissals.is_empty() { "unchanged" } else { "changed" };
        self.run(|m| Ok(host_change(m, result, name)))
    }
}

/// Waits until no I/O of the disconnected hosts is in flight.
fn wait(dismissals: &[Dismissal]) -> Result<(), ControlError> {
    if dismissals.iter().all(Dismissal::wait) {
        return Ok(());
    }
    Err(ControlError::device(
        "the hosts are disconnected, but I/O of them is still in flight at a drive that does not answer; repeat the \
         command to wait for it",
    ))
}

fn check_name(name: &str) -> Result<(), ControlError> {
    nqn::check(name).map_err(|e| ControlError::usage(format!("{name:?} is not a valid NQN: {e}")))
}

/// The hosts after a change, sorted.
///
/// # Errors
/// If the request is contradictory, a name is not valid, no host would remain, or there are too many.
fn hosts_after(hosts: &[String], request: &SetExportRequest) -> Result<Vec<String>, ControlError> {
    let SetExportRequest { allow_hosts, deny_hosts, .. } = request;
    if allow_hosts.is_empty() && deny_hosts.is_empty() {
        let example = SetExportRequest { allow_hosts: vec!["NQN".to_owned()], ..request.clone() };
        return Err(ControlError::usage(say("name hosts to allow or deny: ").run(example)));
    }
    allow_hosts.iter().chain(deny_hosts).try_for_each(|name| check_name(name))?;
    if let Some(both) = allow_hosts.iter().find(|name| deny_hosts.contains(name)) {
        return Err(ControlError::usage(format!(
            "host {both} cannot be allowed and denied at once"
        )));
    }
    let all: BTreeSet<&String> = hosts.iter().chain(allow_hosts).collect();
    let left: Vec<String> = all.into_iter().filter(|n| !deny_hosts.contains(n)).cloned().collect();
    match left.len() {
        0 => Err(ControlError::state(
            "no host could connect any more: allow another host in the same command, or remove the export",
        )),
        count if count > HOSTS_MAX => Err(ControlError::state(format!(
            "{count} hosts could connect; the limit is {HOSTS_MAX}"
        ))),
        _ => Ok(left),
    }
}

/// The steps of a change, as a plan shows them.
fn steps(before: &[String], after: &[String], others: &[String]) -> Vec<String> {
    let new = after.iter().filter(|name| !before.contains(name));
    let gone = before.iter().filter(|name| !after.contains(name));
    let new = new.map(|name| format!("allow host {name}"));
    let gone = gone.map(|name| format!("disconnect host {name}, and reject it from now on"));
    let others = others.iter().map(|name| format!("the same for export {name} of this subsystem"));
    new.chain(gone).chain(others).collect()
}

/// A configuration in which `hosts` may connect to all exports of the subsystem `nqn`.
fn with_hosts(config: &Config, nqn: &str, hosts: &[String]) -> Config {
    let mut config = config.clone();
    for subsystem in config.exports.iter_mut().filter_map(|export| export.nvme.as_mut()) {
        if subsystem.nqn == nqn {
            subsystem.hosts = hosts.to_vec();
        }
    }
    config
}

impl Manager {
    /// As [`Control::set_export`], without the wait.
    fn set_export(
        &mut self,
        request: &SetExportRequest,
    ) -> Result<(ExportChange, Vec<Dismissal>), ControlError> {
        self.check_open()?;
        let record = self.records.export_record(&request.name)?.clone();
        let Some(subsystem) = record.nvme.clone() else {
            let what =
                format!("export {} is offered over NBD, which has no host names", record.name);
            return Err(ControlError::usage(what));
        };
        let hosts = hosts_after(&subsystem.hosts, request)?;
        let of_subsystem =
            |e: &&ExportRecord| e.nvme.as_ref().is_some_and(|nvme| nvme.nqn == subsystem.nqn);
        let config = with_hosts(&self.records.config, &subsystem.nqn, &hosts);
        let records: Vec<ExportRecord> =
            config.exports.iter().filter(of_subsystem).cloned().collect();
        let others = records.iter().filter(|other| other.name != record.name);
        let others: Vec<String> = others.map(|other| other.name.clone()).collect();
        let mut plan = steps(&subsystem.hosts, &hosts, &others);
        plan.extend(self.left_reservations(&record, &hosts));
        let is_changed = hosts != subsystem.hosts;
        if request.dry_run {
            records.iter().try_for_each(|record| check_keys(record, &config))?;
            let change = export_change(self, "planned", &record);
            return Ok((ExportChange { plan, ..change }, Vec::new()));
        }
        if is_changed {
            for record in &records {
                lock_kept_hosts(self, &request_of(record), &record.array)?;
            }
            // The hosts with kept secrets are recorded now.
            let config = with_hosts(&self.records.config, &subsystem.nqn, &hosts);
            records.iter().try_for_each(|record| check_keys(record, &config))?;
            self.records.put(&config)?;
        }
        // Also if nothing changed: an earlier command may not have waited long enough.
        let servers =
            records.iter().filter_map(|record| Some((record, self.exports.at(&record.listen)?)));
        let dismissals = servers.filter_map(|(record, server)| server.set_hosts(record)).collect();
        let Some(record) = records.into_iter().find(|other| other.name == record.name) else {
            return Err(ControlError::not_found(format!("there is no export {}", request.name)));
        };
        if !is_changed {
            return Ok((export_change(self, "unchanged", &record), dismissals));
        }
        let what = format!("hosts of export {}: {}", record.name, plan.join("; "));
        self.record(Note::new(EventKind::HostChanged, format!("export/{}", record.name), what));
        let change = export_change(self, "changed", &record);
        Ok((ExportChange { plan, ..change }, dismissals))
    }

    /// What remains of hosts that may no longer connect.
    fn left_reservations(&self, record: &ExportRecord, hosts: &[String]) -> Option<String> {
        let reservations = self.exports.at(&record.listen)?.reservations(record)?;
        let left = reservations.registrants.iter().find(|host| !hosts.contains(&host.name))?;
        Some(format!(
            "keep the reservation key of host {}; to release all reservations: {}",
            left.name,
            command(&ReleaseExportRequest { name: record.name.clone() })
        ))
    }
}
