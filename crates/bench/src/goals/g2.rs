//! G2 and G3: small random writes, with parity and with copies.

use strake_engine::Consistency;
use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::Case;

/// The case of G2.
pub(super) fn case() -> Case {
    Case { write_percent: 100, ..Case::array(Level::Raid6, 8) }
}

pub(super) fn asks() -> Vec<Ask> {
    let anchor = "anchor: xiRAID Opus, RAID 6 on 8 real drives; none is published for null drives";
    vec![
        Ask::new(case(), Question::Iops, Target::new(0.30e6, 2.0e6, 3.0e6)).note(anchor),
        Ask::new(
            Case { consistency: Consistency::None, ..case() },
            Question::Iops,
            Target::new(0.30e6, 2.5e6, 3.5e6),
        )
        .called(" protection=off")
        .protected("off"),
    ]
}

pub(super) fn mirrors() -> Vec<Ask> {
    let case = Case { write_percent: 100, ..Case::array(Level::Raid1, 2) };
    let target = Target::goals(17e6, 25e6);
    vec![
        Ask::new(case, Question::Iops, target).note("scripts/peers.py compares it with SPDK raid1"),
    ]
}
