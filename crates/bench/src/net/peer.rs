//! A target of others that stands beside ours.

use rustix::process::{Pid, Signal, kill_process};
use strake_dev_fabrics::Address;

use crate::scenario::Made;

/// A target of others, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its null drive; the namespace with the next number is one in memory.
    pub address: Address,
    /// Its process, if it is to be stopped while ours is measured: one that polls would take half of our core.
    pub process: Option<i32>,
}

impl Peer {
    pub(super) fn uri(&self, made: Made) -> String {
        let next = u32::from(made == Made::Ram);
        Address { nsid: self.address.nsid + next, ..self.address.clone() }.to_string()
    }

    /// Stops its process.
    ///
    /// # Errors
    /// When its process is none of ours, or gone.
    pub(super) fn rest(&self) -> Result<(), String> {
        self.send(Signal::STOP)
    }

    /// Continues its process.
    ///
    /// # Errors
    /// The same.
    pub(super) fn wake(&self) -> Result<(), String> {
        self.send(Signal::CONT)
    }

    fn send(&self, signal: Signal) -> Result<(), String> {
        let Some(number) = self.process else { return Ok(()) };
        let process = Pid::from_raw(number).ok_or_else(|| format!("{number} is no process"))?;
        kill_process(process, signal).map_err(|e| format!("cannot signal process {number}: {e}"))
    }
}
