//! The experiment as one JSON document.

use strake_engine::{Forecast, Maintenance};
use strake_units::{MemberIndex, Nanos};

use super::client::Habit;
use super::lab::{Lab, Spec};
use super::sample::Sample;

/// The tested priorities.
pub const PRIORITIES: [u8; 5] = [0, 25, 50, 75, 100];

/// The measurements of clients of one habit on one array.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The behaviour of the clients.
    pub habit: Habit,
    /// With all members in sync.
    pub healthy: Sample,
    /// With one member failed.
    pub degraded: Sample,
    /// With the member replaced and its rebuild paused.
    pub paused: Sample,
    /// The rebuild with no clients.
    pub idle: Sample,
    /// Clients and rebuild together, by priority.
    pub beside: Vec<(u8, Sample)>,
}

/// Time before each measurement for transients to end.
pub const SETTLE: Nanos = Nanos(600 * Nanos::MILLI.0);

/// Replaces member 0, which may be rebuilding: the rebuild starts again.
fn begin_again(lab: &mut Lab) -> Result<(), String> {
    lab.fail(MemberIndex(0))?;
    lab.replace(MemberIndex(0))
}

/// Runs clients of `habit` on an array of `spec` and takes samples of `span`, for each of `priorities`.
///
/// Returns an error if the engine rejects a step, if a request fails, or if the drives are too small for the duration
/// of a rebuild.
pub fn trial(spec: &Spec, habit: Habit, span: Nanos, priorities: &[u8]) -> Result<Trial, String> {
    let mut lab = Lab::new(spec)?;
    lab.set_clients(Some(habit))?;
    lab.watch(SETTLE)?;
    let healthy = lab.watch(span)?;
    lab.fail(MemberIndex(0))?;
    let degraded = lab.watch(span)?;
    let maintenance = |priority, paused| Maintenance { priority, paused };
    lab.array().set_maintenance(maintenance(50, true));
    lab.replace(MemberIndex(0))?;
    let paused = lab.watch(span)?;
    lab.set_clients(None)?;
    lab.array().set_maintenance(maintenance(50, false));
    lab.watch(Nanos(SETTLE.0 / 3))?;
    let idle = lab.watch(Nanos(span.0 / 2))?;
    lab.set_clients(Some(habit))?;
    let mut beside = Vec::new();
    for priority in priorities {
        lab.array().set_maintenance(maintenance(*priority, false));
        begin_again(&mut lab)?;
        lab.watch(SETTLE)?;
        beside.push((*priority, lab.watch(span)?));
        if !lab.is_rebuilding() {
            return Err("the drives are too small: the rebuild ended while it was measured".into());
        }
    }
    Ok(Trial { habit, healthy, degraded, paused, idle, beside })
}

/// Steps between two samples of a rebuild.
const STEPS: u64 = 10;

/// The quality of forecasts of a rebuild: samples it at intervals of `every` until its end. Returns, for each sample,
/// the completed part, and the forecast of the rest divided by its actual duration.
///
/// Returns the errors of [`trial`].
pub fn forecasts(lab: &mut Lab, total: u64, every: Nanos) -> Result<Vec<(f64, f64)>, String> {
    let mut forecast = Forecast::default();
    let mut looks = Vec::new();
    while lab.is_rebuilding() {
        let done = lab.rebuilt_bytes();
        forecast.note(lab.now(), done);
        if let Some(left) = forecast.left(total - done) {
            looks.push((done as f64 / total as f64, lab.now(), left));
        }
        // Small steps give a precise end, so that late forecasts can be assessed.
        for _ in 0..STEPS {
            if lab.is_rebuilding() {
                lab.watch(Nanos(every.0 / STEPS))?;
            }
        }
    }
    let end = lab.now();
    let quality = |at, left: Nanos| left.0 as f64 / end.since(at).0.max(1) as f64;
    Ok(looks.into_iter().map(|(part, at, left)| (part, quality(at, left))).collect())
}

impl Trial {
    /// The trial as a JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        let beside = self.beside.iter().map(|(priority, sample)| {
            format!(
                "{{\"priority\":{priority},\"p99_ratio\":{:.2},\"rate_percent_of_idle\":{:.0},\"sample\":{}}}",
                self.p99_ratio(sample),
                self.rate_percent(sample),
                json(sample)
            )
        });
        format!(
            "{{\"clients\":\"{}\",\"healthy\":{},\"degraded\":{},\"paused\":{},\"idle\":{},\"beside\":[{}]}}",
            self.habit.describe(),
            json(&self.healthy),
            json(&self.degraded),
            json(&self.paused),
            json(&self.idle),
            beside.collect::<Vec<_>>().join(",")
        )
    }

    /// The p99 of `sample` divided by the p99 of the same array with a paused rebuild.
    #[must_use]
    pub fn p99_ratio(&self, sample: &Sample) -> f64 {
        sample.p99.0 as f64 / self.paused.p99.0.max(1) as f64
    }

    /// The rebuild rate of `sample` in percent of the rate without clients.
    #[must_use]
    pub fn rate_percent(&self, sample: &Sample) -> f64 {
        100.0 * sample.rebuilt_per_s() / self.idle.rebuilt_per_s().max(1.0)
    }
}

fn json(of: &Sample) -> String {
    let micros = |span: Nanos| span.0 as f64 / 1e3;
    format!(
        "{{\"requests_per_s\":{:.0},\"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"rebuilt_mb_per_s\":{:.1}}}",
        of.requests_per_s(),
        micros(of.p50),
        micros(of.p99),
        micros(of.p999),
        of.rebuilt_per_s() / 1e6
    )
}

/// Runs a trial for each of `habits` and returns all results as one JSON document.
///
/// Returns the errors of [`trial`].
pub fn report(spec: &Spec, habits: &[Habit], span: Nanos) -> Result<String, String> {
    let mut trials = Vec::new();
    for habit in habits {
        trials.push(trial(spec, *habit, span, &PRIORITIES)?.json());
    }
    Ok(format!(
        "{{\"simulated\":true,\"holds_no\":\"CPU, driver or DMA cost\",\"level\":\"{}\",\"drives\":{},\
         \"profile\":\"{}\",\"read_mb_per_s\":{},\"write_mb_per_s\":{},\"member_bytes\":{},\"strip_bytes\":{},\
         \"cores\":{},\"turn_ns\":{},\"seed\":{},\"trials\":[{}]}}",
        spec.level,
        spec.drives,
        spec.profile.name,
        spec.profile.read_bytes_per_s / 1_000_000,
        spec.profile.write_bytes_per_s / 1_000_000,
        spec.member_bytes,
        spec.strip_bytes,
        spec.cores,
        spec.turn.0,
        spec.seed,
        trials.join(",")
    ))
}
