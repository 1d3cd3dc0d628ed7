//! What is gained by keeping what small writes leave behind: each load beside the same one without.

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::{Case, Made, Off, Options};
use strake_load::Order;

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let modelled = Made::Model(options.profile);
    let mut asks = Vec::new();
    for made in [modelled, Made::Null] {
        for (order, depth) in [
            (Order::Zipf(1.2), 1),
            (Order::Zipf(1.2), 32),
            (Order::Sequential, 1),
            (Order::Random, 32),
        ] {
            let kept = Case { made, order, depth, ..super::g2::case() };
            let without = Case { off: Off { cache: true, ..Off::NOTHING }, ..kept.clone() };
            asks.push(Ask::new(without.clone(), Question::Iops, Target::NONE));
            asks.push(Ask::new(kept.clone(), Question::Iops, Target::NONE));
            let share = Question::ShareOf(without);
            asks.push(Ask::new(kept, share, Target::NONE).called(" of the same without"));
        }
    }
    asks
}
