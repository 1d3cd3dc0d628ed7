//! Reads of several strips of a degraded stripe read every survivor once.

use strake_raid::Level;
use strake_units::{Lba, LbaRange, StripeIndex};

use crate::stage::{DATA, Seen, Set, Stage};

/// The number of blocks of 512 bytes in a strip.
const STRIP: u64 = 32;

/// The load of a read on the members.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// The number of reads of all members.
    reads: usize,
    /// The number of blocks that they read.
    blocks: u64,
}

fn degraded(level: Level, members: usize, lost: &[u8], cores: u16, strip: u32) -> Stage {
    let mut set = Set::new(level, members);
    set.cores = cores;
    set.strip = strip;
    set.options.merge = true;
    let mut stage = set.filled(4000, 100, 3);
    for member in lost {
        stage.fail(*member).expect("allowed");
    }
    stage
}

/// Reads, compares the data, and returns the load. Checks that no block is read twice.
fn cost(stage: &mut Stage, at: u64, blocks: u64) -> Cost {
    stage.watch();
    let bytes = stage.read(0, at, blocks).expect("there is redundancy");
    let from = (at << 9) as usize;
    assert_eq!(bytes, stage.model[from..from + bytes.len()]);
    let data_read = |seen: &Seen| seen.op == 'r' && !seen.done && seen.byte >= DATA;
    let reads: Vec<Seen> = stage.seen().into_iter().filter(data_read).collect();
    for (nth, one) in reads.iter().enumerate() {
        let twice = |other: &&Seen| {
            other.drive == one.drive
                && other.byte < one.byte + one.bytes
                && one.byte < other.byte + other.bytes
        };
        assert_eq!(reads[..nth].iter().find(twice), None, "{one:?}");
    }
    Cost { reads: reads.len(), blocks: reads.iter().map(|seen| seen.bytes >> 9).sum() }
}

/// Fails members and reads whole stripes: reads use as many members as there are data strips, once each.
fn check_whole_stripes(level: Level, members: usize, lost: &[u8], cores: u16) {
    let mut stage = degraded(level, members, lost, cores, 16 << 10);
    let k = u64::from(stage.status().geometry.data_strips());
    for stripe in (0..2 * members as u64).take(30) {
        let (at, blocks) = (stripe * k * STRIP, k * STRIP);
        let seen = cost(&mut stage, at, blocks);
        assert_eq!(seen, Cost { reads: k as usize, blocks }, "{level:?} lost {lost:?}");
    }
    // Reads several stripes at a time, up to the limit of a request.
    let stripes = 3.min((1 << 20) / 512 / (k * STRIP));
    let blocks = stripes * k * STRIP;
    assert_eq!(cost(&mut stage, 0, blocks), Cost { reads: (stripes * k) as usize, blocks });
}

#[test]
fn whole_stripes_cost_one_read_of_each_survivor() {
    for cores in [1, 2] {
        check_whole_stripes(Level::Raid5, 4, &[1], cores);
        check_whole_stripes(Level::Raid6, 6, &[1], cores);
        check_whole_stripes(Level::Raid6, 8, &[2, 5], cores);
        check_whole_stripes(Level::Raid73, 8, &[0, 3, 4], cores);
        check_whole_stripes(Level::Parity(4), 12, &[1], cores);
        check_whole_stripes(Level::Parity(4), 12, &[1, 2, 7, 11], cores);
        check_whole_stripes(Level::Parity(4), 44, &[1, 9], cores);
    }
}

/// Returns the first block of the first stripe whose data strip `lost` is on member `member`.
fn find(stage: &Stage, member: u8, lost: u8) -> u64 {
    let geometry = stage.status().geometry;
    let on = |stripe: &u64| {
        let stripe = StripeIndex(*stripe);
        geometry.member(stripe, geometry.position_of_strip(stripe, lost)).0 == member
    };
    let stripe = (0..64).find(on).expect("the layout turns");
    stripe * geometry.stripe_data_blocks()
}

/// Reads `blocks` blocks from block `at` of the first stripe whose data strip 1 is lost, on RAID 6 with 6+2 members.
fn check_part(at: u64, blocks: u64, want: Cost) {
    for cores in [1, 2, 3] {
        let mut stage = degraded(Level::Raid6, 8, &[3], cores, 16 << 10);
        let start = find(&stage, 3, 1);
        assert_eq!(cost(&mut stage, start + at, blocks), want, "{blocks} from {at}");
    }
}

#[test]
fn parts_of_a_stripe_read_what_they_need() {
    // Strips 0 to 2: strip 1 is reconstructed from the other three data strips and P.
    check_part(0, 96, Cost { reads: 6, blocks: 6 * 32 });
    // The end of strip 0 and the start of the lost strip are in different columns: each is read separately.
    check_part(30, 4, Cost { reads: 1 + 6, blocks: 2 + 6 * 2 });
    // If the columns overlap, strip 0 is read as a whole, and the others in the wanted part of strip 1.
    check_part(16, 32, Cost { reads: 6, blocks: 32 + 5 * 16 });
    // The lost strip and a part of the next one.
    check_part(32, 40, Cost { reads: 6, blocks: 6 * 32 });
    // Healthy strips only: nothing is reconstructed.
    check_part(64, 96, Cost { reads: 3, blocks: 96 });
    // The lost strip alone.
    check_part(36, 8, Cost { reads: 6, blocks: 6 * 8 });
}

/// A stripe with several bands is read band by band.
#[test]
fn long_strips_are_read_band_by_band() {
    let mut stage = degraded(Level::Raid5, 4, &[2], 2, 256 << 10);
    let blocks = stage.status().geometry.stripe_data_blocks();
    let seen = cost(&mut stage, 0, blocks);
    assert_eq!(seen, Cost { reads: 3 * 2, blocks });
}

/// During a rebuild, the unfilled part of a member is reconstructed, and the filled part is read.
#[test]
fn during_a_rebuild_every_survivor_is_read_once_too() {
    for cores in [1, 2] {
        let mut stage = degraded(Level::Raid6, 6, &[1], cores, 16 << 10);
        stage.array().set_maintenance(strake_engine::Maintenance { priority: 50, paused: true });
        stage.replace(1).expect("replaceable");
        let blocks = stage.status().geometry.stripe_data_blocks();
        for stripe in 0..12 {
            assert_eq!(cost(&mut stage, stripe * blocks, blocks), Cost { reads: 4, blocks });
        }
    }
}

/// If a survivor is also unreadable, reads continue one by one, and no data are lost.
#[test]
fn an_unreadable_survivor_is_gone_around() {
    use strake_block::IoErrorKind;
    use strake_dev_mem::{Effect, Ops, Rule};
    for kind in [IoErrorKind::Medium, IoErrorKind::Device] {
        let mut stage = degraded(Level::Raid6, 8, &[3], 2, 16 << 10);
        let start = find(&stage, 3, 1);
        let (member, byte) = stage.home(start + 70);
        let range = LbaRange::new(Lba(byte >> 9), 1);
        stage.disks[member].plan.add(Rule::new(Ops::READ, Effect::Fail(kind)).within(range));
        let blocks = stage.status().geometry.stripe_data_blocks();
        let bytes = stage.read(0, start, blocks).expect("there is redundancy");
        assert_eq!(bytes, stage.model[(start << 9) as usize..((start + blocks) << 9) as usize]);
        stage.verify(4000);
    }
}
