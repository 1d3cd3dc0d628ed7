//! Other discovery services that hosts of our exports over NVMe/TCP are told of (NVM Express Base, section 3.1.2.3).

use std::net::{IpAddr, SocketAddr};

use strake_api::v1::{
    AddReferralRequest, ListReferralsResponse, Referral, ReferralChange, RemoveReferralRequest,
};
use strake_dev_fabrics::Service;
use strake_export_nvmet as nvmet;

use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::REFERRALS_MAX;
use crate::manager::Manager;
use crate::store::{Config, Prepared};

/// The service at an address, with the machine's IP address in its usual form: hosts would ask one twice that they are
/// told of in two ways.
fn service_of(text: &str) -> Result<Service, ControlError> {
    let service: Service = text.parse().map_err(|error| ControlError::usage(format!("{error}")))?;
    Ok(match service.machine.parse::<IpAddr>() {
        Ok(machine) => Service { machine: machine.to_canonical().to_string(), ..service },
        Err(_) => service,
    })
}

/// Whether a recorded address is the one that has this usual form.
fn is_at(known: &str, address: &str) -> bool {
    service_of(known).is_ok_and(|service| service.to_string() == address)
}

/// What targets tell of the service at a recorded address.
pub(crate) fn referral_of(text: &str) -> Result<nvmet::Referral, ControlError> {
    let service = service_of(text)?;
    // Discovery logs have no names of machines: each host might take them for another one.
    let machine: IpAddr = service.machine.parse().map_err(|_| {
        ControlError::usage(format!(
            "referrals need IP addresses; give that of {} instead of its name",
            service.machine
        ))
    })?;
    let address = SocketAddr::new(machine, service.port);
    if machine.is_unspecified() {
        return Err(ControlError::usage(format!("{address} is no address to connect to")));
    }
    Ok(nvmet::Referral { address, nqn: service.nqn })
}

impl Manager {
    /// Has hosts of all exports be told of another discovery service, from now on. The same again is "unchanged".
    ///
    /// # Errors
    /// When the address is none that hosts can be told of, or ours, there are too many, or it cannot be recorded.
    pub fn add_referral(
        &mut self,
        request: &AddReferralRequest,
    ) -> Result<ReferralChange, ControlError> {
        self.check_open()?;
        let address = service_of(&request.address)?.to_string();
        let referral = referral_of(&address)?;
        if self.config.referrals.iter().any(|known| is_at(known, &address)) {
            return Ok(change("unchanged", address));
        }
        if self.servers.contains_key(&referral.address.to_string()) {
            return Err(ControlError::usage(format!(
                "{address} is this daemon itself, which hosts that ask it know already"
            )));
        }
        if self.config.referrals.len() >= REFERRALS_MAX {
            return Err(ControlError::state(format!(
                "there are {REFERRALS_MAX} referrals, the limit; remove one first"
            )));
        }
        let mut config = self.config.clone();
        config.referrals.push(address.clone());
        self.refer(&config)?;
        let what = format!("discovery refers hosts to {address}");
        self.record(Note::new(EventKind::ReferralChanged, "daemon", what));
        Ok(change("created", address))
    }

    /// Tells hosts of a discovery service no more.
    ///
    /// # Errors
    /// When they are not told of it, or that cannot be recorded.
    pub fn remove_referral(
        &mut self,
        request: &RemoveReferralRequest,
    ) -> Result<ReferralChange, ControlError> {
        self.check_open()?;
        let address = service_of(&request.address)?.to_string();
        if !self.config.referrals.iter().any(|known| is_at(known, &address)) {
            return Err(ControlError::not_found(format!(
                "there is no referral to {address}; see: strake export referral list"
            )));
        }
        let mut config = self.config.clone();
        config.referrals.retain(|known| !is_at(known, &address));
        self.refer(&config)?;
        let what = format!("discovery no longer refers hosts to {address}");
        self.record(Note::new(EventKind::ReferralChanged, "daemon", what));
        Ok(change("removed", address))
    }

    /// The discovery services that hosts are told of.
    #[must_use]
    pub fn list_referrals(&self) -> ListReferralsResponse {
        let message = |address: &String| Referral { address: address.clone() };
        ListReferralsResponse { referrals: self.config.referrals.iter().map(message).collect() }
    }

    /// Records what hosts are told of, and tells them.
    fn refer(&mut self, config: &Config) -> Result<(), ControlError> {
        self.config = self.store.prepare(config).and_then(Prepared::commit)?;
        self.servers.values().try_for_each(|server| server.refer(&self.config.referrals))
    }
}

fn change(result: &str, address: String) -> ReferralChange {
    ReferralChange { result: result.to_owned(), referral: Some(Referral { address }) }
}
