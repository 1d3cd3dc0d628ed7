//! Tests with drives that do not respond, which end although they fail.

use super::{Machine, SUBSYSTEM};
use std::thread;
use strake_dev_mem::FaultPlan;
use strake_export_nvmet::Removal;

/// What hangs because of this plan continues when a test fails: a target that stops waits for it, and the test would,
/// too.
pub struct Released(pub FaultPlan);

impl Drop for Released {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.clear();
            self.0.release();
        }
    }
}

/// Has a namespace go, which waits for what is at its device, and does this meanwhile.
pub fn while_it_goes(machine: &Machine, namespace: u32, does: impl FnOnce()) {
    thread::scope(|scope| {
        let _released = Released(machine.plan.0.clone());
        let remove = || machine.target.remove_export(SUBSYSTEM, namespace, Removal::Force);
        let removal = scope.spawn(remove);
        does();
        removal.join().expect("no panic").expect("the namespace goes");
    });
}
