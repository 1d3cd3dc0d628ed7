use super::{Log, read_log};
use crate::drives::maintenance::Maintained;
use crate::drives::maintenance::fake::Fake;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_nvme_wire::Status;
use strake_nvme_wire::maintenance::telemetry::{Area, Initiator};

fn read(fake: &Arc<Fake>, initiator: Initiator, area: Area) -> Result<Log, String> {
    let source = Arc::<Fake>::clone(fake);
    let later = Instant::now() + Duration::from_secs(600);
    read_log(&Maintained::of(source).expect("it identifies itself"), initiator, area, later)
}

/// The history of the bug: the read continued after its command had failed.
#[test]
fn a_read_ends_at_its_time_limit() {
    let drive = Maintained::of(Fake::new("S1")).expect("it identifies itself");
    let late = read_log(&drive, Initiator::Host, Area::Three, Instant::now());
    let why = late.expect_err("there is no time");
    assert!(why.contains("0 of 358912 bytes within the time limit"), "{why}");
}

#[test]
fn a_log_is_read_whole_in_pieces_of_whole_blocks() {
    for log2 in [0, 1, 5] {
        let fake = Fake::new("S1");
        fake.state().controller[77] = log2;
        let log = read(&fake, Initiator::Host, Area::Three).expect("it answers");
        assert_eq!((log.generation, log.bytes.len()), (1, 701 * 512));
        for block in 1..=700_u16 {
            let at = usize::from(block) * 512;
            assert_eq!(log.bytes[at..at + 2], block.to_le_bytes());
        }
        let small = read(&fake, Initiator::Host, Area::One).expect("it answers");
        assert_eq!((small.generation, small.bytes.len()), (2, 2 * 512), "a new capture");
    }
}

#[test]
fn d30_a_log_that_changes_is_read_again() {
    let fake = Fake::new("S1");
    fake.state().changes = 2;
    let log = read(&fake, Initiator::Host, Area::Three).expect("it settles");
    assert_eq!((log.generation, log.bytes[381]), (3, 3), "all of one generation");
    fake.state().changes = u32::MAX;
    let why = read(&fake, Initiator::Host, Area::Three).expect_err("it never settles");
    assert!(why.contains("changed during each of 3 reads"), "{why}");
}

#[test]
fn a_drive_without_data_or_with_an_impossible_header_is_refused() {
    let fake = Fake::new("S1");
    let theirs = |fake| read(fake, Initiator::Controller, Area::Three).expect_err("it has none");
    assert!(theirs(&fake).contains("captured no telemetry"));
    fake.state().areas = [3, 2, 1];
    let why = read(&fake, Initiator::Host, Area::One).expect_err("it is impossible");
    assert!(why.contains("areas end at the blocks 3, 2 and 1"), "{why}");
    fake.state().distort = Some(Box::new(|_, data| data[0] = 9));
    let why = read(&fake, Initiator::Host, Area::One).expect_err("it is another page");
    assert!(why.contains("log page 09h"), "{why}");
    fake.state().distort = Some(Box::new(|_, data| data.truncate(100)));
    let source = Arc::<Fake>::clone(&fake);
    let why = Maintained::of(source).err().expect("it is too short");
    assert!(why.contains("100 bytes instead of 4096"), "{why}");
    fake.state().distort = None;
    fake.state().statuses.insert(2, Status::INVALID_LOG_PAGE);
    let why = read(&fake, Initiator::Host, Area::One).expect_err("it rejects the page");
    assert_eq!(why, "Get Log Page failed with status 1h/09h");
    fake.state().controller[261] = 0;
    let why = read(&fake, Initiator::Host, Area::One).expect_err("it has none");
    assert_eq!(why, "it does not support telemetry");
}
