//! The log without I/O.

use strake_ondisk::{LogStart, POOL_BLOCK_BYTES};
use strake_units::Uuid;
use strake_volume_map::{
    Change, ClusterId, Number, Record, Ring, Shape, Start, VolumeId, VolumesChange,
};

use crate::log::{Log, LogReader};

const POOL: Uuid = Uuid([3; 16]);
const SHAPE: Shape = Shape { clusters: 100, cluster_blocks: 64, leaf_entries: 1008, rings: 1 };
const BLOCKS: u64 = 8;

fn record(number: u64, start: u32, nonce: u64) -> Record {
    let change = Change::Map {
        volume: VolumeId(1),
        index: number as u32 % 100,
        cluster: ClusterId(number as u32 % 100),
        partial: None,
    };
    let start = Start { number: start, nonce };
    Record { ring: Ring::LEADER, number: Number(number), start, change }
}

/// A log and its place on a drive.
struct Disk {
    log: Log,
    bytes: Vec<u8>,
    start: LogStart,
}

impl Disk {
    fn new(start: LogStart) -> Self {
        let reader = LogReader::new(POOL, SHAPE, 0);
        let (_, log) = reader.finish(BLOCKS, start, 0);
        Self { log, bytes: vec![0; BLOCKS as usize * POOL_BLOCK_BYTES], start }
    }

    /// Writes records, without the blocks of the write that `lost` names.
    fn write(&mut self, records: &[Record], lost: &[usize]) -> Option<(u64, usize)> {
        let write = self.log.write(records.iter())?;
        let blocks = write.bytes.chunks_exact(POOL_BLOCK_BYTES);
        for (at, block) in blocks.enumerate().filter(|(at, _)| !lost.contains(at)) {
            let place = (write.sequence as usize + at) % BLOCKS as usize * POOL_BLOCK_BYTES;
            self.bytes[place..place + POOL_BLOCK_BYTES].copy_from_slice(block);
        }
        Some((write.sequence, write.bytes.len() / POOL_BLOCK_BYTES))
    }

    fn reader(&self, from: u64) -> LogReader {
        let mut reader = LogReader::new(POOL, SHAPE, from);
        loop {
            let place = (reader.next() % BLOCKS) as usize * POOL_BLOCK_BYTES;
            if !reader.take(&self.bytes[place..place + POOL_BLOCK_BYTES]) {
                return reader;
            }
        }
    }

    /// Reads the log, and continues it in a later start.
    fn restart(&mut self, from: u64, start: LogStart) -> Vec<u64> {
        let (records, log) = self.reader(from).finish(BLOCKS, start, from);
        (self.log, self.start) = (log, start);
        records.iter().map(|record| record.number.0).collect()
    }

    /// True if a block after the end shows that the log goes on.
    fn is_damaged(&self, from: u64) -> bool {
        let reader = self.reader(from);
        (reader.next() + 1..reader.next() + BLOCKS).any(|sequence| {
            let place = (sequence % BLOCKS) as usize * POOL_BLOCK_BYTES;
            reader.is_continued_at(sequence, &self.bytes[place..place + POOL_BLOCK_BYTES])
        })
    }
}

fn start(number: u32, nonce: u64) -> LogStart {
    LogStart { number, nonce }
}

fn records(numbers: std::ops::Range<u64>, start: u32, nonce: u64) -> Vec<Record> {
    numbers.map(|number| record(number, start, nonce)).collect()
}

#[test]
fn records_are_read_in_order_over_the_end_of_the_place() {
    let mut disk = Disk::new(start(1, 10));
    let mut expected = Vec::new();
    for lap in 0..10 {
        // 300 records have 3 blocks.
        let numbers = lap * 300 + 1..lap * 300 + 301;
        let (sequence, blocks) = disk.write(&records(numbers.clone(), 1, 10), &[]).expect("room");
        assert!(blocks >= 3);
        expected.extend(numbers.clone());
        let position = disk.log.position(Number(numbers.start));
        assert_eq!(position, sequence);
        disk.log.trim(Number(numbers.start));
        let read: Vec<u64> = disk
            .reader(position)
            .finish(BLOCKS, disk.start, position)
            .0
            .iter()
            .map(|r| r.number.0)
            .collect();
        assert_eq!(read, numbers.collect::<Vec<_>>());
    }
}

#[test]
fn blocks_in_use_are_not_written() {
    let mut disk = Disk::new(start(1, 10));
    disk.write(&records(1..600, 1, 10), &[]).expect("room");
    assert!(disk.log.used() >= 5);
    assert_eq!(
        disk.write(&records(600..1200, 1, 10), &[]).map(|(_, blocks)| blocks <= 3),
        Some(true)
    );
    assert_eq!(disk.log.used(), disk.log.blocks());
    assert_eq!(disk.write(&records(1200..1201, 1, 10), &[]), None, "the log is full");
    disk.log.trim(Number(600));
    assert!(disk.write(&records(1200..1201, 1, 10), &[]).is_some());
}

#[test]
fn a_write_is_kept_and_replayed_until_its_last_record_is_not_needed() {
    let mut disk = Disk::new(start(1, 10));
    disk.write(&records(1..5, 1, 10), &[]).expect("room");
    disk.write(&records(5..8, 1, 10), &[]).expect("room");
    for (floor, position) in [(1, 0), (4, 0), (5, 1), (7, 1), (8, 2)] {
        assert_eq!(disk.log.position(Number(floor)), position, "floor {floor}");
    }
    for (keep_from, used) in [(1, 2), (4, 2), (5, 1), (7, 1), (8, 0)] {
        disk.log.trim(Number(keep_from));
        assert_eq!(disk.log.used(), used, "records from {keep_from} on are kept");
    }
}

#[test]
fn a_torn_write_ends_the_log_and_a_later_start_continues_before_its_rest() {
    for lost in 0..3 {
        let mut disk = Disk::new(start(1, 10));
        disk.write(&records(1..10, 1, 10), &[]).expect("room");
        disk.write(&records(10..310, 1, 10), &[lost]).expect("room");
        assert!(!disk.is_damaged(0), "a torn write is no damage");
        let read = disk.restart(0, start(2, 11));
        let whole = read.len() as u64;
        assert!((9..309).contains(&whole));
        assert_eq!(read, (1..=whole).collect::<Vec<_>>());
        // A short write: what is behind it is of the first start.
        let next = whole + 1;
        disk.write(&records(next..next + 2, 2, 11), &[]).expect("room");
        assert!(!disk.is_damaged(0));
        let read = disk.restart(0, start(3, 12));
        assert_eq!(read, (1..=whole + 2).collect::<Vec<_>>());
    }
}

#[test]
fn a_torn_write_without_a_whole_record_does_not_hide_a_start_with_the_same_number() {
    let name = |at: u32| format!("{at:060}").parse().expect("a name");
    let pairs = (0..64).map(|at| (VolumeId(1), VolumeId(at + 2), name(at))).collect();
    let large = |nonce| Record {
        change: Change::Volumes(VolumesChange::Snapshot(pairs), vec![Number(10)]),
        ..record(10, 2, nonce)
    };
    let mut disk = Disk::new(start(1, 10));
    disk.write(&records(1..10, 1, 10), &[]).expect("room");
    disk.restart(0, start(2, 11));
    let (_, blocks) = disk.write(&[large(11)], &[1]).expect("room");
    assert!(blocks >= 2, "the record has two blocks, and the second is lost");
    assert_eq!(disk.restart(0, start(2, 12)).len(), 9);
    // This start has the same number, because no whole record of the other one exists.
    disk.write(&records(10..14, 2, 12), &[]).expect("room");
    disk.write(&records(14..16, 2, 12), &[]).expect("room");
    assert_eq!(disk.restart(0, start(3, 13)), (1..16).collect::<Vec<_>>());
}

#[test]
fn the_rest_of_a_start_with_the_same_number_does_not_continue_the_log() {
    let mut disk = Disk::new(start(1, 10));
    disk.write(&records(1..10, 1, 10), &[]).expect("room");
    disk.restart(0, start(2, 11));
    disk.write(&records(10..310, 2, 11), &[0]).expect("room");
    disk.restart(0, start(2, 12));
    disk.write(&records(10..12, 2, 12), &[]).expect("room");
    let read = disk.restart(0, start(3, 13));
    assert_eq!(read, (1..12).collect::<Vec<_>>());
}

#[test]
fn damage_before_a_later_write_is_noticed() {
    let mut disk = Disk::new(start(1, 10));
    for number in 1..6 {
        disk.write(&records(number..number + 1, 1, 10), &[]).expect("room");
    }
    assert!(!disk.is_damaged(0));
    disk.bytes[2 * POOL_BLOCK_BYTES + 100] ^= 1;
    assert!(disk.is_damaged(0), "block 2 is damaged, and the write of block 3 followed it");
    let mut disk = Disk::new(start(1, 10));
    disk.write(&records(1..10, 1, 10), &[]).expect("room");
    disk.bytes[100] ^= 1;
    assert!(!disk.is_damaged(0), "nothing follows, as after a torn write");
}
