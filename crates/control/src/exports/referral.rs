//! Addresses of other discovery services.

use std::net::{IpAddr, SocketAddr};

use strake_dev_fabrics::Service;
use strake_export_nvmet as nvmet;

use crate::error::ControlError;

/// The service at an address, with the machine's IP address in its usual form: hosts that learn of a service in two
/// forms would ask it twice.
pub(crate) fn service_of(text: &str) -> Result<Service, ControlError> {
    let service: Service = text.parse().map_err(|error| ControlError::usage(format!("{error}")))?;
    Ok(match service.machine.parse::<IpAddr>() {
        Ok(machine) => Service { machine: machine.to_canonical().to_string(), ..service },
        Err(_) => service,
    })
}

/// Whether a recorded address is the one that has this usual form.
pub(crate) fn is_at(known: &str, address: &str) -> bool {
    service_of(known).is_ok_and(|service| service.to_string() == address)
}

/// The discovery log entry for the service at a recorded address.
pub(crate) fn referral_of(text: &str) -> Result<nvmet::Referral, ControlError> {
    let service = service_of(text)?;
    // Discovery logs have no names of machines: each host might take them for another one.
    let machine: IpAddr = service.machine.parse().map_err(|_| {
        ControlError::usage(format!(
            "a referral needs an IP address; give the IP address of {} instead of its name",
            service.machine
        ))
    })?;
    let address = SocketAddr::new(machine, service.port);
    if machine.is_unspecified() {
        return Err(ControlError::usage(format!(
            "{address} is not an address that hosts can connect to"
        )));
    }
    Ok(nvmet::Referral { address, nqn: service.nqn })
}
