//! Metrics for monitoring systems, as OpenMetrics text over HTTP.
//!
//! Metrics are disabled unless an address is given. The values are copies of the reports of the gRPC interface, taken
//! for each request. This module keeps no state, and the data path is not involved. Labels are names from the operator
//! or paths of drives, and never text from hosts, so that no host can create time series.

mod families;
mod place;
mod serve;
mod text;

#[cfg(test)]
mod tests;

use strake_api::v1::{Array, Daemon, Drive, Export};
use strake_control::Manager;

use crate::process;

pub use place::Place;
pub use serve::{Metrics, listen};

/// The state from which the metrics are computed, at one instant.
#[derive(Debug, Default)]
struct Snapshot {
    daemon: Daemon,
    arrays: Vec<Array>,
    drives: Vec<Drive>,
    exports: Vec<Export>,
}

impl Snapshot {
    fn take(manager: &mut Manager, socket: &str) -> Self {
        Self {
            daemon: manager.daemon(socket, process::memory_bytes(), process::cpu_us()),
            arrays: manager.arrays(),
            drives: manager.open_drives(),
            exports: manager.exports(),
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
