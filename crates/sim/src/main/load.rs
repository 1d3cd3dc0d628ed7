//! `--load`: clients beside a rebuild.

use strake_dev_mem::Profile;
use strake_sim::load::{Habit, Pace, Spec, Work, report};
use strake_units::Nanos;

/// Parses the arguments behind `--load` and runs the experiment.
pub fn run(mut words: impl Iterator<Item = String>) -> Result<String, String> {
    let level = words.next().ok_or("--load needs a level, such as raid6")?;
    let level = level.parse().map_err(|e| format!("{level}: {e}"))?;
    let (mut slower, mut depth, mut millis) = (1, 16, 500);
    let mut spec = Spec::of(level, Profile::SN861);
    for word in words {
        let (name, value) = word.split_once('=').ok_or(format!("{word} is not NAME=NUMBER"))?;
        let number: u32 =
            value.parse().map_err(|_| format!("{name} needs a number, not {value}"))?;
        let fits = |most: u32| (1..=most).contains(&number).then_some(number);
        let small = |most| fits(most).ok_or(format!("{name} is a number from 1 to {most}"));
        match name {
            "drives" => spec.drives = small(64)? as u8,
            "slower" => slower = small(10_000)?,
            "cores" => spec.cores = small(64)? as u16,
            "depth" => depth = small(1024)?,
            "strip-kib" => spec.strip_bytes = small(1024)? << 10,
            "member-gib" => spec.member_bytes = u64::from(small(1024)?) << 30,
            "millis" => millis = small(100_000)?,
            "turn-ns" => spec.turn = Nanos(u64::from(small(1_000_000)?)),
            "seed" => spec.seed = u64::from(number),
            other => return Err(format!("{other} is not a number that --load takes")),
        }
    }
    spec.profile = Profile::SN861.slower(u64::from(slower)).mixed(0);
    let works = [Work::RandomRead, Work::Mixed, Work::SequentialRead, Work::SequentialWrite];
    let habits = works.map(|work| Habit { work, pace: Pace::Closed { depth } });
    report(&spec, &habits, Nanos::MILLI.times(u64::from(millis)))
}
