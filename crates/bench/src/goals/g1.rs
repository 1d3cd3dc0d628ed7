//! G1: clean random reads, beside what the load, the reactor and a null drive take by themselves.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::Case;

pub(super) fn asks() -> Vec<Ask> {
    let mut asks = vec![
        Ask::new(Case::RAW, Question::Iops, Target::NONE)
            .note("the cost of the load itself: it is in every other row"),
    ];
    for (level, name) in [(Level::Raid0, "raid0"), (Level::Raid6, "raid5f")] {
        let case = Case::array(level, 8);
        asks.push(
            Ask::new(case.clone(), Question::Iops, Target::goals(36e6, 55e6))
                .note(format!("scripts/peers.py compares it with SPDK {name}")),
        );
        let target = Target { anchor: None, goal: Some(70.0), moonshot: None };
        asks.push(Ask::new(case, Question::ShareOf(Case::RAW), target).called(" of raw null"));
    }
    asks
}
