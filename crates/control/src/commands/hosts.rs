//! Hosts that must authenticate over NVMe/TCP. Like the secrets of hooks, their secrets are recorded in the state
//! directory, which only the daemon reads. No answer, event or log contains them.

use std::time::Instant;

use strake_api::v1::{
    AddHostRequest, Host, HostChange, ListHostsRequest, ListHostsResponse, RemoveHostRequest,
};
use strake_export_nvmet::nqn;
use strake_wording::{Text, command, say};

use crate::commands::exports::RETRY;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::exposure::check_change;
use crate::exports::keys::{HostKeys, check_keys, fresh_tls_key, keys_of, unknown};
use crate::limits::{HOSTS_MAX, KEEP_OLD_SECONDS_MAX};
use crate::manager::Manager;
use crate::record::store::{Config, ExportRecord, HostRecord, OldSecrets, OldTlsKey};
use crate::remedy::FILE;
use crate::remote::record::check_secrets;

fn message(record: &HostRecord) -> Host {
    Host {
        nqn: record.nqn.clone(),
        state: if record.is_locked() { "locked" } else { "ready" }.to_owned(),
        bidirectional: !record.controller_secret.is_empty() || record.covered.controller_secret,
        proof: record.needs_proof(),
        tls: record.needs_tls(),
        old_secret_until_us: record.old_secrets.as_ref().map_or(0, |old| old.until_us),
        old_tls_key_until_us: record.old_tls_key.as_ref().map_or(0, |old| old.until_us),
    }
}

fn no_such_host(name: &str) -> ControlError {
    let what = format!("there is no host {name:?}; see them with: ");
    ControlError::not_found(say(what).run(ListHostsRequest {}))
}

/// Refuses a request with contradictory fields about one kind of keys.
fn check_consistent(request: &AddHostRequest) -> Result<(), ControlError> {
    let given = |text: &str| !text.trim().is_empty();
    let (secret, new_secret) = (given(&request.secret), request.new_secret);
    let (controller, new_controller) =
        (given(&request.controller_secret), request.new_controller_secret);
    let (key, new_key) = (given(&request.tls_key), request.new_tls_key);
    let no_controller = request.no_secret || request.no_controller_secret;
    for (both, what) in [
        (key && new_key, "give a TLS key or generate one, not both"),
        (secret && new_secret, "give a host secret or generate one, not both"),
        (controller && new_controller, "give a controller secret or generate one, not both"),
        ((secret || new_secret) && request.no_secret, "give a host secret or remove it, not both"),
        (
            (controller || new_controller) && no_controller,
            "give a controller secret, or remove it or the host secret, not both",
        ),
        ((key || new_key) && request.no_tls, "give a TLS key or remove it, not both"),
    ] {
        if both {
            return Err(ControlError::usage(what));
        }
    }
    if request.keep_old_seconds > KEEP_OLD_SECONDS_MAX {
        let what =
            "replaced secrets and keys are accepted for at most 30 days: give a shorter time";
        return Err(ControlError::usage(what));
    }
    Ok(())
}

/// Updates the replaced secrets and keys of a host: those that `is` replaces are accepted for `seconds` more, or not at
/// all. Those that were replaced before stay if `is` has the same secrets or the same key.
///
/// # Errors
/// If replaced ones are to be accepted, and `is` replaces none, or earlier ones are still accepted.
fn keep_old(
    was: &HostRecord,
    is: &mut HostRecord,
    seconds: u64,
    now_us: u64,
) -> Result<(), ControlError> {
    let until_us = now_us.saturating_add(seconds * 1_000_000);
    let HostRecord { secret, controller_secret, tls_key, .. } = was.clone();
    let keeps =
        |old: &str, new: &str| seconds > 0 && old != new && !old.is_empty() && !new.is_empty();
    // The secret of the host distinguishes the pairs, so the secret of the controller is not kept alone.
    let (keeps_secrets, keeps_key) = (keeps(&secret, &is.secret), keeps(&tls_key, &is.tls_key));
    let earlier =
        keeps_secrets && was.old_secrets.is_some() || keeps_key && was.old_tls_key.is_some();
    if earlier {
        let what = "an earlier secret or key is still accepted, and the host may have it or the current one: wait \
            until its time is over, or accept no replaced one this time";
        return Err(ControlError::state(what));
    }
    if seconds > 0 && !keeps_secrets && !keeps_key {
        let what = "nothing is replaced that could still be accepted: give a secret or key of the host that replaces \
            an earlier one, or accept no replaced one";
        return Err(ControlError::usage(what));
    }
    if (&was.secret, &was.controller_secret) != (&is.secret, &is.controller_secret) {
        is.old_secrets =
            keeps_secrets.then_some(OldSecrets { secret, controller_secret, until_us });
    }
    if was.tls_key != is.tls_key {
        is.old_tls_key = keeps_key.then_some(OldTlsKey { tls_key, until_us });
    }
    Ok(())
}

/// Generated secrets and keys for a request; the others are empty.
struct Made {
    secret: String,
    controller_secret: String,
    tls_key: String,
}

impl Made {
    fn of(request: &AddHostRequest) -> Result<Self, ControlError> {
        let secret = |wanted| match wanted {
            true => Ok(unknown()?.reveal().to_string()),
            false => Ok::<_, ControlError>(String::new()),
        };
        Ok(Self {
            secret: secret(request.new_secret)?,
            controller_secret: secret(request.new_controller_secret)?,
            tls_key: match request.new_tls_key {
                true => fresh_tls_key()?.reveal().to_string(),
                false => String::new(),
            },
        })
    }
}

/// Replaces keys of a host by the given or generated keys of the same kind, and removes keys according to the request.
fn take_keys(record: &mut HostRecord, request: &AddHostRequest, made: &Made) {
    let no_controller = request.no_secret || request.no_controller_secret;
    let covered = &mut record.covered;
    for (is, covered, given, made, none) in [
        (&mut record.secret, &mut covered.secret, &request.secret, &made.secret, request.no_secret),
        (
            &mut record.controller_secret,
            &mut covered.controller_secret,
            &request.controller_secret,
            &made.controller_secret,
            no_controller,
        ),
        (
            &mut record.tls_key,
            &mut covered.tls_key,
            &request.tls_key,
            &made.tls_key,
            request.no_tls,
        ),
    ] {
        let new = if made.is_empty() { given.trim() } else { made };
        if none || !new.is_empty() {
            new.clone_into(is);
            *covered = false;
        }
    }
}

/// Describes the differences between two records of a host.
fn differences(was: &HostRecord, is: &HostRecord) -> String {
    let word = |was: (&str, bool), is: (&str, bool)| match (was, is) {
        (was, is) if was == is => None,
        (_, ("", false)) => Some("taken away"),
        (("", false), _) => Some("new"),
        _ => Some("another"),
    };
    let (old, new) = (was.covered, is.covered);
    let all = [
        ("secret", word((&was.secret, old.secret), (&is.secret, new.secret))),
        (
            "secret of the target",
            word(
                (&was.controller_secret, old.controller_secret),
                (&is.controller_secret, new.controller_secret),
            ),
        ),
        ("key for TLS", word((&was.tls_key, old.tls_key), (&is.tls_key, new.tls_key))),
    ];
    let reported =
        all.into_iter().filter_map(|(what, word)| Some(format!("its {what} is {}", word?)));
    let old = [
        ("secret", was.old_secrets != is.old_secrets && is.old_secrets.is_some()),
        ("key for TLS", was.old_tls_key != is.old_tls_key && is.old_tls_key.is_some()),
    ];
    let old = old.into_iter().filter(|(_, is_kept)| *is_kept);
    let old = old.map(|(what, _)| format!("its replaced {what} is accepted for some more time"));
    reported.chain(old).collect::<Vec<_>>().join(", ")
}

impl Manager {
    /// Requires host authentication, TLS, or both from a host. Given secrets and keys replace those of the same kind.
    /// The requirements are reduced only on explicit request. For an equal host, the result is "unchanged".
    ///
    /// # Errors
    /// If the name or a secret is invalid, there are too many hosts, or the host cannot be recorded.
    pub fn add_host(&mut self, request: &AddHostRequest) -> Result<HostChange, ControlError> {
        self.check_open()?;
        let name = &request.nqn;
        nqn::check(name)
            .map_err(|e| ControlError::usage(format!("{name:?} is not a valid NQN: {e}")))?;
        check_consistent(request)?;
        let known = self.records.hosts.iter().find(|host| host.nqn == *name).cloned();
        if known.is_none() && request.known {
            return Err(no_such_host(name));
        }
        let new = || HostRecord { nqn: name.clone(), ..HostRecord::default() };
        let mut record = known.clone().unwrap_or_else(new);
        let made = Made::of(request)?;
        take_keys(&mut record, request, &made);
        if record.secret.is_empty() && record.tls_key.is_empty() && record.covered.is_nothing() {
            return Err(ControlError::usage(needs_proof(request)));
        }
        check_secrets(&record.secret, &record.controller_secret)?;
        let now_us = self.options.clock.now_us();
        keep_old(&known.unwrap_or_default(), &mut record, request.keep_old_seconds, now_us)?;
        let Made { secret, controller_secret, tls_key } = made;
        Ok(HostChange { tls_key, secret, controller_secret, ..put_host(self, record)? })
    }

    /// Removes the secrets of a host, which is then accepted by its name.
    ///
    /// # Errors
    /// If there is no such host, or the removal cannot be recorded.
    pub fn remove_host(&mut self, request: &RemoveHostRequest) -> Result<HostChange, ControlError> {
        self.check_open()?;
        let name = &request.nqn;
        let Some(record) = self.records.hosts.iter().find(|h| h.nqn == *name).cloned() else {
            return Err(no_such_host(name));
        };
        // Kept exports are created later, and would then accept the host by its name.
        let kept = self.records.arrays.iter().flat_map(|array| &array.kept_exports);
        let mut users =
            self.records.exports.iter().chain(kept).filter(|export| {
                export.nvme.as_ref().is_some_and(|nvme| nvme.hosts.contains(name))
            });
        if let Some(export) = users.next() {
            let what = format!(
                "host {name} may connect to export {}, and without a secret would be identified only by its name: \
                    remove the export first, or give the host another secret: ",
                export.name
            );
            return Err(ControlError::state(say(what).run(AddHostRequest::default())));
        }
        self.records.change(|config| config.hosts.retain(|h| h.nqn != *name))?;
        for server in self.exports.servers() {
            server.set_keys(name, &HostKeys::default());
        }
        let what = format!("host {name} now has no secret and no key");
        self.record(Note::new(EventKind::HostChanged, "daemon", what));
        Ok(change("removed", &record))
    }

    /// Returns the hosts that must authenticate, without their secrets.
    #[must_use]
    pub fn list_hosts(&self) -> ListHostsResponse {
        ListHostsResponse { hosts: self.records.hosts.iter().map(message).collect() }
    }
}

/// Returns the ways to add a host, for a request without a secret or key.
fn needs_proof(request: &AddHostRequest) -> Text {
    let (nqn, known) = (request.nqn.clone(), request.known);
    let host = AddHostRequest { nqn, known, ..AddHostRequest::default() };
    say("a host needs a secret or a key; to generate one: ")
        .run(AddHostRequest { new_secret: true, ..host.clone() })
        .say(", or: ")
        .run(AddHostRequest { new_tls_key: true, ..host.clone() })
        .say("; to give one: ")
        .run(AddHostRequest { secret: FILE.to_owned(), ..host.clone() })
        .say(", or: ")
        .run(AddHostRequest { tls_key: FILE.to_owned(), ..host })
}

/// Describes a locked host, and the remedy.
pub(crate) fn locked_words(nqn: &str) -> String {
    let add = command(&AddHostRequest::default());
    format!("host {nqn} cannot connect until its secret or key is given: {add}")
}

/// Records a host, and updates every server.
pub(crate) fn put_host(
    manager: &mut Manager,
    record: HostRecord,
) -> Result<HostChange, ControlError> {
    let record = record.at(manager.options.clock.now_us());
    let keys = keys_of(&record)?;
    let mut config = manager.records.config.clone();
    let known = config.hosts.iter().find(|h| h.nqn == record.nqn).cloned();
    let result = match &known {
        Some(known) if *known == record => "unchanged",
        Some(_) => "changed",
        None => "created",
    };
    if result == "unchanged" {
        return Ok(change(result, &record));
    }
    if known.is_none() && config.hosts.len() >= HOSTS_MAX {
        return Err(ControlError::state(format!(
            "there are {HOSTS_MAX} hosts, the limit of one daemon; remove one first"
        )));
    }
    config.hosts.retain(|h| h.nqn != record.nqn);
    config.hosts.push(record.clone());
    check_secure_exports_of(manager, &record, &config)?;
    check_change(&record.nqn, &manager.records, &config)?;
    manager.records.put(&config)?;
    for server in manager.exports.servers() {
        server.set_keys(&record.nqn, &keys);
    }
    let what = match (keys.proof.is_empty(), keys.tls.is_empty()) {
        (_, true) => "authenticate",
        (true, false) => "use TLS",
        (false, false) => "use TLS and authenticate",
    };
    let what = format!("host {} must {what} from now on", record.nqn);
    let note = Note::new(EventKind::HostChanged, "daemon", what);
    manager.record(note.cause(differences(&known.unwrap_or_default(), &record)));
    Ok(change(result, &record))
}

/// Refuses the removal of a TLS key that an export of the host requires.
fn check_secure_exports_of(
    manager: &Manager,
    record: &HostRecord,
    config: &Config,
) -> Result<(), ControlError> {
    let names = |export: &&ExportRecord| {
        export.nvme.as_ref().is_some_and(|nvme| nvme.hosts.contains(&record.nqn))
    };
    for export in manager.records.exports.iter().filter(names) {
        check_keys(export, config).map_err(|_| {
            let what = format!(
                "host {} may connect to export {}, which requires TLS, so the host needs a TLS key: keep its key, or \
                    generate another key: ",
                record.nqn, export.name
            );
            let (nqn, known, new_tls_key) = (record.nqn.clone(), true, true);
            let other = AddHostRequest { nqn, known, new_tls_key, ..AddHostRequest::default() };
            ControlError::state(say(what).run(other))
        })?;
    }
    Ok(())
}

/// Withdraws replaced secrets and keys whose time is over. If the change cannot be recorded, the servers refuse them
/// nevertheless, and a call after [`RETRY`] records it.
pub(crate) fn withdraw_old_keys(manager: &mut Manager, now: Instant) -> Result<(), ControlError> {
    let now_us = manager.options.clock.now_us();
    let ended = manager.records.hosts.iter().filter(|host| host.has_ended(now_us));
    let ended: Vec<HostRecord> = ended.cloned().collect();
    if ended.is_empty() {
        return Ok(());
    }
    for was in &ended {
        let keys = keys_of(&was.at(now_us))?;
        manager.exports.servers().for_each(|server| server.set_keys(&was.nqn, &keys));
    }
    if manager.exports.withdrawal_refused.is_some_and(|last| now < last + RETRY) {
        return Ok(());
    }
    let recorded = manager.records.change(|config| {
        for host in config.hosts.iter_mut().filter(|host| host.has_ended(now_us)) {
            *host = host.at(now_us);
        }
    });
    manager.exports.withdrawal_refused = recorded.is_err().then_some(now);
    recorded?;
    for was in ended {
        let is = was.at(now_us);
        let what = match (was.old_secrets == is.old_secrets, was.old_tls_key == is.old_tls_key) {
            (false, true) => "secret",
            (true, _) => "TLS key",
            (false, false) => "secret and TLS key",
        };
        let what = format!("the replaced {what} of host {} is no longer accepted", is.nqn);
        manager.record(Note::new(EventKind::HostChanged, "daemon", what));
    }
    Ok(())
}

/// The answer to a command about a host that may have no secrets.
pub(crate) fn host_change(manager: &Manager, result: &str, name: &str) -> HostChange {
    let known = manager.records.hosts.iter().find(|host| host.nqn == name).cloned();
    let new = || HostRecord { nqn: name.to_owned(), ..HostRecord::default() };
    change(result, &known.unwrap_or_else(new))
}

fn change(result: &str, record: &HostRecord) -> HostChange {
    HostChange { result: result.to_owned(), host: Some(message(record)), ..HostChange::default() }
}
