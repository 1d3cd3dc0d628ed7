//! G4 and G5: full-stripe writes, with one parity and with two.

use strake_raid::Level;

use crate::ask::{Ask, Question};
use crate::report::Target;
use crate::scenario::{Case, Options};
use strake_load::{Order, Source};

const STRIP: usize = 128 << 10;

fn stripes(level: Level, data: usize, depth: u32) -> Case {
    let parity = if level == Level::Raid5 { 1 } else { 2 };
    Case {
        write_percent: 100,
        order: Order::Sequential,
        bytes: data * STRIP,
        depth,
        ..Case::array(level, data + parity)
    }
}

pub(super) fn asks() -> Vec<Ask> {
    let depths = [(4, Target::goals(100.0, 130.0)), (32, Target::goals(75.0, 100.0))];
    let ask = |(depth, target)| {
        Ask::new(stripes(Level::Raid5, 7, depth), Question::Bandwidth, target)
            .note("GB/s of data; scripts/peers.py compares it with SPDK raid5f")
    };
    depths.into_iter().map(ask).collect()
}

pub(super) fn double_parity(options: &Options) -> Vec<Ask> {
    let case = |source| Case { source, ..stripes(Level::Raid6, 6, 4) };
    let hot = Target { anchor: Some(140.0), goal: Some(75.0), moonshot: None };
    let cold = Target { anchor: Some(23.0), goal: Some(22.0), moonshot: None };
    vec![
        Ask::new(case(Source::Shared), Question::Bandwidth, hot)
            .note("every request sends the same 768 KiB; anchor: ISA-L's pq_gen alone, 140 to 235"),
        Ask::new(case(Source::Cold(options.cold_bytes)), Question::Bandwidth, cold).note(
            "data come from memory that no cache holds; anchor: ISA-L's pq_gen alone, 23 to 25",
        ),
    ]
}
