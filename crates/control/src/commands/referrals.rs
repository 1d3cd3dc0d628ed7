//! Referrals to other discovery controllers for hosts of NVMe/TCP exports (NVM Express Base, section 3.1.2.3).

use strake_api::v1::{
    AddReferralRequest, ListReferralsRequest, ListReferralsResponse, Referral, ReferralChange,
    RemoveReferralRequest,
};
use strake_wording::say;

use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::exports::referral::{is_at, referral_of, service_of};
use crate::limits::REFERRALS_MAX;
use crate::manager::Manager;
use crate::record::store::Config;

impl Manager {
    /// Adds a referral for hosts of all exports. For an existing referral, the result is "unchanged".
    ///
    /// # Errors
    /// If the address is unsuitable for referrals or is our own, there are too many referrals, or it cannot be
    /// recorded.
    pub fn add_referral(
        &mut self,
        request: &AddReferralRequest,
    ) -> Result<ReferralChange, ControlError> {
        self.check_open()?;
        let address = service_of(&request.address)?.to_string();
        let referral = referral_of(&address)?;
        if self.records.referrals.iter().any(|known| is_at(known, &address)) {
            return Ok(change("unchanged", address));
        }
        if self.exports.at(&referral.address.to_string()).is_some() {
            return Err(ControlError::usage(format!(
                "{address} is an address of this daemon; its hosts need no referral to it"
            )));
        }
        if self.records.referrals.len() >= REFERRALS_MAX {
            return Err(ControlError::state(format!(
                "there are {REFERRALS_MAX} referrals, the limit; remove one first"
            )));
        }
        let mut config = self.records.config.clone();
        config.referrals.push(address.clone());
        put_referrals(self, &config)?;
        let what = format!("discovery refers hosts to {address}");
        self.record(Note::new(EventKind::ReferralChanged, "daemon", what));
        Ok(change("created", address))
    }

    /// Removes a referral.
    ///
    /// # Errors
    /// If there is no such referral, or the removal cannot be recorded.
    pub fn remove_referral(
        &mut self,
        request: &RemoveReferralRequest,
    ) -> Result<ReferralChange, ControlError> {
        self.check_open()?;
        let address = service_of(&request.address)?.to_string();
        if !self.records.referrals.iter().any(|known| is_at(known, &address)) {
            let what = format!("there is no referral to {address}; see: ");
            return Err(ControlError::not_found(say(what).run(ListReferralsRequest {})));
        }
        let mut config = self.records.config.clone();
        config.referrals.retain(|known| !is_at(known, &address));
        put_referrals(self, &config)?;
        let what = format!("discovery no longer refers hosts to {address}");
        self.record(Note::new(EventKind::ReferralChanged, "daemon", what));
        Ok(change("removed", address))
    }

    /// Returns the referrals.
    #[must_use]
    pub fn list_referrals(&self) -> ListReferralsResponse {
        let message = |address: &String| Referral { address: address.clone() };
        ListReferralsResponse { referrals: self.records.referrals.iter().map(message).collect() }
    }
}

/// Records the referrals, and updates the servers.
fn put_referrals(manager: &mut Manager, config: &Config) -> Result<(), ControlError> {
    manager.records.put(config)?;
    manager.exports.servers().try_for_each(|server| server.refer(&manager.records.referrals))
}

fn change(result: &str, address: String) -> ReferralChange {
    ReferralChange { result: result.to_owned(), referral: Some(Referral { address }) }
}
