//! Rows of a report as questions: which cases to measure, and what to make of their samples.

use crate::measure::Samples;
use crate::report::{Meets, Metric, Report, Row, Target};
use crate::rig::Sample;
use crate::scenario::{Case, Options, in_turns};

/// One row before it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What it is called in the report.
    pub name: String,
    /// The case it is about.
    pub case: Case,
    /// What is asked.
    pub question: Question,
    /// What the answer is held against.
    pub target: Target,
    /// What one has to know to read the row.
    pub note: String,
    /// How parity is kept true across a crash.
    pub protection: &'static str,
}

/// What is asked about a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Requests per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// Requests per second as a share of another case's.
    ShareOf(Case),
    /// Requests per second as a share of this many.
    ShareOfIops(f64),
    /// Bytes per second as a share of this many.
    ShareOfBytes(f64),
    /// Requests per second divided by those of another case.
    Scaling(Case),
    /// Requests per second of the first core as a share of what it has in another case.
    FirstCoreOf(Case),
    /// By how much longer a request takes than in another case: the difference of the means of the fastest 90 %, since
    /// whatever else the machine does falls into the rest.
    Added(Case),
    /// The time within which so many of 1000 requests came back.
    Percentile(f64),
    /// Nothing: it cannot be measured yet, for this reason.
    Not(Metric, &'static str),
}

impl Question {
    pub(crate) const fn metric(&self) -> Metric {
        match self {
            Self::Iops => Metric::Iops,
            Self::Bandwidth => Metric::Bandwidth,
            Self::ShareOf(_)
            | Self::ShareOfIops(_)
            | Self::ShareOfBytes(_)
            | Self::FirstCoreOf(_) => Metric::Share,
            Self::Scaling(_) => Metric::Scaling,
            Self::Added(_) | Self::Percentile(_) => Metric::Latency,
            Self::Not(metric, _) => *metric,
        }
    }

    /// The other case that has to be measured.
    const fn beside(&self) -> Option<&Case> {
        match self {
            Self::ShareOf(other)
            | Self::Scaling(other)
            | Self::FirstCoreOf(other)
            | Self::Added(other) => Some(other),
            Self::Iops
            | Self::Bandwidth
            | Self::ShareOfIops(_)
            | Self::ShareOfBytes(_)
            | Self::Percentile(_)
            | Self::Not(..) => None,
        }
    }

    /// What the samples of one round say; `beside` is [`Self::beside`]'s sample of the same round.
    fn answer(&self, bytes: usize, sample: &Sample, beside: Option<&Sample>) -> f64 {
        let (rate, other) = (sample.rate(), beside.map_or(f64::NAN, Sample::rate));
        let bandwidth = rate * bytes as f64;
        match self {
            Self::Iops => rate,
            Self::Bandwidth => bandwidth / 1e9,
            Self::ShareOf(_) => 100.0 * rate / other,
            Self::ShareOfIops(limit) => 100.0 * rate / limit,
            Self::ShareOfBytes(limit) => 100.0 * bandwidth / limit,
            Self::Scaling(_) => rate / other,
            Self::FirstCoreOf(_) => 100.0 * first_core(Some(sample)) / first_core(beside),
            Self::Added(_) => fastest(Some(sample)) - fastest(beside),
            Self::Percentile(per_mille) => {
                sample.latency().percentile(*per_mille).map_or(f64::NAN, |ns| ns as f64 / 1e3)
            }
            Self::Not(..) => f64::NAN,
        }
    }
}

/// Requests per second of the first core.
fn first_core(sample: Option<&Sample>) -> f64 {
    sample.and_then(|sample| sample.by_core.first()).copied().unwrap_or(f64::NAN)
}

/// The mean of the fastest 90 %, in microseconds.
fn fastest(sample: Option<&Sample>) -> f64 {
    sample.and_then(|sample| sample.latency().mean(900.0)).map_or(f64::NAN, |ns| ns / 1e3)
}

impl Ask {
    /// A row named like its case.
    #[must_use]
    pub fn new(case: Case, question: Question, target: Target) -> Self {
        let (name, protection) = (case.name(), case.protection());
        Self { name, case, question, target, note: String::new(), protection }
    }

    /// The same row with parity kept true by something else than usual.
    #[must_use]
    pub const fn protected(mut self, protection: &'static str) -> Self {
        self.protection = protection;
        self
    }

    /// The same row with `suffix` behind its name.
    #[must_use]
    pub fn called(mut self, suffix: &str) -> Self {
        self.name.push_str(suffix);
        self
    }

    /// The same row with something to know about it.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn cases(&self) -> impl Iterator<Item = &Case> {
        let measured = !matches!(self.question, Question::Not(..));
        measured.then_some(&self.case).into_iter().chain(self.question.beside())
    }

    fn row(&self, found: &Found) -> Row {
        let row = match self.samples(found) {
            Ok(samples) => {
                Row::new(self.name.as_str(), self.question.metric(), &samples, self.target)
            }
            Err(why) => Row::open(self.name.as_str(), self.question.metric(), self.target, why),
        };
        let row = row.on(self.case.made.drives()).protected(self.protection);
        let row = match (&self.question, row.median) {
            (Question::Iops, Some(rate)) => {
                let ns = f64::from(self.case.cores) * 1e9 / rate;
                row.note(format!("{ns:.1} ns per request and core"))
            }
            (Question::Added(_), Some(_)) => doubt(row),
            _ => row,
        };
        if self.note.is_empty() { row } else { row.note(&self.note) }
    }

    fn samples(&self, found: &Found) -> Result<Samples, String> {
        if let Question::Not(_, why) = self.question {
            return Err(why.to_owned());
        }
        let own = found.of(&self.case)?;
        let beside = self.question.beside().map(|case| found.of(case)).transpose()?;
        let answer = |(round, sample)| {
            self.question.answer(self.case.bytes, sample, beside.and_then(|other| other.get(round)))
        };
        let answers: Vec<f64> = own.iter().enumerate().map(answer).collect();
        if answers.is_empty() || answers.iter().any(|answer| !answer.is_finite()) {
            return Err(
                "no request completed while the clock ran, or there is no limit to compare with"
                    .to_owned(),
            );
        }
        Ok(Samples::new(answers))
    }
}

/// A difference of two latencies says nothing when it is smaller than the samples differ: then it reaches no goal.
fn doubt(mut row: Row) -> Row {
    let spread = row.max.zip(row.min).map_or(0.0, |(max, min)| max - min);
    if row.goal.is_some_and(|goal| spread > goal) {
        row.meets = Meets::None;
        return row
            .note("samples differ by more than the goal: measure again when the machine is quiet");
    }
    row
}

/// What was measured, by case.
struct Found {
    cases: Vec<Case>,
    samples: Vec<Result<Vec<Sample>, String>>,
}

impl Found {
    fn of(&self, case: &Case) -> Result<&[Sample], String> {
        let at = self.cases.iter().position(|known| known == case);
        match at.map(|at| &self.samples[at]) {
            Some(Ok(samples)) => Ok(samples),
            Some(Err(why)) => Err(why.clone()),
            None => Err("it was not measured".to_owned()),
        }
    }
}

/// Measures what `asks` need, every case once in each round however many rows are about it, and adds the rows.
pub fn answer(report: &mut Report, asks: &[Ask], options: &Options, progress: impl FnMut(&str)) {
    let wanted =
        |ask: &&Ask| options.filter.as_ref().is_none_or(|part| ask.name.contains(part.as_str()));
    let asks: Vec<&Ask> = asks.iter().filter(wanted).collect();
    let mut cases: Vec<Case> = Vec::new();
    for case in asks.iter().flat_map(|ask| ask.cases()) {
        if !cases.contains(case) {
            cases.push(case.clone());
        }
    }
    let samples = in_turns(&cases, options, progress);
    let found = Found { cases, samples };
    report.rows.extend(asks.iter().map(|ask| ask.row(&found)));
}
