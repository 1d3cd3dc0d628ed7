//! Tests with unresponsive drives, which end even if they fail.

use super::{Machine, SUBSYSTEM};
use std::thread;
use strake_dev_mem::FaultPlan;
use strake_export_nvmet::Removal;

/// Releases hung I/O when a test fails: otherwise the stop of the target, and so the test, would wait for it.
pub struct Released(pub FaultPlan);

impl Drop for Released {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.clear();
            self.0.release();
        }
    }
}

/// Removes a namespace, which waits for I/O in flight, and calls `does` meanwhile.
pub fn while_it_goes(machine: &Machine, namespace: u32, does: impl FnOnce()) {
    thread::scope(|scope| {
        let _released = Released(machine.plan.0.clone());
        let remove = || machine.target.remove_export(SUBSYSTEM, namespace, Removal::Force);
        let removal = scope.spawn(remove);
        does();
        removal.join().expect("no panic").expect("the namespace goes");
    });
}
