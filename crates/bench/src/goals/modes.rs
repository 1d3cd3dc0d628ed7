//! What each mode of consistency costs: small writes and whole stripes, healthy and without a member, each beside the
//! array that takes no care at all.

use strake_engine::Consistency;

use crate::ask::{Ask, Question};
use crate::load::Order;
use crate::report::Target;
use crate::scenario::{Case, Made, Options};

/// Bytes of data in a stripe of 6+2 strips of 128 KiB.
const STRIPE: usize = 6 * (128 << 10);

const MODES: [Consistency; 3] = [Consistency::Resync, Consistency::Safe, Consistency::Strict];

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let modelled = Made::Model(options.profile);
    let small = |made, depth| Case { made, depth, ..super::g2::case() };
    let whole = Case { order: Order::Sequential, bytes: STRIPE, depth: 32, ..small(modelled, 32) };
    let mut asks = Vec::new();
    for case in [small(Made::Null, 128), small(modelled, 128), whole] {
        for out in [0, 1] {
            let careless = Case { out, consistency: Consistency::None, ..case.clone() };
            let alone = if careless.bytes == STRIPE { Question::Bandwidth } else { Question::Iops };
            asks.push(Ask::new(careless.clone(), alone, Target::NONE));
            for consistency in MODES {
                let case = Case { consistency, ..careless.clone() };
                let share = Question::ShareOf(careless.clone());
                asks.push(Ask::new(case, share, Target::NONE).called(" of none"));
            }
        }
    }
    asks
}
