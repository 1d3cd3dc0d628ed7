//! The list of goals, as `docs/benchmarks/goals.md` has it, and the measurements that answer it.

mod cache;
mod contention;
mod g1;
mod g2;
mod g4;
mod g6;
mod g7;
mod modes;
#[cfg(test)]
mod tests;
mod vendors;

use crate::ask::Ask;
use crate::scenario::Options;

/// The page that people read is what the program reads, so the two cannot differ.
const PAGE: &str = include_str!("../../../docs/benchmarks/goals.md");

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// "G1".
    pub id: &'static str,
    /// What is measured.
    pub work: &'static str,
    /// What it is compared with.
    pub anchor: &'static str,
    /// What to reach.
    pub goal: &'static str,
    /// What we would like to reach.
    pub moonshot: &'static str,
}

/// Every goal, in order, and then the scenarios that are not goals.
#[must_use]
pub fn all() -> Vec<Goal> {
    let is_head = |goal: &Goal| goal.id == "id" || goal.id.starts_with('-');
    let lines = PAGE.lines().filter(|line| line.starts_with("| "));
    lines.filter_map(parse).filter(|goal| !is_head(goal)).collect()
}

/// The goal called `id`.
#[must_use]
pub fn find(id: &str) -> Option<Goal> {
    all().into_iter().find(|goal| goal.id == id)
}

fn parse(line: &'static str) -> Option<Goal> {
    let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
    let mut next = || cells.next();
    Some(Goal { id: next()?, work: next()?, anchor: next()?, goal: next()?, moonshot: next()? })
}

/// What has to be measured on data cores for the goal `id`; `None` when it is not measured in this way.
#[must_use]
pub fn asks(id: &str, options: &Options) -> Option<Vec<Ask>> {
    match id {
        "G1" => Some(g1::asks()),
        "G2" => Some(g2::asks()),
        "G3" => Some(g2::mirrors()),
        "G4" => Some(g4::asks()),
        "G5" => Some(g4::double_parity(options)),
        "G6" => Some(g6::asks()),
        "G7" => Some(g7::asks(options)),
        "G8" => Some(g7::degraded(options)),
        "G10" => Some(g7::added(options)),
        "cache" => Some(cache::asks(options)),
        "contention" => Some(contention::asks(options)),
        "modes" => Some(modes::asks(options)),
        "vendors" => Some(vendors::asks(options)),
        _ => None,
    }
}
