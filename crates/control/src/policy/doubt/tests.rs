use strake_engine::{ScrubFinding, ScrubVerdict};
use strake_raid::{Geometry, GeometrySpec, Level};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, MemberSet, StripeIndex};

use super::{joined, suspect_without, words};
use crate::limits::SUSPECT_RANGES_MAX;

fn geometry(level: Level, members: usize, group_size: Option<u8>) -> Geometry {
    let spec = GeometrySpec {
        level,
        members,
        group_size,
        strip_bytes: 64 << 10,
        block_size: BlockSize::B4096,
        member_blocks: 1 << 18,
    };
    Geometry::new(&spec).expect("sound")
}

fn finding(verdict: ScrubVerdict, member: Option<u8>, stripe: u64) -> ScrubFinding {
    ScrubFinding {
        verdict,
        member: member.map(MemberIndex),
        stripe: StripeIndex(stripe),
        rows: LbaRange::new(Lba(stripe * 16), 2),
        array: LbaRange::new(Lba(stripe * 32), 2),
        repaired: false,
    }
}

fn out(members: &[u8]) -> MemberSet {
    members.iter().fold(MemberSet::EMPTY, |set, member| set.with(MemberIndex(*member)))
}

#[test]
fn a_member_is_suspect_where_stripes_are_inconsistent() {
    let five = geometry(Level::Raid5, 3, None);
    let differs = finding(ScrubVerdict::ParityDiffers, None, 4);
    let range = (4 * 32 * 4096, 8192);
    assert_eq!(suspect_without(out(&[0]), &[differs], 0, &five), [range]);
    assert_eq!(suspect_without(out(&[]), &[differs], 0, &five), [], "all serve");
    let repaired = ScrubFinding { repaired: true, ..differs };
    assert_eq!(suspect_without(out(&[0]), &[repaired], 0, &five), []);
    let unreadable = finding(ScrubVerdict::Unreadable, Some(1), 4);
    assert_eq!(suspect_without(out(&[0]), &[unreadable], 0, &five), [], "these are listed as lost");
    let all = five.capacity_blocks() * 4096;
    assert_eq!(suspect_without(out(&[0]), &[differs], 1, &five), [(0, all)], "it may be anywhere");
    let zero = geometry(Level::Raid0, 3, None);
    assert_eq!(suspect_without(out(&[0]), &[differs], 0, &zero), [], "nothing is computed");
}

/// What is wrong on a member is not used once the member is out.
#[test]
fn a_member_that_is_wrong_may_go() {
    let six = geometry(Level::Raid6, 4, None);
    let wrong = finding(ScrubVerdict::DataWrong, Some(2), 4);
    assert_eq!(suspect_without(out(&[2]), &[wrong], 0, &six), []);
    assert_eq!(suspect_without(out(&[1, 2]), &[wrong], 0, &six), []);
    assert_eq!(suspect_without(out(&[1]), &[wrong], 0, &six).len(), 1);
}

#[test]
fn only_the_group_of_a_member_is_suspect() {
    let fifty = geometry(Level::Raid50, 6, Some(3));
    let findings = [0, 1].map(|stripe| finding(ScrubVerdict::ParityDiffers, None, stripe));
    let at = |stripe: u64| (stripe * 32 * 4096, 8192);
    assert_eq!(suspect_without(out(&[0]), &findings, 0, &fifty), [at(0)]);
    assert_eq!(suspect_without(out(&[5]), &findings, 0, &fifty), [at(1)]);
    assert_eq!(suspect_without(out(&[0, 5]), &findings, 0, &fifty), [at(0), at(1)]);
}

#[test]
fn ranges_are_joined_and_bounded() {
    assert_eq!(joined(vec![(8, 4), (0, 4), (4, 4), (20, 1), (21, 2), (8, 2)]), [(0, 12), (20, 3)]);
    let many: Vec<_> = (0..2 * SUSPECT_RANGES_MAX as u64).map(|at| (10 * at, 5)).collect();
    let few = joined(many.clone());
    assert_eq!(few.len(), SUSPECT_RANGES_MAX);
    for (start, bytes) in many {
        let holds = few.iter().any(|known| known.0 <= start && start + bytes <= known.0 + known.1);
        assert!(holds, "{start}");
    }
    assert_eq!(
        words(&[(0, 4096), (8192, 4096)]),
        "8 KiB (at byte offset+length 0+4096, 8192+4096)"
    );
}
