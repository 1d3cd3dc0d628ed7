//! NVMe/TCP over loopback: our host on one core, our target on another, in this process.

use std::sync::Arc;
use std::time::Duration;

use strake_block::BlockDevice;
use strake_dev_fabrics::{Digests, FabricsDevice, HostName, Options as Link, Use};
use strake_export_nvmet::{Export, Target, TargetConfig};

use crate::load::Order;
use crate::measure::Samples;
use crate::net::neighbour::Neighbour;
use crate::report::{Metric, Report, Row, Target as Goal};
use crate::rig::{Rig, Sample, pass};
use crate::scenario::{Case, Made, Options};

mod neighbour;

/// The host that may connect.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
/// Times as long as without it that 99 of 100 requests may take beside a neighbour that means harm.
const NEIGHBOUR_MAX: f64 = 1.2;

/// What is measured in a line.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    case: Case,
    digests: Digests,
    about: About,
    /// What SPDK's target gave its own host on a quiet machine of this kind, in the unit of the row.
    anchor: Option<f64>,
}

/// What its number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Requests,
    Bytes,
    /// 99 of 100 requests beside this neighbour, divided by the same without it.
    Beside(Neighbour),
}

impl Line {
    /// `case` by itself; requests up to 4 KiB are counted, larger ones are weighed.
    fn of(case: Case) -> Self {
        let about = if case.bytes > 4096 { About::Bytes } else { About::Requests };
        Self { case, digests: Digests::default(), about, anchor: None }
    }

    fn name(&self) -> String {
        let name = self.case.name().replacen("raw", "nvme-tcp", 1);
        let digests = if self.digests == BOTH { " digests" } else { "" };
        match self.about {
            About::Requests | About::Bytes => format!("{name}{digests}"),
            About::Beside(neighbour) => format!("{name}{digests} p99 beside {}", neighbour.words()),
        }
    }

    const fn metric(&self) -> Metric {
        match self.about {
            About::Requests => Metric::Iops,
            About::Bytes => Metric::Bandwidth,
            About::Beside(_) => Metric::Slowdown,
        }
    }

    fn target(&self) -> Goal {
        let goal = matches!(self.about, About::Beside(_)).then_some(NEIGHBOUR_MAX);
        Goal { anchor: self.anchor, goal, moonshot: None }
    }

    fn row(&self, found: &Result<Vec<f64>, String>) -> Row {
        let row = match found {
            Ok(values) if !values.is_empty() => {
                Row::new(self.name(), self.metric(), &Samples::new(values.clone()), self.target())
            }
            Ok(_) => Row::open(self.name(), self.metric(), self.target(), "it was not measured"),
            Err(why) => Row::open(self.name(), self.metric(), self.target(), why.as_str()),
        };
        let row = row.on(self.case.made.drives());
        if self.anchor.is_some() {
            return row.note("anchor: SPDK's target under its own host, on a quiet machine");
        }
        row
    }
}

/// What a drive of another machine asks for unless somebody knows better.
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

fn lines() -> Vec<Line> {
    let random = |made, depth, write_percent| Case { made, depth, write_percent, ..Case::RAW };
    let in_order = |made, write_percent| {
        let order = Order::Sequential;
        Case { made, depth: 32, write_percent, bytes: 128 << 10, order, ..Case::RAW }
    };
    let anchors = [71e3, 0.87e6, 1.24e6, f64::NAN, f64::NAN, 1.43e6, 6.4, 7.7];
    let mut lines = Vec::new();
    for made in [Made::Null, Made::Ram] {
        let small = [0, 100].map(|percent| [1, 32, 128].map(|depth| random(made, depth, percent)));
        let large = [0, 100].map(|percent| in_order(made, percent));
        let cases = small.into_iter().flatten().chain(large);
        lines.extend(cases.zip(anchors).map(|(case, anchor)| Line {
            anchor: Some(anchor).filter(|value| made == Made::Null && value.is_finite()),
            ..Line::of(case)
        }));
    }
    for percent in [0, 100] {
        for case in [random(Made::Null, 128, percent), in_order(Made::Null, percent)] {
            lines.push(Line { digests: BOTH, ..Line::of(case) });
        }
    }
    lines.extend(Neighbour::ALL.map(|neighbour| Line {
        about: About::Beside(neighbour),
        ..Line::of(random(Made::Null, 32, 0))
    }));
    lines
}

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted = |line: &Line| {
        options.filter.as_ref().is_none_or(|part| line.name().contains(part.as_str()))
    };
    let lines: Vec<Line> = lines().into_iter().filter(wanted).collect();
    if lines.is_empty() {
        return;
    }
    report.notes.push(
        "One core of the target and one of the host, in one process over loopback; a request crosses the kernel's \
         TCP twice. A queue has 127 commands out at most. Digests are CRC32C of headers and of data; rows without the \
         word have none."
            .to_owned(),
    );
    match Bench::new() {
        Ok(bench) => report.rows.extend(bench.rows(&lines, options, &mut progress)),
        Err(why) => report.rows.extend(lines.iter().map(|line| line.row(&Err(why.clone())))),
    }
}

/// A target of two drives, and the cores of both sides. The order of the fields is that in which they end.
struct Bench {
    target: Target,
    rig: Rig,
}

impl Bench {
    fn new() -> Result<Self, String> {
        let rig = Rig::start(2)?;
        let Some(core) = rig.handles().pop() else { return Err("there is no core".to_owned()) };
        let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let target = Target::start(listen, vec![core], TargetConfig::default())
            .map_err(|e| e.to_string())?;
        for (made, uuid) in [(Made::Null, 1), (Made::Ram, 2)] {
            let export = Export {
                nqn: nqn(made),
                namespace: 1,
                uuid: [uuid; 16],
                device: Some(made.drive(made.usual_bytes())?),
                read_only: false,
                ledger: None,
                hosts: vec![HOST.to_owned()],
            };
            target.add_export(&export).map_err(|e| e.to_string())?;
        }
        Ok(Self { target, rig })
    }

    /// Every line once in each round, and another one begins each round.
    fn rows(&self, lines: &[Line], options: &Options, progress: &mut impl FnMut(&str)) -> Vec<Row> {
        let repeats = options.repeats();
        let mut found: Vec<Result<Vec<f64>, String>> = vec![Ok(Vec::new()); lines.len()];
        for round in 0..repeats {
            for turn in 0..lines.len() {
                let at = (round + turn) % lines.len();
                let (line, Ok(values)) = (&lines[at], &mut found[at]) else { continue };
                progress(&format!("{} of {repeats}: {}", round + 1, line.name()));
                match self.value(line, options.span) {
                    Ok(value) => values.push(value),
                    Err(why) => found[at] = Err(why),
                }
            }
        }
        lines.iter().zip(&found).map(|(line, found)| line.row(found)).collect()
    }

    fn value(&self, line: &Line, span: Duration) -> Result<f64, String> {
        let sample = self.sample(line, span)?;
        match line.about {
            About::Requests => Ok(sample.rate()),
            About::Bytes => Ok(sample.rate() * line.case.bytes as f64 / 1e9),
            About::Beside(neighbour) => {
                let present = neighbour.arrive(self.target.address(), &nqn(line.case.made))?;
                let beside = self.sample(line, span)?;
                drop(present);
                Ok(p99(&beside)? / p99(&sample)?)
            }
        }
    }

    /// What a host of its own gets.
    fn sample(&self, line: &Line, span: Duration) -> Result<Sample, String> {
        let address = format!("nvme-tcp://{}/{}", self.target.address(), nqn(line.case.made));
        let address = address.parse().map_err(|e| format!("{e}"))?;
        let host = HostName { nqn: HOST.to_owned(), id: [1; 16], keys: None, tls: None };
        let link = Link { digests: line.digests, ..Link::default() };
        let device = FabricsDevice::connect(&address, &host, link).map_err(|e| e.to_string())?;
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let running = self.rig.load(&device, &[line.case.pattern(&device.info(), 0)])?;
        pass(span / 3);
        let sample = running.sample(span)?;
        match running.stop()? {
            0 => Ok(sample),
            failed => Err(format!("{failed} requests failed")),
        }
    }
}

/// The subsystem of the drive that is made so.
fn nqn(made: Made) -> String {
    format!("nqn.2014-08.org.nvmexpress:{}", made.drives().word())
}

fn p99(sample: &Sample) -> Result<f64, String> {
    let found = sample.latency().percentile(990.0);
    found.map(|ns| ns as f64).ok_or_else(|| "no request came back".to_owned())
}

#[cfg(test)]
mod tests;
