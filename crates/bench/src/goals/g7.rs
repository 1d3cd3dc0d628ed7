//! G7, G8 and G10: a RAID 6 of modelled drives, as its vendors' competitors measured theirs; with drives out; and what
//! the engine adds to a drive's own latency.

use strake_dev_mem::Profile;
use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::{Target, number};
use crate::scenario::{Case, Made, Options};
use strake_load::Order;

/// Drives of the array.
const DRIVES: usize = 8;
/// Bytes of data in a stripe, which sequential requests are long.
const STRIPE: usize = 6 * (128 << 10);
/// What every such row leaves out.
const LEFT_OUT: &str = "no driver or DMA cost";

fn array(options: &Options) -> Case {
    Case { made: Made::Model(options.profile), ..Case::array(Level::Raid6, DRIVES) }
}

fn sequential(options: &Options, write_percent: u8) -> Case {
    Case { write_percent, order: Order::Sequential, bytes: STRIPE, depth: 32, ..array(options) }
}

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let mut asks = random(options);
    let Profile { read_bytes_per_s, write_bytes_per_s, .. } = options.profile;
    let limits = [
        (100, 6.0 * write_bytes_per_s as f64, Target::new(37.0, 65.0, 90.0)),
        (0, DRIVES as f64 * read_bytes_per_s as f64, Target::new(97.0, 99.0, 99.0)),
    ];
    for (write_percent, limit, target) in limits {
        let limit_text = number(limit / 1e9, "GB/s");
        asks.push(
            Ask::new(sequential(options, write_percent), Question::ShareOfBytes(limit), target)
                .called(" of limit")
                .note(format!(
                    "limit {limit_text}; anchor: xiRAID Opus, best of 1 core; {LEFT_OUT}"
                )),
        );
    }
    asks
}

/// A small write is three reads and three writes of drives, a read is one; every drive takes part alike.
fn random(options: &Options) -> Vec<Ask> {
    let Profile { read_iops, write_iops, .. } = options.profile;
    let writes = (100, DRIVES as f64 * write_iops as f64 / 3.0, Target::new(32.0, 90.0, 97.0));
    let reads = (0, DRIVES as f64 * read_iops as f64, Target::new(5.4, 40.0, 75.0));
    let cases = [(writes, 64), (writes, 128), (reads, 128), (reads, 1024)];
    let ask = |((write_percent, limit, target), depth)| {
        let limit_text = number(limit, "1/s");
        Ask::new(
            Case { write_percent, depth, ..array(options) },
            Question::ShareOfIops(limit),
            target,
        )
        .called(" of limit")
        .note(format!("limit {limit_text}; anchor: xiRAID Opus, best of 1 core; {LEFT_OUT}"))
    };
    cases.into_iter().map(ask).collect()
}

pub(super) fn degraded(options: &Options) -> Vec<Ask> {
    let stream = Case { out: 2, ..sequential(options, 0) };
    let target = Target { anchor: None, goal: Some(20.0), moonshot: None };
    let note = format!("moonshot: as fast as the drives; {LEFT_OUT}");
    let mut asks = vec![Ask::new(stream, Question::Bandwidth, target).note(note)];
    for (out, goal) in [(1, 45.0), (2, 30.0)] {
        for depth in [128, 1024] {
            let healthy = Case { depth, ..array(options) };
            let case = Case { out, ..healthy.clone() };
            let target = Target { anchor: None, goal: Some(goal), moonshot: None };
            asks.push(
                Ask::new(case, Question::ShareOf(healthy), target)
                    .called(" of healthy")
                    .note(LEFT_OUT),
            );
        }
    }
    asks
}

pub(super) fn added(options: &Options) -> Vec<Ask> {
    let drive = Case { made: Made::Model(options.profile), depth: 1, ..Case::RAW };
    let target = Target::new(1.05, 0.5, 0.2);
    let mut asks =
        vec![Ask::new(drive.clone(), Question::Iops, Target::NONE).note("the drive by itself")];
    for level in [Level::Raid10, Level::Raid6] {
        let case = Case { made: drive.made, depth: 1, ..Case::array(level, DRIVES) };
        asks.push(
            Ask::new(case, Question::Added(drive.clone()), target)
                .called(" added to a drive")
                .note(format!(
                    "means of the fastest 90 %; anchor: xiRAID Opus, RAID 10; {LEFT_OUT}"
                )),
        );
        let (null, raw) =
            (Case { depth: 1, ..Case::array(level, DRIVES) }, Case { depth: 1, ..Case::RAW });
        asks.push(
            Ask::new(null, Question::Added(raw), Target::NONE)
                .called(" added to a drive")
                .note("the same on null drives, where nothing else is in the time"),
        );
    }
    asks
}
