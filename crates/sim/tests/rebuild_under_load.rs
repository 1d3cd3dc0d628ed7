//! Clients while an array is rebuilt, on modelled drives, in simulated time: nothing here depends on how fast the
//! machine is that runs it.

use strake_dev_mem::Profile;
use strake_sim::load::{Habit, Lab, Pace, Sample, Spec, Work};
use strake_units::{MemberIndex, Nanos};

const RANDOM: Habit = Habit { work: Work::RandomRead, pace: Pace::Closed { depth: 16 } };

fn spec(seed: u64) -> Spec {
    Spec {
        level: "raid6".parse().expect("a level"),
        drives: 8,
        profile: Profile::SN861.mixed(0),
        member_bytes: 1 << 30,
        strip_bytes: 64 << 10,
        cores: 1,
        turn: Nanos(500),
        seed,
    }
}

/// An array with its first member just replaced.
fn replaced(spec: &Spec) -> Lab {
    let mut lab = Lab::new(spec).expect("an array");
    lab.fail(MemberIndex(0)).expect("one member may fail");
    lab.replace(MemberIndex(0)).expect("a failed member may be replaced");
    lab
}

fn watch(lab: &mut Lab, millis: u64) -> Sample {
    lab.watch(Nanos::MILLI.times(millis)).expect("the array serves")
}

#[test]
fn a_run_is_repeated_by_its_seed() {
    let run = |seed| {
        let mut lab = replaced(&spec(seed));
        lab.set_clients(Some(RANDOM)).expect("answers");
        watch(&mut lab, 20)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_rebuild_nobody_disturbs_runs_at_the_rate_of_the_new_drive() {
    let sample = watch(&mut replaced(&spec(1)), 50);
    let limit = Profile::SN861.write_bytes_per_s as f64;
    let rate = sample.rebuilt_per_s();
    assert!((0.75 * limit..=1.01 * limit).contains(&rate), "{rate} bytes/s of {limit}");
}
