//! The experiment as one JSON document.

use strake_engine::{Forecast, Maintenance};
use strake_units::{MemberIndex, Nanos};

use super::client::Habit;
use super::lab::{Lab, Spec};
use super::sample::Sample;

/// The priorities that are tried.
pub const PRIORITIES: [u8; 5] = [0, 25, 50, 75, 100];

/// How clients of one habit fare on one array.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What they do.
    pub habit: Habit,
    /// With all members in sync.
    pub healthy: Sample,
    /// With one member failed.
    pub degraded: Sample,
    /// With the member replaced and its rebuild paused.
    pub paused: Sample,
    /// The rebuild with no clients.
    pub idle: Sample,
    /// By priority: clients and rebuild together.
    pub beside: Vec<(u8, Sample)>,
}

/// Time that everything has to settle in before it is measured.
pub const SETTLE: Nanos = Nanos(600 * Nanos::MILLI.0);

/// Puts a fresh drive in for member 0, which is being rebuilt perhaps: the rebuild begins again.
fn begin_again(lab: &mut Lab) -> Result<(), String> {
    lab.fail(MemberIndex(0))?;
    lab.replace(MemberIndex(0))
}

/// Has clients of `habit` on an array of `spec` and takes samples of `span`, for each of `priorities`.
///
/// # Errors
/// When the engine refuses or a request fails, or when the drives are too small for a rebuild to last.
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

/// Steps between two looks at a rebuild.
const STEPS: u64 = 10;

/// How well a rebuild is forecast: looks at it `every` so often until its end and returns, for each look, the part
/// that was done and the forecast of the rest over what the rest took.
///
/// # Errors
/// As [`trial`].
pub fn forecasts(lab: &mut Lab, total: u64, every: Nanos) -> Result<Vec<(f64, f64)>, String> {
    let mut forecast = Forecast::default();
    let mut looks = Vec::new();
    while lab.is_rebuilding() {
        let done = lab.rebuilt_bytes();
        forecast.note(lab.now(), done);
        if let Some(left) = forecast.left(total - done) {
            looks.push((done as f64 / total as f64, lab.now(), left));
        }
        // In small steps, so that the end is known well enough to judge a forecast made shortly before.
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

    /// The p99 of `sample` over that of the same array whose rebuild is paused.
    #[must_use]
    pub fn p99_ratio(&self, sample: &Sample) -> f64 {
        sample.p99.0 as f64 / self.paused.p99.0.max(1) as f64
    }

    /// The rebuild rate of `sample` in percent of that without clients.
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

/// Runs a trial for each of `habits` and describes everything as one JSON document.
///
/// # Errors
/// As [`trial`].
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
