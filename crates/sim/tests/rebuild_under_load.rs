//! Clients during the rebuild of an array, on modelled drives, in simulated time: the results do not depend on the
//! speed of the host.

use strake_dev_mem::Profile;
use strake_engine::Maintenance;
use strake_sim::load::{Habit, Lab, Pace, Sample, Spec, Work, forecasts, trial};
use strake_units::{MemberIndex, Nanos};

const RANDOM: Habit = Habit { work: Work::RandomRead, pace: Pace::Closed { depth: 16 } };

fn spec(seed: u64) -> Spec {
    let level = "raid6".parse().expect("a level");
    Spec { member_bytes: 1 << 30, seed, ..Spec::of(level, Profile::SN861.mixed(0)) }
}

/// An array whose first member was just replaced.
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
fn an_undisturbed_rebuild_runs_at_the_rate_of_the_new_drive() {
    let sample = watch(&mut replaced(&spec(1)), 50);
    let limit = Profile::SN861.write_bytes_per_s as f64;
    let rate = sample.rebuilt_per_s();
    assert!((0.75 * limit..=1.01 * limit).contains(&rate), "{rate} bytes/s of {limit}");
}

/// A quarter of the rates, so that half a second of simulated time is fast to compute.
fn slower(level: &str, drives: u8) -> Spec {
    Spec {
        level: level.parse().expect("a level"),
        drives,
        profile: Profile::SN861.slower(4).mixed(0),
        member_bytes: 6 << 30,
        ..spec(3)
    }
}

fn priority(lab: &Lab, priority: u8) {
    lab.array().set_maintenance(Maintenance { priority, paused: false });
}

/// The guarantee of issue 3 for the default priority.
#[test]
fn clients_keep_half_their_speed_and_the_rebuild_a_third() {
    let check = |level: &str, drives, work, pace| {
        let spec = slower(level, drives);
        let habit = Habit { work, pace };
        let trial = trial(&spec, habit, Nanos::MILLI.times(250), &[50]).expect("a trial");
        let sample = trial.beside[0].1;
        let what = format!("{level}, {}: {}", habit.describe(), trial.json());
        assert!(trial.p99_ratio(&sample) < 2.0, "{what}");
        assert!(trial.rate_percent(&sample) >= 30.0, "{what}");
    };
    check("raid6", 8, Work::RandomRead, Pace::Closed { depth: 16 });
    check("raid6", 8, Work::Mixed, Pace::Closed { depth: 16 });
    check("raid6", 8, Work::Mixed, Pace::Open { per_s: 50_000 });
    check("raid6", 8, Work::SequentialRead, Pace::Closed { depth: 2 });
    check("raid5", 5, Work::Mixed, Pace::Closed { depth: 8 });
    check("raid10", 4, Work::Mixed, Pace::Closed { depth: 8 });
}

#[test]
fn a_change_of_priority_takes_effect_within_a_second() {
    let mut lab = replaced(&slower("raid6", 8));
    lab.set_clients(Some(Habit { work: Work::Mixed, ..RANDOM })).expect("answers");
    let mut rate = |wanted| {
        priority(&lab, wanted);
        watch(&mut lab, 500);
        // At the lowest priority, a region takes a quarter of a second.
        watch(&mut lab, 500).rebuilt_per_s()
    };
    let (low, high, again) = (rate(0), rate(100), rate(0));
    assert!(low > 0.0, "no priority starves the rebuild");
    assert!(high > 10.0 * low && high > 10.0 * again, "{low}, {high}, {again} bytes/s");
}

#[test]
fn a_paused_rebuild_stands_and_goes_on() {
    let mut lab = replaced(&slower("raid6", 8));
    lab.array().set_maintenance(Maintenance { priority: 50, paused: true });
    watch(&mut lab, 10);
    let before = lab.rebuilt_bytes();
    watch(&mut lab, 1000);
    assert_eq!(lab.rebuilt_bytes(), before);
    priority(&lab, 50);
    assert!(watch(&mut lab, 200).rebuilt_bytes > 0);
}

#[test]
fn the_end_is_forecast_within_a_fifth_after_a_tenth() {
    // Long enough that the first second, in which the rate settles, is less than a tenth of it.
    let profile = Profile::SN861.slower(8).mixed(0);
    let spec = Spec { member_bytes: 6 << 30, profile, ..slower("raid6", 8) };
    let mut lab = Lab::new(&spec).expect("an array");
    let total = lab.rebuilt_bytes();
    let habit = Habit { work: Work::Mixed, pace: Pace::Closed { depth: 4 } };
    lab.set_clients(Some(habit)).expect("answers");
    watch(&mut lab, 500);
    lab.fail(MemberIndex(0)).expect("one member may fail");
    lab.replace(MemberIndex(0)).expect("a failed member may be replaced");
    let looks = forecasts(&mut lab, total, Nanos::MILLI.times(250)).expect("a rebuild");
    assert!(looks.len() > 10, "{looks:?}");
    for (part, quality) in looks.iter().filter(|(part, _)| (0.1..0.95).contains(part)) {
        assert!((0.8..=1.2).contains(quality), "at {part}: {quality}; all: {looks:?}");
    }
}
