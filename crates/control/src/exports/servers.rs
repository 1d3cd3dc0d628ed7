//! What serves an address: one protocol, and the exports that share it.

use std::net::SocketAddr;
use std::sync::Arc;

use strake_export_nbd::{self as nbd, Listen, Removal, SharedRights};
use strake_export_net::LimitGate;
use strake_export_nvmet::{
    self as nvmet, ControllerStats, Dismissal, ExportStats, Leaving, Rejection, Reservations,
    Target, TargetConfig,
};
use strake_reactor::CoreHandle;
use strake_units::{Nanos, Uuid};
use strake_wording::Amendment;

use crate::error::ControlError;
use crate::exports::address_reports::Counts;
use crate::exports::keys::HostKeys;
use crate::exports::offered::Offered;
use crate::exports::referral::referral_of;
use crate::record::reserved::ReservationFile;
use crate::record::store::{ExportRecord, SubsystemRecord};

/// A server of one protocol at one address.
pub(crate) enum ExportServer {
    Nbd(nbd::Server),
    Nvme(Target),
}

fn nbd_listen(text: &str) -> Result<Listen, ControlError> {
    let bad = || {
        ControlError::usage(format!(
            "cannot listen on {text:?}; write unix:/absolute/path, or a loopback address such as 127.0.0.1:10809"
        ))
    };
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.starts_with('/') { Ok(Listen::unix(path)) } else { Err(bad()) };
    }
    text.parse::<SocketAddr>().map(Listen::Tcp).map_err(|_| bad())
}

fn nvme_listen(text: &str) -> Result<SocketAddr, ControlError> {
    text.parse().map_err(|_| {
        ControlError::usage(format!(
            "cannot listen on {text:?}; NVMe/TCP needs an address and a port, such as 192.0.2.1:4420"
        ))
    })
}

/// Whether the address of a record can be one of its protocol.
pub(crate) fn check_listen(record: &ExportRecord) -> Result<(), ControlError> {
    match record.nvme {
        Some(_) => nvme_listen(&record.listen).map(drop),
        None => nbd_listen(&record.listen).map(drop),
    }
}

/// Whether it could be listened on now.
pub(crate) fn try_listen(record: &ExportRecord) -> Result<(), ControlError> {
    match record.nvme {
        Some(_) => Ok(nvmet::try_listen(nvme_listen(&record.listen)?)?),
        None => Ok(nbd::try_listen(nbd_listen(&record.listen)?)?),
    }
}

/// What a client is given to connect (for NBD, the NBD URI specification).
pub(crate) fn uri(record: &ExportRecord) -> String {
    let ExportRecord { name, listen, .. } = record;
    match (&record.nvme, listen.strip_prefix("unix:")) {
        (Some(subsystem), _) => format!("nvme-tcp://{listen}/{}", subsystem.nqn),
        (None, Some(path)) => format!("nbd+unix:///{name}?socket={path}"),
        (None, None) => format!("nbd://{listen}/{name}"),
    }
}

/// The namespace of a record, without its device.
fn namespace_of(
    record: &ExportRecord,
    subsystem: &SubsystemRecord,
) -> Result<nvmet::Export, ControlError> {
    let subject = record.subject();
    let uuid: Uuid = subject
        .parse()
        .map_err(|_| ControlError::usage(format!("{subject:?} is not the UUID of an array")))?;
    Ok(nvmet::Export {
        nqn: subsystem.nqn.clone(),
        namespace: subsystem.namespace,
        uuid: uuid.0,
        device: None,
        read_only: record.read_only,
        ledger: None,
        hosts: subsystem.hosts.clone(),
        secure: subsystem.secure,
        limits: None,
    })
}

fn another_protocol(record: &ExportRecord) -> ControlError {
    let what =
        format!("{} is used by exports of another protocol; choose another address", record.listen);
    ControlError::state(what).unless(Amendment::Address, ": ")
}

/// Stops a server, unless a command still waits for requests to one of its exports: it ends with that command.
pub(crate) fn stop(server: Arc<ExportServer>) -> Result<(), ControlError> {
    Arc::into_inner(server).map_or(Ok(()), ExportServer::stop)
}

/// What holds for the clients of an export.
pub(crate) struct Clients {
    /// The reservations, which outlast the daemon.
    pub(crate) ledger: Arc<ReservationFile>,
    /// The rights of clients without reservations.
    pub(crate) rights: Arc<SharedRights>,
    /// The limits of I/O.
    pub(crate) limits: Arc<LimitGate>,
}

impl ExportServer {
    /// Listens where `record` says.
    pub(crate) fn start(
        record: &ExportRecord,
        cores: Vec<CoreHandle>,
    ) -> Result<Self, ControlError> {
        Ok(match record.nvme {
            Some(_) => {
                let address = nvme_listen(&record.listen)?;
                Self::Nvme(Target::start(address, cores, TargetConfig::default())?)
            }
            None => {
                let listen = nbd_listen(&record.listen)?;
                Self::Nbd(nbd::Server::start(listen, cores, nbd::ServerConfig::default())?)
            }
        })
    }

    /// Has a host prove who it is and use TLS, or believes its name again. Protocols without names of hosts do not
    /// care.
    pub(crate) fn set_keys(&self, host: &str, keys: &HostKeys) {
        match self {
            Self::Nbd(_) => {}
            Self::Nvme(target) => {
                target.set_proof_keys(host, keys.proof.clone());
                target.set_tls_keys(host, keys.tls.clone());
            }
        }
    }

    /// Replaces the hosts that may connect to an export by those of its record, and disconnects the others. Waits for
    /// nothing itself: the result does, for I/O in flight. `None` if the export is not offered over NVMe/TCP.
    pub(crate) fn set_hosts(&self, record: &ExportRecord) -> Option<Dismissal> {
        let (target, nvme) = self.nvme(record)?;
        target.set_hosts(&nvme.nqn, &nvme.hosts)
    }

    /// Disconnects a host from all exports, as [`set_hosts`](Self::set_hosts) does. `None` if it is not connected.
    pub(crate) fn disconnect_host(&self, host: &str) -> Option<Dismissal> {
        match self {
            Self::Nbd(_) => None,
            Self::Nvme(target) => target.disconnect_host(host),
        }
    }

    /// Refers hosts to these other discovery services. Protocols without discovery do nothing.
    pub(crate) fn refer(&self, referrals: &[String]) -> Result<(), ControlError> {
        match self {
            Self::Nbd(_) => Ok(()),
            Self::Nvme(target) => {
                let all = referrals.iter().map(|address| referral_of(address));
                Ok(target.set_referrals(all.collect::<Result<_, _>>()?)?)
            }
        }
    }

    /// Rejected hosts to report now. Protocols without names of hosts reject none.
    pub(crate) fn take_rejections(&self, now: Nanos) -> Vec<Rejection> {
        match self {
            Self::Nbd(_) => Vec::new(),
            Self::Nvme(target) => target.take_rejections(now),
        }
    }

    /// Its address, with the port the kernel chose if none was given; `None` for a unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Nbd(server) => server.address(),
            Self::Nvme(target) => Some(target.address()),
        }
    }

    /// Offers an array or a volume.
    pub(crate) fn add(
        &self,
        record: &ExportRecord,
        offered: &Offered,
        Clients { ledger, rights, limits }: Clients,
    ) -> Result<(), ControlError> {
        match (self, &record.nvme) {
            (Self::Nbd(server), None) => Ok(server.add_export(nbd::Export {
                name: record.name.clone(),
                description: offered.description.clone(),
                device: Arc::clone(&offered.device),
                extents: offered.extents.clone(),
                read_only: record.read_only || offered.device.info().read_only,
                rights,
                limits: Some(limits),
            })?),
            (Self::Nvme(target), Some(subsystem)) => {
                let mut export = namespace_of(record, subsystem)?;
                export.device = Some(Arc::clone(&offered.device));
                export.read_only |= offered.device.info().read_only;
                export.ledger = Some(ledger);
                export.limits = Some(limits);
                Ok(target.add_export(&export)?)
            }
            (Self::Nbd(_), Some(_)) | (Self::Nvme(_), None) => Err(another_protocol(record)),
        }
    }

    /// Lets hosts find an export whose array is not there yet. Protocols that cannot make a client wait do nothing.
    pub(crate) fn announce(&self, record: &ExportRecord) -> Result<(), ControlError> {
        match (self, &record.nvme) {
            (Self::Nbd(_), None) => Ok(()),
            (Self::Nvme(target), Some(subsystem)) => {
                Ok(target.add_export(&namespace_of(record, subsystem)?)?)
            }
            (Self::Nbd(_), Some(_)) | (Self::Nvme(_), None) => Err(another_protocol(record)),
        }
    }

    /// Why the last change of the reservations of an export was not recorded.
    pub(crate) fn reservation_trouble(&self, record: &ExportRecord) -> Option<String> {
        let (target, nvme) = self.nvme(record)?;
        target.reservation_trouble(&nvme.nqn, nvme.namespace)
    }

    /// The reservations of an export, if it can have some and its array is or was served.
    pub(crate) fn reservations(&self, record: &ExportRecord) -> Option<Reservations> {
        let (target, nvme) = self.nvme(record)?;
        target.reservations(&nvme.nqn, nvme.namespace)
    }

    /// The hosts that are connected to an export, where the protocol knows them apart.
    pub(crate) fn controllers(&self, record: &ExportRecord) -> Vec<ControllerStats> {
        self.nvme(record).map_or_else(Vec::new, |(target, nvme)| target.controllers(&nvme.nqn))
    }

    /// Ends the reservations of an export.
    pub(crate) fn clear_reservations(&self, record: &ExportRecord) -> Result<(), ControlError> {
        match self.nvme(record) {
            Some((target, nvme)) => Ok(target.clear_reservations(&nvme.nqn, nvme.namespace)?),
            None => Ok(()),
        }
    }

    /// True when clients find an export here, be its array there or not.
    pub(crate) fn offers(&self, record: &ExportRecord) -> bool {
        match (self, &record.nvme) {
            (Self::Nvme(target), Some(nvme)) => target.offers(&nvme.nqn, nvme.namespace),
            (Self::Nbd(_), _) | (Self::Nvme(_), None) => self.done(record).is_some(),
        }
    }

    /// Has hosts wait for the array of an export, where the protocol can make them. Waits for nothing itself: what
    /// is returned does, for what is in flight.
    pub(crate) fn suspend(&self, record: &ExportRecord) -> Option<Leaving> {
        let (target, nvme) = self.nvme(record)?;
        Some(target.detach_device(&nvme.nqn, nvme.namespace))
    }

    /// The target that offers the export, when it does so over NVMe/TCP.
    fn nvme<'a>(&'a self, record: &'a ExportRecord) -> Option<(&'a Target, &'a SubsystemRecord)> {
        match (self, &record.nvme) {
            (Self::Nvme(target), Some(nvme)) => Some((target, nvme)),
            (Self::Nbd(_), _) | (Self::Nvme(_), None) => None,
        }
    }

    /// The same for an array that is started again at once: what hosts send meanwhile waits for it.
    pub(crate) fn pause(&self, record: &ExportRecord) -> Option<Leaving> {
        let (target, nvme) = self.nvme(record)?;
        Some(target.pause_device(&nvme.nqn, nvme.namespace))
    }

    /// Says that the array of a suspended export will come back with everything that it acknowledged.
    pub(crate) fn keep_instance(&self, record: &ExportRecord) {
        if let Some((target, nvme)) = self.nvme(record) {
            target.keep_instance(&nvme.nqn, nvme.namespace);
        }
    }

    /// Takes that back.
    pub(crate) fn forget_instance(&self, record: &ExportRecord) {
        if let Some((target, nvme)) = self.nvme(record) {
            target.forget_instance(&nvme.nqn, nvme.namespace);
        }
    }

    /// How many connections were closed at once because there were as many as there can be.
    pub(crate) fn turned_away(&self) -> u64 {
        match self {
            Self::Nbd(server) => server.turned_away(),
            Self::Nvme(target) => target.turned_away(),
        }
    }

    /// The counters whose increases are reported.
    pub(crate) fn counts(&self) -> Counts {
        let panics = match self {
            Self::Nbd(server) => server.panics(),
            Self::Nvme(target) => target.panics(),
        };
        Counts { turned_away: self.turned_away(), panics }
    }

    /// What an export has done; `None` when it is not offered here.
    pub(crate) fn done(&self, record: &ExportRecord) -> Option<ExportStats> {
        let (all, name, namespace) = match (self, &record.nvme) {
            (Self::Nbd(server), None) => (server.exports(), &record.name, 0),
            (Self::Nvme(target), Some(nvme)) => (target.exports(), &nvme.nqn, nvme.namespace),
            (Self::Nbd(_), Some(_)) | (Self::Nvme(_), None) => return None,
        };
        all.into_iter().find(|stats| (&stats.name, stats.namespace) == (name, namespace))
    }

    /// Withdraws an export that is offered here.
    pub(crate) fn remove(
        &self,
        record: &ExportRecord,
        removal: Removal,
    ) -> Result<(), ControlError> {
        match (self, &record.nvme) {
            (Self::Nbd(server), None) => Ok(server.remove_export(&record.name, removal)?),
            (Self::Nvme(target), Some(subsystem)) => {
                Ok(target.remove_export(&subsystem.nqn, subsystem.namespace, removal)?)
            }
            (Self::Nbd(_), Some(_)) | (Self::Nvme(_), None) => Ok(()),
        }
    }

    /// True when nothing is offered here.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Nbd(server) => server.exports().is_empty(),
            Self::Nvme(target) => target.is_empty(),
        }
    }

    /// Stops it.
    fn stop(self) -> Result<(), ControlError> {
        match self {
            Self::Nbd(server) => Ok(server.stop()?),
            Self::Nvme(target) => Ok(target.stop()?),
        }
    }
}
