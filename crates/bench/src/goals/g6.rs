//! G6: two cores beside one, on the work of G1 and G2.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::{Metric, Target};
use crate::scenario::Case;

pub(super) fn asks() -> Vec<Ask> {
    let target = Target::new(1.69, 1.9, 1.98);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let ask = |one: Case| {
        let two = Case { cores: 2, ..one.clone() };
        if cpus < 2 {
            let why = "this machine has one CPU";
            return Ask::new(two, Question::Not(Metric::Scaling, why), target).called(" beside 1");
        }
        Ask::new(two, Question::Scaling(one), target).called(" beside 1").note("anchor: SPDK raid0")
    };
    vec![
        ask(Case::array(Level::Raid0, 8)),
        ask(Case::array(Level::Raid6, 8)),
        ask(super::g2::case()),
    ]
}
