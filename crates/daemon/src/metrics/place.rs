//! The address at which metrics are served.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of the metrics. It is always local, because clients do not authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket of mode 0660, for the users that may call the daemon.
    Unix(PathBuf),
    /// A loopback address, which other hosts cannot reach.
    Loopback(SocketAddr),
}

impl Place {
    /// Returns the path of the Unix socket; `None` for a loopback address.
    pub fn unix(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Loopback(_) => None,
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err("write unix:/absolute/path".to_owned()),
            };
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            "write unix:/absolute/path, or a loopback address such as 127.0.0.1:9464".to_owned()
        })?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{} can be reached by other hosts, and metrics need no authentication; use a loopback address, with \
                 an authenticating proxy in front of it where other hosts need them",
                address.ip()
            ));
        }
        Ok(Self::Loopback(address))
    }
}
