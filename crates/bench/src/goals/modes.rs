//! What each mode of consistency costs: small writes and whole stripes, healthy and without a member, each beside the
//! same array in mode none. On drives of two speeds: what a mode costs depends on whether the drives or the core limit.

use strake_dev_mem::Profile;
use strake_engine::Consistency;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::{Case, Made, Options};
use strake_load::Order;

/// Bytes of data in a stripe of 6+2 strips of 128 KiB.
const STRIPE: usize = 6 * (128 << 10);

const MODES: [Consistency; 3] = [Consistency::Resync, Consistency::Safe, Consistency::Strict];

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let small = |made| Case { made, depth: 128, ..super::g2::case() };
    let whole = |made| Case { order: Order::Sequential, bytes: STRIPE, depth: 32, ..small(made) };
    let mut cases = vec![small(Made::Null)];
    let mut profiles = vec![options.profile, Profile::M9650];
    profiles.dedup();
    for profile in profiles {
        cases.extend([small(Made::Model(profile)), whole(Made::Model(profile))]);
    }
    let mut asks = Vec::new();
    for case in cases {
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
