//! A drive that another host has taken over.

use super::{PATIENCE, Rig, target};
use crate::error::Reason;
use crate::path_manager::Request;
use crate::shared::Standing;
use std::time::Instant;
use strake_export_nvmet::TargetConfig;

/// A queue detects this over one of the paths.
#[test]
fn every_path_is_left_and_none_comes_back() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let ends = Instant::now() + PATIENCE;
    while rig.ups() < 2 {
        assert!(Instant::now() < ends, "the second path comes up");
        rig.step();
    }
    rig.path_manager.take(Request::Lost(1, Reason::TakenOver));
    assert!(rig.shared.is_taken_over(), "before anybody does anything else");
    rig.path_manager.settle();
    rig.step();
    let is_done = |standing: &Standing| match standing {
        Standing::Up(_) => panic!("it is another host's"),
        Standing::Down { reason, tries } => {
            assert_eq!(*reason, Some(Reason::TakenOver));
            *tries > 2
        }
    };
    while !rig.shared.paths().iter().all(|entry| is_done(&entry.standing)) {
        assert!(Instant::now() < ends, "they are not tried again");
        rig.step();
    }
    assert_eq!(rig.used(), [false, false]);
}
