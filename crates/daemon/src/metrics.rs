//! Metrics for monitoring systems, as OpenMetrics text over HTTP.
//!
//! Metrics are disabled unless an address is given. The values are copies of the reports of the gRPC interface, taken
//! for each request. This module keeps no state, and the data path is not involved. Labels are names from the operator
//! or paths of drives, and never text from hosts, so that no host can create time series.

// The rules of alerts and the dashboard are files of the package. The daemon does not need them, and the tests compare
// the files with these tables.
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod dashboard;
mod families;
#[cfg(test)]
mod generated;
mod place;
#[cfg(test)]
mod rules;
mod serve;
mod text;

#[cfg(test)]
mod tests;

use strake_api::v1::{
    Array, Daemon, Drive, DriveHealth, Export, Hook, Pool, Problem, Qos, Spare, SystemStatus,
};
use strake_control::{ArrayLatencies, Manager};

use crate::process;

pub use place::Place;
pub use serve::{Metrics, listen, prepare};

/// The state from which the metrics are computed, at one instant.
#[derive(Debug, Default)]
struct Snapshot {
    daemon: Daemon,
    arrays: Vec<Array>,
    drives: Vec<Drive>,
    /// The last health pages of the drives of members and of spares.
    health: Vec<DriveHealth>,
    exports: Vec<Export>,
    pools: Vec<Pool>,
    /// Objects with limits.
    limits: Vec<Qos>,
    spares: Vec<Spare>,
    hooks: Vec<Hook>,
    problems: Vec<Problem>,
    /// Listening addresses, each with the number of connections that were closed because of the connection limit.
    refused: Vec<(String, u64)>,
    is_state_writable: bool,
    /// The latencies of each running array.
    latencies: Vec<(String, ArrayLatencies)>,
}

impl Snapshot {
    fn take(manager: &mut Manager, socket: &str) -> Self {
        let daemon = manager.daemon(socket, process::memory_bytes(), process::cpu_us());
        let SystemStatus { daemon, arrays, exports, problems, .. } = manager.status(daemon);
        Self {
            daemon: daemon.unwrap_or_default(),
            arrays,
            drives: manager.open_drives(),
            health: manager.health_pages(),
            exports,
            pools: strake_control::pools_of(manager),
            limits: manager.limits(),
            spares: manager.list_spares().spares,
            hooks: manager.list_hooks().hooks,
            problems,
            refused: manager.refused_connections(),
            is_state_writable: manager.state_trouble().is_none(),
            latencies: manager.latencies(),
        }
    }

    /// Returns the metrics as OpenMetrics text.
    fn text(&self) -> String {
        let mut text = text::Text::default();
        for family in families::FAMILIES {
            text.begin(family);
            (family.samples)(self, &mut text);
        }
        text.end()
    }
}
