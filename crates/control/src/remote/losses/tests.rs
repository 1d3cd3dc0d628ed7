//! Tests of the reports about a path at successive checks.

use super::{News, Seen};
use strake_dev_fabrics::{PathState, PathStatus, Reason};
use strake_units::Nanos;

const NOTHING: News = News { lost: false, back: false };
const LOST: News = News { lost: true, back: false };
const BACK: News = News { lost: false, back: true };
const BOTH: News = News { lost: true, back: true };

const UP: PathState = PathState::Up(None);
const DOWN: PathState = PathState::Down(Some(Reason::Closed), 1);

/// Returns the reports for successive checks, each with the state and the number of reconnects of the path.
fn reported<const N: usize>(looks: [(PathState, u64); N]) -> [News; N] {
    let mut seen = Seen::default();
    looks.map(|(state, reconnects)| {
        seen.look(&PathStatus {
            address: "nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.example:lun".parse().expect("one"),
            state,
            age: Nanos(0),
            last: None,
            reconnects,
            used: true,
            turns: 1,
        })
    })
}

#[test]
fn a_path_is_reported_when_it_is_lost_and_when_it_is_back() {
    assert_eq!(
        reported([(UP, 0), (DOWN, 0), (DOWN, 0), (UP, 1), (UP, 1)]),
        [NOTHING, LOST, NOTHING, BACK, NOTHING]
    );
}

/// History: a restarted target reconnected before the next check, and nothing was reported.
#[test]
fn what_was_over_before_the_next_look_is_reported_too() {
    assert_eq!(reported([(UP, 0), (UP, 1), (UP, 1)]), [NOTHING, BOTH, NOTHING]);
    assert_eq!(reported([(UP, 1), (DOWN, 1), (DOWN, 2), (UP, 3)]), [BOTH, LOST, NOTHING, BACK]);
    let first = PathState::Down(None, 0);
    assert_eq!(reported([(first, 0), (UP, 0)]), [NOTHING, NOTHING], "it comes for the first time");
    // Another connection to the same address, whose count starts at 0.
    assert_eq!(reported([(UP, 2), (UP, 0), (UP, 1)]), [BOTH, NOTHING, BOTH]);
}
