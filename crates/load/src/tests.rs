use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use strake_block::BlockDevice;
use strake_dev_mem::{NullDevice, RamDevice};
use strake_reactor::{Poller as _, Turn};
use strake_units::{BlockSize, CoreIndex, Nanos};

use super::{Load, Order, Pattern, Progress, Source};

const BLOCKS: u64 = 64;

fn ram() -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096))
}

/// Runs `pattern` on `device` for `turns`, then to its end.
fn check(device: &dyn BlockDevice, pattern: &Pattern, turns: u64) -> Arc<Progress> {
    let progress = Arc::new(Progress::default());
    let queue = device.open_queue(CoreIndex(0), pattern.depth).expect("opens");
    let (reported, stopped) = mpsc::sync_channel(1);
    let mut load = Load::new(queue, pattern, Arc::clone(&progress), reported);
    for turn in 0..turns {
        let _ = load.turn(Nanos(turn * 1000));
    }
    progress.stop.store(true, Relaxed);
    for turn in turns..turns + 100 {
        let _ = load.turn(Nanos(turn * 1000));
    }
    assert_eq!(stopped.try_recv(), Ok(()), "requests are still out");
    assert_eq!(load.turn(Nanos(turns * 2000)), Turn::Idle);
    progress
}

#[test]
fn as_many_are_out_as_asked_for_and_every_one_is_counted() {
    let null = NullDevice::new(BLOCKS, BlockSize::B4096);
    for depth in [1, 8, 64] {
        let pattern = Pattern { depth, places: BLOCKS, ..Pattern::default() };
        let progress = check(&null, &pattern, 11);
        // A null drive completes at the next turn, so the first turn brings nothing back, and each later one all.
        let done = u64::from(depth) * 11;
        assert_eq!((progress.reads.load(Relaxed), progress.writes.load(Relaxed)), (done, 0));
        let latency = progress.read_latency.counts();
        assert_eq!(latency.total(), done);
        assert!((1000..1040).contains(&latency.percentile(999.0).expect("it counted")));
    }
}

#[test]
fn mixed_load_reads_and_writes_in_proportion() {
    for source in [Source::Own, Source::Shared, Source::Cold(1 << 20)] {
        let pattern =
            Pattern { write_percent: 30, places: BLOCKS, source, depth: 16, ..Pattern::default() };
        let progress = check(&*ram(), &pattern, 1000);
        let (reads, writes) = (progress.reads.load(Relaxed), progress.writes.load(Relaxed));
        assert_eq!(reads + writes, 16_000);
        assert!((4500..5100).contains(&writes), "{writes} writes");
        assert_eq!(progress.failed.load(Relaxed), 0);
    }
}

#[test]
fn a_drive_that_keeps_its_data_passes_verification() {
    for order in [Order::Random, Order::Sequential, Order::Zipf(1.1)] {
        let pattern = Pattern {
            write_percent: 50,
            blocks: 2,
            order,
            depth: 16,
            places: BLOCKS / 2,
            verify: true,
            ..Pattern::default()
        };
        let progress = check(&*ram(), &pattern, 1000);
        assert_eq!((progress.wrong.load(Relaxed), progress.failed.load(Relaxed)), (0, 0));
        assert!(progress.reads.load(Relaxed) > 1000);
    }
}

#[test]
fn a_drive_that_forgets_is_found_out() {
    let null = NullDevice::new(BLOCKS, BlockSize::B4096);
    let pattern = Pattern { write_percent: 50, places: BLOCKS, verify: true, ..Pattern::default() };
    let progress = check(&null, &Pattern { depth: 8, ..pattern }, 1000);
    assert!(progress.wrong.load(Relaxed) > 1000, "{:?}", progress.wrong);
}
