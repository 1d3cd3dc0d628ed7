//! Discovery of the subsystems that remote NVMe/TCP discovery controllers list.

use strake_api::v1::{DiscoverDrivesRequest, DiscoverDrivesResponse, Offer};
use strake_dev_fabrics::discovery::{self, Channel, Entry, EntryError, Kind, Transport};
use strake_dev_fabrics::{Address, HostName, LinkState, Options, Service};
use strake_units::Uuid;
use strake_wording::is_plain;

use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::remote::record::{check_secrets, keys_of, refusal, tls_key_of, to_choose};

/// The parameters of a connection to a discovery controller.
#[derive(Clone, Copy)]
struct With {
    tls_key: bool,
}

impl Control {
    /// Queries the discovery log page of a discovery controller. The duration depends on the controller.
    ///
    /// # Errors
    /// If the address is invalid, or the controller cannot be reached, refuses the connection or violates the protocol.
    pub fn discover_drives(
        &self,
        request: &DiscoverDrivesRequest,
    ) -> Result<DiscoverDrivesResponse, ControlError> {
        let service: Service =
            request.address.parse().map_err(|error| ControlError::usage(format!("{error}")))?;
        let (secret, controller) = (request.secret.trim(), request.controller_secret.trim());
        check_secrets(secret, controller)?;
        let keys = keys_of(&request.address, secret, controller)?;
        let tls = tls_key_of(&request.address, request.tls_key.trim())?;
        let (nqn, id) = self.run(|m| m.records.host_name(&request.host_nqn))?;
        let id: Uuid = id.parse().unwrap_or(Uuid::NIL);
        let host = HostName { nqn, id: id.0, keys, tls };
        let digests = Options::default().digests;
        let again = DiscoverDrivesRequest {
            address: request.address.clone(),
            host_nqn: request.host_nqn.clone(),
            secret: to_choose(secret),
            controller_secret: to_choose(controller),
            tls_key: to_choose(request.tls_key.trim()),
        };
        let found = discovery::discover(&service, &host, digests)
            .map_err(|error| refusal(&error, (&host.keys, &host.tls), again))?;
        let with = With { tls_key: host.tls.is_some() };
        let offers =
            self.with(|m| found.into_iter().map(|entry| offer_of(m, entry, with)).collect())?;
        Ok(DiscoverDrivesResponse { host_nqn: host.nqn, offers })
    }
}

fn offer_of(manager: &Manager, entry: Result<Entry, EntryError>, with: With) -> Offer {
    let entry = match entry {
        Ok(entry) => entry,
        Err(why) => {
            let (kind, note) = ("unknown".to_owned(), format!("cannot be used: {why}"));
            return Offer { kind, note, ..Offer::default() };
        }
    };
    let address = address_of(&entry);
    let note = match (&address, entry.channel) {
        (None, _) if entry.transport == Transport::Tcp => {
            "its address is missing, or has characters that a shell interprets"
        }
        (None, _) => "it does not use TCP",
        (Some(_), Channel::Required) if with.tls_key => {
            "it requires TLS; connect with the same key, if the key is also valid for that subsystem"
        }
        (Some(_), Channel::Required) => "it requires TLS; connect with its key",
        (Some(_), Channel::NotSpecified | Channel::NotRequired) => "",
    };
    let drives = manager.records.remotes_of(&entry.nqn);
    let is_up = |address: &&String| {
        manager.drives.remote(address).is_some_and(|device| device.state() == LinkState::Up)
    };
    Offer {
        connected: drives.iter().filter(is_up).cloned().collect(),
        kind: kind_word(entry.kind).to_owned(),
        address: address.unwrap_or_default(),
        transport: transport_word(entry.transport).to_owned(),
        secure_channel: channel_word(entry.channel).to_owned(),
        drives,
        note: note.to_owned(),
        nqn: entry.nqn,
    }
}

/// Returns the address for commands; `None` if there is none.
fn address_of(entry: &Entry) -> Option<String> {
    if entry.transport != Transport::Tcp {
        return None;
    }
    let (machine, nqn) = (entry.address.clone(), entry.nqn.clone());
    let port = entry.service.parse().ok().filter(|&port| port != 0)?;
    // Brackets belong to IPv6 addresses. Text from a remote host must have the same meaning when an operator types it
    // in a shell.
    let text = match entry.kind {
        Kind::Subsystem => {
            let address = Address { machine, port, nqn, nsid: 1 };
            let text = address.to_string();
            (text.parse() == Ok(address)).then_some(text)
        }
        Kind::Referral | Kind::Itself => {
            let service = Service { machine, port, nqn };
            let text = service.to_string();
            (text.parse() == Ok(service)).then_some(text)
        }
    };
    text.filter(|text| text.chars().all(|c| is_plain(c) || "[]".contains(c)))
}

const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Subsystem => "subsystem",
        Kind::Referral => "referral",
        Kind::Itself => "self",
    }
}

const fn transport_word(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Rdma => "rdma",
        Transport::FibreChannel => "fc",
        Transport::Other(_) => "other",
    }
}

const fn channel_word(channel: Channel) -> &'static str {
    match channel {
        Channel::Required => "required",
        Channel::NotRequired => "not_required",
        Channel::NotSpecified => "not_specified",
    }
}

#[cfg(test)]
mod tests;
