//! Tests with a failure of any single I/O of a long run: a member failure, a replacement with its rebuild, and a stop.

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_raid::{Level, MemberState};

use crate::stage::{DEGRADED, Set};

/// Strikes I/O number `nth` of member `victim` with `effect`.
fn check(level: Level, effect: Effect, victim: usize, nth: u64, cores: u16) {
    let mut stage = Set { cores, ..Set::new(level, 6) }.build().expect("sound");
    let rule = Rule::new(Ops::ANY, effect).when(When::Nth(nth));
    stage.disks[victim].plan.add(rule);
    let hangs = effect == Effect::Hang;
    let what = format!("{effect:?} at I/O {nth} of member {victim} on {cores} core(s)");
    // A hang ends within the time limit of an I/O and of the following label writes.
    if hangs {
        stage.step = strake_units::Nanos(20_000_000);
    }
    stage.fill(700, 50, 3);
    assert_eq!(stage.run(0, Op::Flush), Ok(()), "{what}");
    stage.fail(1).expect(&what);
    stage.fill(300, 30, 5);
    stage.replace(1).expect(&what);
    stage.fill(500, 70, 6);
    stage.until(&what, |stage| stage.state(1) == MemberState::InSync);
    stage.verify(700);
    stage.stop().expect(&what);
    stage.disks[victim].answer();
    stage.disks[victim].plan.return_device();
    assert_eq!(stage.again(DEGRADED), 0, "{what}");
    stage.verify(700);
    if stage.state(victim) == MemberState::InSync {
        stage.check_parity(12);
    }
}

const EFFECTS: [Effect; 4] = [
    Effect::Vanish,
    Effect::Hang,
    Effect::Fail(IoErrorKind::Device),
    Effect::Fail(IoErrorKind::Medium),
];

#[test]
fn any_single_io_may_fail() {
    for (at, effect) in EFFECTS.into_iter().enumerate() {
        for nth in (1 + at as u64..220).step_by(43) {
            check(Level::Raid6, effect, 3, nth, 1 + (nth % 2) as u16);
        }
    }
}
