//! Checks of pools: whether they serve, and their free space.

use strake_api::v1::{DoctorCheck, ListVolumesRequest, Pool};
use strake_wording::{Text, say, show};

use super::{Finding, check, fine};

/// Percentages of the space that is used or reserved, from which a pool needs attention, and from which writes of thin
/// volumes may fail soon. The alerts for Prometheus have the same limits.
const SPACE_WARNING: u128 = 80;
const SPACE_FAILED: u128 = 95;

/// Checks a pool.
pub(super) fn of_pool(pool: &Pool) -> (Finding, DoctorCheck) {
    // The name of a pool whose header cannot be read is unknown.
    let name = match pool.name.as_str() {
        "" => format!("pool of array/{}", pool.array),
        known => format!("pool/{known}"),
    };
    if pool.state != "online" {
        let next = say("read the reason; the array continues to run: ").run(show_array(pool));
        return check(name, Finding::Failed, format!("{}: {}", pool.state, pool.reason), next);
    }
    let percent = used_percent(pool);
    let what = format!("{percent} % of its space is used or reserved");
    match percent {
        SPACE_FAILED.. => check(name, Finding::Failed, what, more_space(pool)),
        SPACE_WARNING.. => check(name, Finding::Warning, what, more_space(pool)),
        _ => fine(name, what),
    }
}

/// Returns the percentage of the space that thin volumes cannot use, rounded down. Free space that is kept for thick
/// volumes counts as used.
fn used_percent(pool: &Pool) -> u128 {
    let available = pool.free_bytes.saturating_sub(pool.reserved_bytes);
    let used = pool.size_bytes.saturating_sub(available);
    u128::from(used) * 100 / u128::from(pool.size_bytes.max(1))
}

fn show_array(pool: &Pool) -> strake_api::v1::GetArrayRequest {
    show(&pool.array)
}

fn more_space(pool: &Pool) -> Text {
    let volumes = ListVolumesRequest { pool: pool.name.clone(), ..ListVolumesRequest::default() };
    say("destroy volumes and snapshots that are not needed, or discard unused blocks in clients: ")
        .run(volumes)
}

#[cfg(test)]
mod tests {
    use super::{Pool, of_pool};

    /// Returns the state and the name of the check of a pool of 100 bytes.
    fn state(free_bytes: u64, reserved_bytes: u64) -> String {
        let (name, state) = ("data".into(), "online".into());
        let pool =
            Pool { name, state, size_bytes: 100, free_bytes, reserved_bytes, ..Pool::default() };
        let (_, found) = of_pool(&pool);
        assert_eq!(found.name, "pool/data");
        assert_eq!(found.state == "ok", found.next_action.is_empty(), "{found:?}");
        found.state
    }

    #[test]
    fn the_space_of_a_pool_is_judged_without_reserved_space() {
        assert_eq!(state(100, 0), "ok");
        assert_eq!(state(21, 0), "ok");
        assert_eq!(state(20, 0), "warning");
        assert_eq!(state(6, 0), "warning");
        assert_eq!(state(5, 0), "failed");
        assert_eq!(state(60, 40), "warning", "20 are available to thin volumes");
        assert_eq!(state(60, 60), "failed");
    }

    #[test]
    fn a_pool_that_does_not_serve_is_named_with_its_reason() {
        let (array, state, reason) = ("tank".into(), "offline".into(), "both headers".into());
        let pool = Pool { array, state, reason, ..Pool::default() };
        let (_, found) = of_pool(&pool);
        assert_eq!((found.name.as_str(), found.state.as_str()), ("pool of array/tank", "failed"));
        assert!(found.what.contains("offline: both headers"), "{found:?}");
        assert!(found.next_action.contains("array show tank"), "{found:?}");
    }
}
