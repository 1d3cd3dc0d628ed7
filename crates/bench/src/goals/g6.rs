//! G6: two cores beside one, on the work of G1 and G2.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::Case;

/// What two cores are to do, beside one.
pub(super) const TWICE: Target = Target::goals(1.9, 1.98);

pub(super) fn asks() -> Vec<Ask> {
    let cases = [Case::array(Level::Raid0, 8), Case::array(Level::Raid6, 8), super::g2::case()];
    let ask = |one: Case| {
        let two = Case { cores: 2, ..one.clone() };
        on_two_cpus(Ask::new(two, Question::Scaling(one), TWICE).called(" beside 1"))
    };
    cases.into_iter().map(ask).collect()
}

/// The same when this machine has two CPUs, and a row that says why not otherwise.
pub(super) fn on_two_cpus(ask: Ask) -> Ask {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus >= 2 {
        return ask;
    }
    let question = Question::Not(ask.question.metric(), "this machine has one CPU");
    Ask { question, ..ask }
}
