//! What others published, beside the same case on modelled drives of the same kind.
//!
//! Figures and limits are those of the vendors' documents: S1, xiRAID Opus on E- and P-cores (October 2025); S2, xiRAID
//! Opus on SanDisk SN861 (June 2025); S3, Intel's white paper on VROC (2022); S4, xiRAID beside RAIDZ2; S5,
//! StorageReview on VROC. Nothing is held against them as a goal: their drives are real, and their load generator (fio)
//! ran on the same cores.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::{Metric, Target};
use crate::scenario::{Case, Made, Options};
use strake_load::Order;

// Where figures are from, and what they include.
const S2: &str = "xiRAID Opus 2025-06 (S2), 2x EPYC 9454";
const S1_E: &str = "xiRAID Opus 2025-10 (S1), Xeon 6780E; depth not given";
const S1_P: &str = "xiRAID Opus 2025-10 (S1), Xeon 6747P; depth not given";
const THEIRS: &str = "8 real SN861, SPDK driver, fio on the same cores, write-hole protection and checksums not stated";
const OURS: &str =
    "ours: modelled drives without driver or DMA cost, load on the same core, no checksums";
/// Bytes of data in a stripe, which sequential requests are long.
const STRIPE: usize = 6 * (128 << 10);

/// A published figure of an array of 8 SN861.
struct Published {
    source: &'static str,
    level: Level,
    write: bool,
    order: Order,
    depth: u32,
    cores: u16,
    /// Requests per second, or GB/s of sequential ones.
    value: f64,
    /// Which part of its drives' limit they call that, in percent.
    share: f64,
}

/// A line of a table: depth, cores, value and share of the limit.
type Line = (u32, u16, f64, f64);

fn lines(
    source: &'static str,
    level: Level,
    (order, write): (Order, bool),
    lines: &[Line],
) -> Vec<Published> {
    let line = |&(depth, cores, value, share): &Line| Published {
        source,
        level,
        write,
        order,
        depth,
        cores,
        value,
        share,
    };
    lines.iter().map(line).collect()
}

/// Depths that S1 does not give, as ours.
const ANY: u32 = 64;

/// The tables of S2 and the one-core rows of S1.
fn published() -> Vec<Published> {
    use Level::{Raid6, Raid10};
    use Order::{Random, Sequential};
    let rand_w = [
        (32, 1, 251e3, 26.0),
        (32, 2, 378e3, 40.0),
        (32, 4, 587e3, 61.0),
        (32, 8, 659e3, 69.0),
        (64, 1, 302e3, 32.0),
        (64, 2, 533e3, 56.0),
        (64, 4, 712e3, 75.0),
        (64, 8, 700e3, 73.0),
    ];
    let rand_r = [
        (64, 1, 1.090e6, 4.5),
        (64, 2, 2.153e6, 9.0),
        (64, 4, 4.156e6, 17.0),
        (64, 8, 7.444e6, 31.0),
        (128, 1, 1.298e6, 5.4),
        (128, 2, 2.602e6, 11.0),
        (128, 4, 5.064e6, 21.0),
        (128, 8, 8.932e6, 37.0),
    ];
    let seq_w =
        [(32, 1, 15.9, 37.0), (32, 2, 21.9, 51.0), (32, 4, 39.0, 90.0), (32, 8, 40.5, 94.0)];
    let seq_r = [(32, 1, 99.1, 90.0), (32, 2, 110.0, 100.0)];
    let (write, read) = (true, false);
    [
        lines(S2, Raid6, (Random, write), &rand_w),
        lines(S2, Raid6, (Random, read), &rand_r),
        lines(S2, Raid6, (Sequential, write), &seq_w),
        lines(S2, Raid6, (Sequential, read), &seq_r),
        lines(S1_E, Raid6, (Random, write), &[(ANY, 1, 0.19e6, 17.0)]),
        lines(S1_P, Raid6, (Random, write), &[(ANY, 1, 0.28e6, 25.0)]),
        lines(S1_E, Raid6, (Random, read), &[(ANY, 1, 0.86e6, 3.3)]),
        lines(S1_P, Raid6, (Random, read), &[(ANY, 1, 0.84e6, 3.2)]),
        lines(S1_E, Raid6, (Sequential, write), &[(ANY, 1, 13.5, 30.0)]),
        lines(S1_P, Raid6, (Sequential, write), &[(ANY, 1, 13.9, 31.0)]),
        lines(S1_E, Raid6, (Sequential, read), &[(ANY, 1, 106.0, 97.0)]),
        lines(S1_P, Raid6, (Sequential, read), &[(ANY, 1, 105.0, 96.0)]),
        lines(S1_E, Raid10, (Random, write), &[(ANY, 1, 0.85e6, 49.5)]),
        lines(S1_P, Raid10, (Random, write), &[(ANY, 1, 0.85e6, 49.5)]),
        lines(S1_E, Raid10, (Random, read), &[(ANY, 1, 0.85e6, 3.0)]),
        lines(S1_P, Raid10, (Random, read), &[(ANY, 1, 0.92e6, 3.5)]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut asks: Vec<Ask> = published().iter().map(|one| ask(one, options, cpus)).collect();
    asks.extend(latencies(options));
    asks.extend(elsewhere().map(|(name, metric, anchor, source)| {
        let case = Case { made: Made::Real, ..Case::RAW };
        let why = "published for other drives, of which there is no profile: not measured here";
        let ask = Ask::new(case, Question::Not(metric, why), only(anchor)).note(source);
        Ask { name: name.to_owned(), protection: "not stated", ..ask }
    }));
    asks
}

/// Something to be beside, and nothing to reach.
const fn only(anchor: f64) -> Target {
    Target { anchor: Some(anchor), goal: None, moonshot: None }
}

fn ask(one: &Published, options: &Options, cpus: usize) -> Ask {
    let sequential = one.order == Order::Sequential;
    let case = Case {
        made: Made::Model(options.profile),
        write_percent: if one.write { 100 } else { 0 },
        order: one.order,
        bytes: if sequential { STRIPE } else { 4096 },
        depth: one.depth,
        cores: one.cores,
        ..Case::array(one.level, 8)
    };
    let metric = if sequential { Metric::Bandwidth } else { Metric::Iops };
    let question = if usize::from(one.cores) > cpus {
        Question::Not(metric, "this machine has fewer CPUs")
    } else if sequential {
        Question::Bandwidth
    } else {
        Question::Iops
    };
    let (source, share) = (one.source, one.share);
    let short = if source == S2 {
        "S2"
    } else if source == S1_E {
        "S1 E-core"
    } else {
        "S1 P-core"
    };
    Ask::new(case, question, only(one.value))
        .called(&format!(" beside {short}"))
        .note(format!("anchor: {source}, {share} % of its drives' limit, {THEIRS}; {OURS}"))
}

/// Depth 1 of RAID 10: the 99th percentile, in microseconds, of E-cores and of P-cores.
fn latencies(options: &Options) -> Vec<Ask> {
    let figures = [
        (100, "S1 E-core", 12.09),
        (100, "S1 P-core", 11.46),
        (0, "S1 E-core", 75.26),
        (0, "S1 P-core", 74.24),
    ];
    let ask = |(write_percent, short, p99): (u8, &str, f64)| {
        let made = Made::Model(options.profile);
        let case = Case { made, write_percent, depth: 1, ..Case::array(Level::Raid10, 8) };
        Ask::new(case, Question::Percentile(990.0), only(p99))
            .called(&format!(" p99 beside {short}"))
            .note(format!("anchor: xiRAID Opus 2025-10 (S1), polled, {THEIRS}; {OURS}"))
    };
    figures.into_iter().map(ask).collect()
}

type Elsewhere = (&'static str, Metric, f64, &'static str);

/// What was published for drives of which there is no profile.
fn elsewhere() -> impl Iterator<Item = Elsewhere> {
    const S4: &str =
        "anchor: S4, 16 SN840, EPYC 7702P with 64 cores, RAID 6, 8 jobs, QD 32; all cores together";
    const S5: &str = "anchor: S5, StorageReview, Intel VROC on 2x4 P4510, all cores together";
    const S3: &str = "anchor: S3, Intel VROC, 4 P5800X, 16 threads, QD 16";
    [
        ("xiRAID raid6 x16 write", Metric::Bandwidth, 37.3, S4),
        ("OpenZFS RAIDZ2 x16 write", Metric::Bandwidth, 3.6, S4),
        ("xiRAID raid6 x16 2 out read", Metric::Bandwidth, 37.5, S4),
        ("OpenZFS RAIDZ2 x16 2 out read", Metric::Bandwidth, 3.0, S4),
        ("Intel VROC raid0 x4 randrw 70/30 4KiB", Metric::Iops, 5.6e6, S3),
        ("Intel VROC raid5 randwrite 4KiB", Metric::Iops, 21_921.0, S5),
        ("Intel VROC raid0 x8 randwrite 4KiB", Metric::Iops, 1_879_180.0, S5),
    ]
    .into_iter()
}
