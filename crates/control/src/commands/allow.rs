//! The hosts that may connect to exports over NVMe/TCP: changes of the lists, and disconnects.

use std::collections::BTreeSet;

use strake_api::v1::{
    DisconnectHostRequest, ExportChange, HostChange, ListExportsRequest, ReleaseExportRequest,
    SetExportRequest,
};
use strake_export_nvmet::{Dismissal, nqn};
use strake_wording::{command, say};

use crate::commands::exports::export_change;
use crate::commands::hosts::host_change;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::exposure::check_hosts;
use crate::exports::keys::{check_keys, keys_of};
use crate::exports::requests::allows;
use crate::limits::HOSTS_MAX;
use crate::manager::Manager;
use crate::record::store::{Config, ExportRecord, HostRecord, SubsystemRecord};
use crate::remedy::remove_export;

impl Control {
    /// Changes the hosts that may connect to an export, and waits without the lock for the I/O of disconnected hosts.
    /// Other hosts stay connected.
    ///
    /// # Errors
    /// If there is no such export, it has no list of hosts, no host would remain, a host lacks a key that the export
    /// needs, the change cannot be recorded, or I/O of a disconnected host does not complete.
    pub fn set_export(&self, request: &SetExportRequest) -> Result<ExportChange, ControlError> {
        let (change, dismissal) = self.run(|m| m.set_export(request))?;
        wait(dismissal.as_slice())?;
        Ok(change)
    }

    /// Disconnects a host from all exports, and waits without the lock for its I/O. The host may connect again. For a
    /// host that is not connected, the result is "unchanged".
    ///
    /// # Errors
    /// If there is no such host, or I/O of the host does not complete.
    pub fn disconnect_host(
        &self,
        request: &DisconnectHostRequest,
    ) -> Result<HostChange, ControlError> {
        let name = &request.nqn;
        check_name(name)?;
        let dismissals: Vec<Dismissal> = self.run(|m| {
            m.check_open()?;
            let is_known = m.records.hosts.iter().any(|host| host.nqn == *name)
                || m.records.exports.iter().any(|export| allows(export, name));
            let servers = m.exports.servers();
            let gone: Vec<Dismissal> = servers.filter_map(|s| s.disconnect_host(name)).collect();
            // A mistyped name must not look like a host that is disconnected.
            if gone.is_empty() && !is_known {
                let what =
                    format!("no export allows host {name:?}; see the hosts of exports with: ");
                return Err(ControlError::not_found(say(what).run(ListExportsRequest {})));
            }
            Ok(gone)
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
        "the hosts are disconnected, but their I/O is still in progress on a drive that does not answer; repeat the \
            command to wait for this I/O",
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
    let SetExportRequest { allow_hosts, deny_hosts, insecure, .. } = request;
    if allow_hosts.is_empty() && deny_hosts.is_empty() && !insecure {
        let example = SetExportRequest { allow_hosts: vec!["NQN".to_owned()], ..request.clone() };
        return Err(ControlError::usage(say("name hosts to allow or deny: ").run(example)));
    }
    allow_hosts.iter().chain(deny_hosts).try_for_each(|name| check_name(name))?;
    if let Some(both) = allow_hosts.iter().find(|name| deny_hosts.contains(name)) {
        return Err(ControlError::usage(format!("host {both} cannot be both allowed and denied")));
    }
    let all: BTreeSet<&String> = hosts.iter().chain(allow_hosts).collect();
    let left: Vec<String> = all.into_iter().filter(|n| !deny_hosts.contains(n)).cloned().collect();
    match left.len() {
        0 => Err(ControlError::state(
            "the command would deny the last allowed host: allow another host in the same command, or remove the \
                export",
        )),
        count if count > HOSTS_MAX => Err(ControlError::state(format!(
            "{count} hosts would be allowed; the limit is {HOSTS_MAX}"
        ))),
        _ => Ok(left),
    }
}

/// A change of the hosts of a subsystem, as it will be recorded.
struct Change {
    config: Config,
    /// The exports of the subsystem with their new hosts.
    exports: Vec<ExportRecord>,
    /// Hosts that had to authenticate where the array was before. They become known here without their secrets.
    locked: Vec<HostRecord>,
}

/// The change of the subsystem `before` to `hosts`.
///
/// # Errors
/// If the exports are secure, and a host has no key for TLS; or if a host could use them over a network without the
/// protection that they require.
fn change_of(
    config: &Config,
    before: &SubsystemRecord,
    hosts: &[String],
    request: &SetExportRequest,
) -> Result<Change, ControlError> {
    let nqn = &before.nqn;
    let mut config = config.clone();
    for subsystem in config.exports.iter_mut().filter_map(|export| export.nvme.as_mut()) {
        if subsystem.nqn == *nqn {
            subsystem.hosts = hosts.to_vec();
            subsystem.insecure |= request.insecure;
        }
    }
    let of_subsystem = |e: &&ExportRecord| e.nvme.as_ref().is_some_and(|nvme| nvme.nqn == *nqn);
    let exports: Vec<ExportRecord> = config.exports.iter().filter(of_subsystem).cloned().collect();
    let arrays = config.arrays.iter().filter(|a| exports.iter().any(|e| e.array == a.uuid));
    let mut locked: Vec<HostRecord> = arrays.flat_map(|array| array.kept_hosts.clone()).collect();
    locked.retain(|kept| {
        hosts.contains(&kept.nqn) && config.hosts.iter().all(|known| known.nqn != kept.nqn)
    });
    locked.sort_by(|a, b| a.nqn.cmp(&b.nqn));
    locked.dedup_by(|a, b| a.nqn == b.nqn);
    config.hosts.extend(locked.iter().cloned());
    exports.iter().try_for_each(|export| check_keys(export, &config))?;
    // Hosts of an export of an earlier version stay allowed.
    let checked: Vec<&String> =
        hosts.iter().filter(|host| request.insecure || !before.hosts.contains(host)).collect();
    exports.iter().try_for_each(|export| check_hosts(export, &checked, &config))?;
    Ok(Change { config, exports, locked })
}

/// True if data without encryption are accepted from now on.
const fn accepts(before: &SubsystemRecord, request: &SetExportRequest) -> bool {
    request.insecure && !before.insecure
}

/// The steps of a change, as a plan shows them.
fn steps(
    subsystem: &SubsystemRecord,
    after: &[String],
    request: &SetExportRequest,
    change: &Change,
) -> Vec<String> {
    let before = &subsystem.hosts;
    let new = after.iter().filter(|name| !before.contains(name));
    let gone = before.iter().filter(|name| !after.contains(name));
    let new = new.map(|name| format!("allow host {name}"));
    let gone = gone.map(|name| format!("disconnect host {name}, and reject it from now on"));
    let unknown = request.deny_hosts.iter().filter(|name| !before.contains(name));
    let unknown = unknown.map(|name| format!("host {name} is not an allowed host: check its name"));
    let others = change.exports.iter().filter(|other| other.name != request.name);
    let others = others
        .map(|other| format!("change export {} of this subsystem in the same way", other.name));
    let locked = change.locked.iter();
    let locked = locked
        .map(|host| format!("host {} cannot connect until its secret or key is given", host.nqn));
    let accepts = accepts(subsystem, request).then(|| "accept data without encryption".to_owned());
    new.chain(gone).chain(accepts).chain(locked).chain(others).chain(unknown).collect()
}

impl Manager {
    /// As [`Control::set_export`], without the wait.
    fn set_export(
        &mut self,
        request: &SetExportRequest,
    ) -> Result<(ExportChange, Option<Dismissal>), ControlError> {
        self.check_open()?;
        let record = self.records.export_record(&request.name)?.clone();
        let Some(subsystem) = &record.nvme else {
            let what = format!(
                "export {} is offered over NBD, which does not identify hosts",
                record.name
            );
            return Err(ControlError::usage(what));
        };
        let hosts = hosts_after(&subsystem.hosts, request)?;
        if request.insecure && subsystem.secure {
            let what = format!(
                "export {} requires TLS; to accept data without encryption, remove it first: ",
                record.name
            );
            return Err(ControlError::state(say(what).run(remove_export(&record.name))));
        }
        let next = change_of(&self.records.config, subsystem, &hosts, request)?;
        let mut plan = steps(subsystem, &hosts, request, &next);
        let left = next.exports.iter().filter_map(|export| self.left_reservations(export, &hosts));
        plan.extend(left);
        let is_changed = hosts != subsystem.hosts || accepts(subsystem, request);
        if request.dry_run {
            let change = export_change(self, "planned", &record);
            return Ok((ExportChange { plan, ..change }, None));
        }
        let Change { config, exports, locked } = next;
        // A key that cannot be used is refused before the change is recorded.
        let keys: Vec<_> = locked.iter().map(keys_of).collect::<Result<_, _>>()?;
        if is_changed {
            self.records.put(&config)?;
            for (host, keys) in locked.iter().zip(&keys) {
                self.exports.servers().for_each(|server| server.set_keys(&host.nqn, keys));
            }
        }
        // Also if nothing changed: an earlier command may not have waited long enough. All exports of a subsystem have
        // one address and one list.
        let first = exports.first().and_then(|e| Some((e, self.exports.at(&e.listen)?)));
        let dismissal = first.and_then(|(e, server)| server.set_hosts(e));
        let record = exports.into_iter().find(|e| e.name == record.name).unwrap_or(record);
        if !is_changed {
            let change = export_change(self, "unchanged", &record);
            return Ok((ExportChange { plan, ..change }, dismissal));
        }
        let what = format!("hosts of export {}: {}", record.name, plan.join("; "));
        self.record(Note::new(EventKind::HostChanged, format!("export/{}", record.name), what));
        let change = export_change(self, "changed", &record);
        Ok((ExportChange { plan, ..change }, dismissal))
    }

    /// What remains of hosts that may no longer connect.
    fn left_reservations(&self, record: &ExportRecord, hosts: &[String]) -> Option<String> {
        let reservations = self.exports.at(&record.listen)?.reservations(record)?;
        let left = reservations.registrants.iter().filter(|host| !hosts.contains(&host.name));
        let left: Vec<&str> = left.map(|host| host.name.as_str()).collect();
        (!left.is_empty()).then(|| {
            let release = command(&ReleaseExportRequest { name: record.name.clone() });
            let (hosts, export) = (left.join(", "), &record.name);
            format!(
                "keep the reservation keys of {hosts} in export {export}; to release all: {release}"
            )
        })
    }
}
