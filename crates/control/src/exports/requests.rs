//! From a request for an export to its record: protocol, options, conflicts with other exports.

use strake_api::v1::{CreateExportRequest, ImportArraysRequest};
use strake_export_nvmet::limits::NAMESPACES_MAX;
use strake_export_nvmet::nqn;
use strake_units::Name;
use strake_wording::{command, import, say};

use crate::error::ControlError;
use crate::exports::exposure::check_exposure;
use crate::exports::keys::check_keys;
use crate::exports::servers;
use crate::limits::EXPORTS_MAX;
use crate::record::store::{ArrayRecord, Config, ExportRecord, SubsystemRecord, VolumeRef};
use crate::remedy::remove_export;

/// Whether an export admits a host.
pub(crate) fn allows(export: &ExportRecord, host: &str) -> bool {
    export.nvme.as_ref().is_some_and(|nvme| nvme.hosts.iter().any(|name| name == host))
}

/// Ways of offering an array, as they are named in requests.
const NBD: &str = "nbd";

const NVME_TCP: &str = "nvme-tcp";

/// The request that makes what is recorded.
pub(crate) fn request_of(record: &ExportRecord) -> CreateExportRequest {
    let nvme = record.nvme.clone();
    let via = if nvme.is_some() { NVME_TCP } else { NBD }.to_owned();
    let (nqn, allow_hosts, namespace, secure, insecure) = nvme
        .map(|nvme| (nvme.nqn, nvme.hosts, nvme.namespace, nvme.secure, nvme.insecure))
        .unwrap_or_default();
    CreateExportRequest {
        array: record.array.clone(),
        name: record.name.clone(),
        via,
        listen: record.listen.clone(),
        read_only: record.read_only,
        nqn,
        allow_hosts,
        namespace,
        secure,
        insecure,
    }
}

/// True when a request says something that only NVMe/TCP knows.
fn says_nvme(request: &CreateExportRequest) -> bool {
    let named = !request.nqn.is_empty() || !request.allow_hosts.is_empty();
    named || request.namespace > 0 || request.secure || request.insecure
}

/// The hosts that a request names, or one that the operator has to choose.
fn hosts_of(request: &CreateExportRequest) -> Vec<String> {
    match request.allow_hosts.as_slice() {
        [] => vec!["NQN".to_owned()],
        hosts => hosts.to_vec(),
    }
}

/// What NVMe/TCP needs to know, if that is what is asked for.
fn subsystem_of(
    request: &CreateExportRequest,
    array: &str,
    config: &Config,
) -> Result<Option<SubsystemRecord>, ControlError> {
    match request.via.as_str() {
        "" | NBD if says_nvme(request) => {
            let what = say("NBD has no subsystems, namespaces, host names or host keys: ")
                .run(CreateExportRequest {
                    nqn: String::new(),
                    allow_hosts: Vec::new(),
                    namespace: 0,
                    secure: false,
                    insecure: false,
                    ..request.clone()
                })
                .say(", or, over NVMe/TCP: ")
                .run(CreateExportRequest {
                    via: NVME_TCP.to_owned(),
                    allow_hosts: hosts_of(request),
                    ..request.clone()
                });
            return Err(ControlError::usage(what));
        }
        "" | NBD => return Ok(None),
        NVME_TCP => {}
        other => {
            return Err(ControlError::usage(format!(
                "cannot export via {other:?}; this version offers nbd and nvme-tcp"
            )));
        }
    }
    if request.secure && request.insecure {
        let tls = CreateExportRequest { insecure: false, ..request.clone() };
        let what = say("an export cannot both require TLS and accept data without encryption: ");
        return Err(ControlError::usage(what.run(tls)));
    }
    if request.allow_hosts.is_empty() {
        let named = CreateExportRequest { allow_hosts: hosts_of(request), ..request.clone() };
        let what =
            say("name the hosts that may connect; a Linux host has its NQN in /etc/nvme/hostnqn: ");
        return Err(ControlError::usage(what.run(named)));
    }
    let mut hosts = request.allow_hosts.clone();
    hosts.sort();
    hosts.dedup();
    let nqn = match request.nqn.as_str() {
        "" => format!("{}{array}", nqn::UUID_PREFIX),
        given => given.to_owned(),
    };
    for name in hosts.iter().chain([&nqn]) {
        nqn::check(name)
            .map_err(|e| ControlError::usage(format!("{name:?} is not a valid NQN: {e}")))?;
    }
    let namespace = namespace_of(request.namespace, &nqn, array, config)?;
    let CreateExportRequest { secure, insecure, .. } = *request;
    Ok(Some(SubsystemRecord { nqn, hosts, namespace, secure, insecure }))
}

/// The number of an array's namespace: the one `given`, the one that it has, or the lowest that is free in the
/// subsystem.
fn namespace_of(given: u32, nqn: &str, array: &str, config: &Config) -> Result<u32, ControlError> {
    if given > NAMESPACES_MAX {
        let what = format!("namespace {given} is invalid; valid numbers are 1 to {NAMESPACES_MAX}");
        return Err(ControlError::usage(what));
    }
    let records = config.exports.iter().filter_map(|e| Some((e.subject(), e.nvme.as_ref()?)));
    let known: Vec<_> = records.filter(|(_, nvme)| nvme.nqn == nqn).collect();
    let own = known.iter().find(|(other, _)| *other == array).map(|(_, nvme)| nvme.namespace);
    let is_free = |number: &u32| known.iter().all(|(_, nvme)| nvme.namespace != *number);
    let wanted = (given > 0).then_some(given).or(own);
    wanted.or_else(|| (1..=NAMESPACES_MAX).find(is_free)).ok_or_else(|| {
        ControlError::state(format!("subsystem {nqn} has {NAMESPACES_MAX} namespaces, the limit"))
    })
}

/// Refuses an array that is offered already, because hosts would take the second namespace for the first, and one that
/// does not fit the subsystem it names.
fn check_subsystem(
    request: &CreateExportRequest,
    record: &ExportRecord,
    config: &Config,
) -> Result<(), ControlError> {
    let Some(wanted) = &record.nvme else { return Ok(()) };
    let others = config.exports.iter().filter(|other| other.name != record.name);
    for (other, nvme) in others.filter_map(|other| Some((other, other.nvme.as_ref()?))) {
        let name = &other.name;
        let what = if record.volume.is_some() { "volume" } else { "array" };
        let why = if other.subject() == record.subject() {
            say(format!(
                "export {name} offers this {what} over NVMe/TCP already; remove that export first: "
            ))
            .run(remove_export(name))
        } else if nvme.nqn != wanted.nqn {
            continue;
        } else if nvme.namespace == wanted.namespace {
            say(format!(
                "export {name} is namespace {} of this subsystem already; to use a free number: ",
                nvme.namespace
            ))
            .run(CreateExportRequest { namespace: 0, ..request.clone() })
        } else if (&other.listen, &nvme.hosts, nvme.secure)
            != (&record.listen, &wanted.hosts, wanted.secure)
        {
            say(format!(
                "export {name} is in this subsystem. All namespaces of a subsystem must have the same address, hosts \
                    and security: "
            ))
            .run(CreateExportRequest {
                listen: other.listen.clone(),
                secure: nvme.secure,
                allow_hosts: nvme.hosts.clone(),
                ..request.clone()
            })
        } else {
            continue;
        };
        return Err(ControlError::exists(why));
    }
    Ok(())
}

/// What is exported: an array, or a volume of a pool on the array.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The name of an export without a name of its own.
    pub(crate) name: String,
    /// Identity of the array.
    pub(crate) array: String,
    /// The volume, if the array itself is not exported.
    pub(crate) volume: Option<VolumeRef>,
    /// True for a snapshot.
    pub(crate) is_read_only: bool,
}

impl Wanted {
    /// An array.
    pub(crate) fn array(name: impl Into<String>, uuid: impl Into<String>) -> Self {
        let (name, array) = (name.into(), uuid.into());
        Self { name, array, volume: None, is_read_only: false }
    }
}

/// What an export of `wanted` is recorded as; true when it is in `config` already.
pub(crate) fn record_of(
    request: &CreateExportRequest,
    config: &Config,
    wanted: Wanted,
) -> Result<(ExportRecord, bool), ControlError> {
    if config.exports.len() >= EXPORTS_MAX {
        return Err(ControlError::state(format!(
            "there are {EXPORTS_MAX} exports, the limit of one daemon; remove one first"
        )));
    }
    let record = valid_record(request, config, wanted)?;
    check_subsystem(request, &record, config)?;
    check_keys(&record, config)?;
    match config.exports.iter().find(|e| e.name == record.name) {
        Some(existing) if *existing != record => {
            let what = format!("export {} already exists; remove it first: ", record.name);
            Err(ControlError::exists(say(what).run(remove_export(&record.name))))
        }
        // An export of an earlier version stays as it is.
        Some(_) => Ok((record, true)),
        None => check_exposure(request, &record, config).map(|()| (record, false)),
    }
}

/// Whether every field of a record that was read from a drive is one that a request could have made.
pub(crate) fn check_fields(record: &ExportRecord) -> Result<(), ControlError> {
    let wanted = Wanted::array(&record.name, &record.array);
    valid_record(&request_of(record), &Config::default(), wanted).map(drop)
}

/// What an export of `wanted` is recorded as, as far as that depends on no other export and no key.
fn valid_record(
    request: &CreateExportRequest,
    config: &Config,
    wanted: Wanted,
) -> Result<ExportRecord, ControlError> {
    let Wanted { name, array, volume, is_read_only } = wanted;
    let name = if request.name.is_empty() { name } else { request.name.clone() };
    let name: Name = name.parse().map_err(|e| ControlError::usage(format!("export name: {e}")))?;
    let mut record = ExportRecord {
        name: name.to_string(),
        array,
        volume,
        listen: request.listen.clone(),
        read_only: request.read_only || is_read_only,
        nvme: None,
    };
    record.nvme = subsystem_of(request, &record.subject(), config)?;
    servers::check_listen(&record)?;
    Ok(record)
}

/// Forgets exports that members record and that are not offered.
pub(crate) fn forget_kept(config: &mut Config, which: impl Fn(&ExportRecord) -> bool) {
    for array in &mut config.arrays {
        array.kept_exports.retain(|kept| !which(kept));
        let ArrayRecord { kept_exports, kept_hosts, .. } = array;
        kept_hosts.retain(|host| kept_exports.iter().any(|export| allows(export, &host.nqn)));
    }
}

/// What is said of an export that the members of array `name` record and that is not offered here.
pub(crate) fn not_offered(export: &ExportRecord, name: &str) -> String {
    let offer = CreateExportRequest { array: name.to_owned(), ..request_of(export) };
    let all = ImportArraysRequest { exports: true, ..import(name) };
    format!(
        "the members record export {} on {}, which this daemon does not offer; to offer this export: {}; to offer all \
            recorded exports: {}; to delete the record: {}",
        export.name,
        export.listen,
        command(&offer),
        command(&all),
        command(&remove_export(&export.name))
    )
}
