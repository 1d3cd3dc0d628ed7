//! Figures for monitoring systems: OpenMetrics text over HTTP, as Prometheus and others read it.
//!
//! Off unless an address is given. The figures are a copy of what the gRPC interface reports, taken for each request:
//! nothing is kept here, and the data path knows nothing of it. Labels are names that an administrator gave or a
//! drive's path, never what a host said, so that no host can make series.

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

/// What the figures are computed from, all of one moment.
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

    /// As OpenMetrics text.
    fn text(&self) -> String {
        let mut text = text::Text::default();
        for family in families::FAMILIES {
            text.begin(family);
            (family.samples)(self, &mut text);
        }
        text.end()
    }
}
