//! G1: clean random reads, beside what the load, the reactor and a null drive take by themselves.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::Case;

/// What SPDK's RAID layers read per second, and as a share of its raw null device.
const SPDK: [(Level, f64, f64); 2] = [(Level::Raid0, 11.9e6, 47.0), (Level::Raid6, 11.4e6, 45.0)];

pub(super) fn asks() -> Vec<Ask> {
    let mut asks = vec![
        Ask::new(Case::RAW, Question::Iops, Target { anchor: Some(25.4e6), ..Target::NONE }).note(
            "the cost of the load itself: it is in every other row; anchor: SPDK's null device",
        ),
    ];
    for (level, anchor, share) in SPDK {
        let case = Case::array(level, 8);
        let name = if level == Level::Raid0 { "raid0" } else { "raid5f" };
        let note = format!("anchor: SPDK {name}");
        asks.push(
            Ask::new(case.clone(), Question::Iops, Target::new(anchor, 36e6, 55e6)).note(note),
        );
        let target = Target { anchor: Some(share), goal: Some(70.0), moonshot: None };
        asks.push(
            Ask::new(case, Question::ShareOf(Case::RAW), target)
                .called(" of raw null")
                .note(format!("anchor: SPDK {name} beside its own null device")),
        );
    }
    asks
}
