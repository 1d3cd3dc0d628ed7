//! The blocks that are lost when an operator accepts a loss.

use std::collections::BTreeSet;

use strake_raid::{Geometry, GeometrySpec, Level, MemberState, Role};
use strake_units::{BlockSize, Lba};

use super::Doubts;

/// Three members, stripes of 32 KiB, regions of 512 stripes.
fn geometry() -> Geometry {
    let spec = GeometrySpec {
        level: Level::Raid5,
        members: 3,
        group_size: None,
        strip_bytes: 16 << 10,
        block_size: BlockSize::B4096,
        member_blocks: 8192,
    };
    Geometry::new(&spec).expect("a small array")
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A crash with writes to these stripes in flight.
    Crash(&'a [u64]),
    /// A resync finishes.
    Resynced,
    /// A start is rejected with this list of regions.
    Refused(&'a str),
    /// The operator accepts a loss.
    Unread,
    /// The array starts.
    Started,
}

/// The stripes with lost blocks when the array starts after `steps` without member 1, which has data in all of them.
/// Every lost block must be on that member.
fn check(steps: &[Step<'_>], stripes: &[u64]) {
    let geometry = geometry();
    let mut doubts = Doubts::default();
    for step in steps {
        match step {
            Step::Crash(stripes) => doubts.add(stripes.iter().copied()),
            Step::Resynced => doubts.settle(),
            Step::Refused(list) => doubts.read(&format!(
                "blocks may be damaged in 2 region(s) (byte offset+length: {list}). Check them (all)"
            )),
            Step::Unread => doubts.accept_unread(),
            Step::Started => doubts.forget_named(),
        }
    }
    let states = [MemberState::InSync, MemberState::Missing, MemberState::InSync];
    let blocks = doubts.given_up(&geometry, &states);
    let places = blocks.iter().map(|lba| geometry.place(Lba(*lba)));
    let found: BTreeSet<u64> = places.map(|place| place.stripe.0).collect();
    assert_eq!(found, stripes.iter().copied().collect());
    assert_eq!(blocks.len(), stripes.len() * geometry.strip_blocks() as usize, "one strip of each");
    for lba in blocks {
        let place = geometry.place(Lba(lba));
        let role = Role::Data { strip: place.strip, copy: 0 };
        let position = geometry.position(place.stripe, role);
        assert_eq!(geometry.member(place.stripe, position).at(), 1, "block {lba}");
    }
}

/// Two worlds violated the oracle in this way: a member was absent only since the second crash, and the resync of the
/// stripes of the first crash was not finished.
#[test]
fn a_crash_before_the_end_of_a_resync_settles_nothing() {
    let twice = [
        Step::Crash(&[3]),
        Step::Refused("0+16.0 MiB"),
        Step::Started,
        Step::Crash(&[6]),
        Step::Refused("0+16.0 MiB"),
    ];
    check(&twice, &[3, 6]);
}

#[test]
fn a_resync_that_has_ended_settles_everything_before() {
    let settled =
        [Step::Crash(&[3]), Step::Resynced, Step::Crash(&[6]), Step::Refused("0+16.0 MiB")];
    check(&settled, &[6]);
}

#[test]
fn nothing_is_given_up_that_was_not_named() {
    let both = Step::Crash(&[3, 600]);
    check(&[both], &[]);
    check(&[both, Step::Refused("0+16.0 MiB")], &[3]);
    check(&[both, Step::Refused("16777216+16.0 MiB")], &[600]);
    check(&[both, Step::Refused("0+16.0 MiB, 16777216+16.0 MiB")], &[3, 600]);
    check(&[both, Step::Refused("33554432+16.0 MiB, ...")], &[3, 600]);
    check(&[both, Step::Refused("0+16.0 MiB"), Step::Started], &[]);
}

#[test]
fn a_script_that_reads_no_refusal_accepts_everything() {
    let both = Step::Crash(&[3, 600]);
    check(&[both, Step::Unread], &[3, 600]);
    check(&[both, Step::Refused("0+16.0 MiB"), Step::Unread], &[3]);
    check(&[both, Step::Unread, Step::Started], &[]);
}
