//! NVMe/TCP over loopback: our host on one core, our target on another, in this process; and beside it, in turns, the
//! same host at a target of others, where there is one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use strake_block::BlockDevice;
pub use strake_dev_fabrics::Address;
use strake_dev_fabrics::{Digests, FabricsDevice, HostName, Options as Link, Use};
use strake_export_nvmet::{Export, Target, TargetConfig};

use crate::measure::Samples;
use crate::net::neighbour::Neighbour;
use crate::report::{Metric, Report, Row, Target as Goal};
use crate::rig::{Rig, Sample, pass};
use crate::scenario::{Case, Made, Options};
use strake_load::Order;

mod neighbour;
mod peer;

pub use peer::Peer;

/// The host that may connect.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
/// Times as fast as a target of others that ours is to be, and would like to be.
const PEER_TIMES: (f64, f64) = (1.0, 1.3);
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
        let goal = match self.about {
            About::Requests | About::Bytes | About::Beside(Neighbour::FloodsElsewhere) => None,
            About::Beside(_) => Some(NEIGHBOUR_MAX),
        };
        Goal { anchor: self.anchor, goal, moonshot: None }
    }

    fn row(&self, found: &Found) -> Row {
        let row = row(self.name(), self.metric(), found, self.target());
        let row = row.on(self.case.made.drives());
        if self.anchor.is_some() {
            return row.note("anchor: SPDK's target under its own host, on a quiet machine");
        }
        row
    }

    /// The same at the peer's target, and how many times as fast ours was: of samples of the same round.
    fn rows_beside(&self, ours: &Found, theirs: &Found) -> [Row; 2] {
        let (goal, moonshot) = PEER_TIMES;
        let times = match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => Ok(ours.iter().zip(theirs).map(|(a, b)| a / b).collect()),
            (Err(why), _) | (_, Err(why)) => Err(why.clone()),
        };
        let (theirs_name, times_name) =
            (format!("{} peer", self.name()), format!("{} times the peer", self.name()));
        let rows = [
            row(theirs_name, self.metric(), theirs, Goal::NONE),
            row(times_name, Metric::Scaling, &times, Goal::goals(goal, moonshot)),
        ];
        rows.map(|row| row.on(self.case.made.drives()))
    }

    /// Whether a target of others can stand beside it.
    fn has_peer(&self) -> bool {
        matches!(self.about, About::Requests | About::Bytes) && self.digests == Digests::default()
    }
}

/// A sample of each round, or why there is none.
type Found = Result<Vec<f64>, String>;

fn row(name: String, metric: Metric, found: &Found, target: Goal) -> Row {
    match found {
        Ok(values) if !values.is_empty() => {
            Row::new(name, metric, &Samples::new(values.clone()), target)
        }
        Ok(_) => Row::open(name, metric, target, "it was not measured"),
        Err(why) => Row::open(name, metric, target, why.as_str()),
    }
}

/// What a remote drive asks for by default.
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

/// Measures and adds the rows; of those without digests and neighbours also what `peer` gives, in turns.
pub fn answer(
    report: &mut Report,
    options: &Options,
    peer: Option<&Peer>,
    mut progress: impl FnMut(&str),
) {
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
    report
        .notes
        .extend(peer.map(|peer| format!("The peer is {}, under the same host.", peer.address)));
    match Bench::new((Ipv4Addr::LOCALHOST, 0).into()) {
        Ok(bench) => {
            // Where it cannot rest its rows say so.
            let _ = peer.map(Peer::rest);
            report.rows.extend(bench.rows(&lines, options, peer, &mut progress));
            let _ = peer.map(Peer::wake);
        }
        Err(why) => report.rows.extend(lines.iter().map(|line| line.row(&Err(why.clone())))),
    }
}

/// A target of two drives, null and in memory, and the cores of both sides: the target's is the last.
pub struct Bench {
    // Dropped in this order.
    target: Target,
    rig: Rig,
}

impl Bench {
    /// Serves the drives to [`HOST`] at an address: to others too, who have the target's core to themselves then.
    ///
    /// # Errors
    /// What is in the way.
    pub fn new(listen: SocketAddr) -> Result<Self, String> {
        let rig = Rig::start(2)?;
        let Some(core) = rig.handles().pop() else { return Err("there is no core".to_owned()) };
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
                secure: false,
                limits: None,
            };
            target.add_export(&export).map_err(|e| e.to_string())?;
        }
        Ok(Self { target, rig })
    }

    /// Where its drives are served, the null drive first.
    #[must_use]
    pub fn addresses(&self) -> [String; 2] {
        [Made::Null, Made::Ram].map(|made| self.uri(made))
    }

    fn uri(&self, made: Made) -> String {
        format!("nvme-tcp://{}/{}", self.target.address(), nqn(made))
    }

    /// Every line once in each round, and another one begins each round; of ours and the peer's another comes first.
    fn rows(
        &self,
        lines: &[Line],
        options: &Options,
        peer: Option<&Peer>,
        progress: &mut impl FnMut(&str),
    ) -> Vec<Row> {
        let repeats = options.repeats();
        let mut found: Vec<(Found, Found)> = vec![(Ok(Vec::new()), Ok(Vec::new())); lines.len()];
        for round in 0..repeats {
            for turn in 0..lines.len() {
                let at = (round + turn) % lines.len();
                let (line, (ours, theirs)) = (&lines[at], &mut found[at]);
                progress(&format!("{} of {repeats}: {}", round + 1, line.name()));
                let peer = peer.filter(|_| line.has_peer());
                let ours_first = round % 2 == 0;
                for ours_now in [ours_first, !ours_first] {
                    if ours_now {
                        note(ours, || self.value(line, options.span));
                    } else if let Some(peer) = peer {
                        note(theirs, || self.peer_value(peer, line, options.span));
                    }
                }
            }
        }
        let rows = lines.iter().zip(&found).flat_map(|(line, (ours, theirs))| {
            let beside = peer.filter(|_| line.has_peer()).map(|_| line.rows_beside(ours, theirs));
            [line.row(ours)].into_iter().chain(beside.into_iter().flatten())
        });
        rows.collect()
    }

    fn value(&self, line: &Line, span: Duration) -> Result<f64, String> {
        let at = self.uri(line.case.made);
        let sample = self.sample(&at, line, span)?;
        match line.about {
            About::Requests | About::Bytes => Ok(amount(line, &sample)),
            About::Beside(neighbour) => {
                let present = neighbour.arrive(self.target.address(), &nqn(line.case.made))?;
                let beside = self.sample(&at, line, span)?;
                drop(present);
                Ok(p99(&beside)? / p99(&sample)?)
            }
        }
    }

    fn peer_value(&self, peer: &Peer, line: &Line, span: Duration) -> Result<f64, String> {
        peer.wake()?;
        let sample = self.sample(&peer.uri(line.case.made), line, span);
        peer.rest()?;
        Ok(amount(line, &sample?))
    }

    /// What a host of its own gets from a target.
    fn sample(&self, at: &str, line: &Line, span: Duration) -> Result<Sample, String> {
        let address: Address = at.parse().map_err(|e| format!("{e}"))?;
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

/// Adds a sample, or remembers why there is none from then on.
fn note(found: &mut Found, sample: impl FnOnce() -> Result<f64, String>) {
    let Ok(values) = found else { return };
    match sample() {
        Ok(value) => values.push(value),
        Err(why) => *found = Err(why),
    }
}

/// The number of a line whose number is about requests or bytes.
fn amount(line: &Line, sample: &Sample) -> f64 {
    match line.about {
        About::Bytes => sample.rate() * line.case.bytes as f64 / 1e9,
        About::Requests | About::Beside(_) => sample.rate(),
    }
}

/// The subsystem of the drive that is made so.
fn nqn(made: Made) -> String {
    format!("nqn.2014-08.org.nvmexpress:{}", made.drives().word())
}

fn p99(sample: &Sample) -> Result<f64, String> {
    let found = sample.latency().percentile(990.0);
    found.map(|ns| ns as f64).ok_or_else(|| "no request completed".to_owned())
}

#[cfg(test)]
mod tests;
