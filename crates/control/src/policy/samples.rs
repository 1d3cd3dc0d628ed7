//! Initial values for tests of decisions.

use strake_engine::{MemberHealth, MemberStatus};
use strake_raid::MemberState;
use strake_units::Uuid;

/// Returns a member in `state`, without errors.
pub(crate) fn member(state: MemberState) -> MemberStatus {
    MemberStatus {
        uuid: Uuid([7; 16]),
        path: "/dev/nvme3n1".to_owned(),
        replacement: String::new(),
        state,
        cause: None,
        stale_bytes: 0,
        health: MemberHealth::default(),
    }
}
