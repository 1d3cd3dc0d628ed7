//! Names of a remote namespace and of this host.

use std::fmt;
use std::str::FromStr;

use strake_nvme_auth::{Keys, TlsKey};
use strake_nvme_wire::nqn;

/// The prefix of every address.
pub const SCHEME: &str = "nvme-tcp://";

/// The port of NVMe/TCP (IANA: nvme).
const PORT: u16 = 4420;

/// The port of discovery services (TCP, section 3.1; IANA: nvme-disc).
const DISCOVERY_PORT: u16 = 8009;

/// The address of a namespace: `nvme-tcp://host:port/nqn?nsid=1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The host name or IP address of the target.
    pub machine: String,
    /// The TCP port.
    pub port: u16,
    /// The NQN of the subsystem.
    pub nqn: String,
    /// The namespace ID.
    pub nsid: u32,
}

/// The reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; write it like nvme-tcp://10.0.0.7:4420/nqn.2014-08.org.example?nsid=1",
            self.0
        )
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |what: &str| AddressError(format!("{text}: {what}"));
        let rest =
            text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with nvme-tcp://"))?;
        let (place, rest) =
            rest.split_once('/').ok_or_else(|| wrong("the name of the subsystem is missing"))?;
        let (name, query) = rest.split_once('?').map_or((rest, None), |(n, q)| (n, Some(q)));
        nqn::check(name).map_err(|error| wrong(&error.to_string()))?;
        let nsid = match query {
            None => 1,
            Some(query) => query
                .strip_prefix("nsid=")
                .and_then(|number| number.parse().ok())
                .filter(|&nsid| nsid != 0 && nsid != u32::MAX)
                .ok_or_else(|| {
                    wrong("behind the question mark there is nsid= and a number from 1 on")
                })?,
        };
        let (machine, port) = machine_of(place, PORT).map_err(wrong)?;
        Ok(Self { machine, port, nqn: name.to_owned(), nsid })
    }
}

/// Parses name and port of the target; returns the error otherwise.
fn machine_of(place: &str, usual: u16) -> Result<(String, u16), &'static str> {
    let (machine, port) = split_port(place, usual).ok_or("the port is no number")?;
    if machine.is_empty() || machine.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("the machine's name or address is missing");
    }
    Ok((machine.to_owned(), port))
}

/// Splits name and port; uses the port `usual` if none is given. An IPv6 address is in brackets.
fn split_port(place: &str, usual: u16) -> Option<(&str, u16)> {
    let (machine, port) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
    };
    match port.strip_prefix(':') {
        Some(port) => Some((machine, port.parse().ok().filter(|&port| port != 0)?)),
        None if port.is_empty() => Some((machine, usual)),
        None => None,
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, port, nqn, nsid } = self;
        write!(f, "{SCHEME}{}/{nqn}", Place(machine, *port))?;
        if *nsid == 1 { Ok(()) } else { write!(f, "?nsid={nsid}") }
    }
}

/// A name and its port, in the form that [`split_port`] parses.
struct Place<'a>(&'a str, u16);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(machine, port) = self;
        if machine.contains(':') {
            write!(f, "[{machine}]:{port}")
        } else {
            write!(f, "{machine}:{port}")
        }
    }
}

/// The address of a discovery service: `nvme-tcp://host:port`. A unique discovery NQN follows behind a slash (Base,
/// section 3.1.2.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// The host name or IP address of the target.
    pub machine: String,
    /// The TCP port.
    pub port: u16,
    /// The NQN of the discovery subsystem.
    pub nqn: String,
}

impl Service {
    /// The address of the discovery subsystem for a connection.
    pub(crate) fn subsystem(&self) -> Address {
        Address { machine: self.machine.clone(), port: self.port, nqn: self.nqn.clone(), nsid: 1 }
    }
}

/// The reason why a text is not an address of a discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError(String);

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write it like nvme-tcp://10.0.0.7:{DISCOVERY_PORT}", self.0)
    }
}

impl std::error::Error for ServiceError {}

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        let wrong = |what: &str| ServiceError(format!("{text}: {what}"));
        let rest =
            text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with nvme-tcp://"))?;
        let (place, name) = rest.split_once('/').unwrap_or((rest, ""));
        let nqn = if name.is_empty() { nqn::DISCOVERY } else { name };
        nqn::check(nqn).map_err(|error| wrong(&error.to_string()))?;
        let (machine, port) = machine_of(place, DISCOVERY_PORT).map_err(wrong)?;
        Ok(Self { machine, port, nqn: nqn.to_owned() })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", Place(&self.machine, self.port))?;
        if self.nqn == nqn::DISCOVERY { Ok(()) } else { write!(f, "/{}", self.nqn) }
    }
}

/// The identity of this host towards targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// The host NQN.
    pub nqn: String,
    /// The host identifier (Base, section 5.27.1.25).
    pub id: [u8; 16],
    /// The secret with which this host authenticates, and the secret for the authentication of the controller.
    pub keys: Option<Keys>,
    /// The TLS key; without one, connections do not use TLS.
    pub tls: Option<TlsKey>,
}

#[cfg(test)]
mod tests;
