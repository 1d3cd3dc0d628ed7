//! Tests that every invalid geometry is refused with an error that names the cause.

use strake_units::BlockSize;

use crate::{Geometry, GeometryError, GeometrySpec, Level, LevelRequest};

fn spec(level: Level, members: usize, group_size: Option<u8>) -> GeometrySpec {
    let (strip_bytes, member_blocks) = (65_536, 1 << 20);
    let block_size = BlockSize::B4096;
    GeometrySpec { level, members, group_size, strip_bytes, block_size, member_blocks }
}

fn check(spec: GeometrySpec, want: GeometryError, says: &str) {
    let error = Geometry::new(&spec).expect_err(says);
    assert_eq!(error, want);
    assert!(error.to_string().contains(says), "{error} should say {says:?}");
}

#[test]
fn too_few_or_too_many_members() {
    let few = |level, min: usize| {
        let members = min - 1;
        let want = GeometryError::TooFewMembers { level, members, min };
        check(spec(level, members, None), want, &format!("at least {min} members"));
    };
    few(Level::Raid0, 1);
    few(Level::Raid1, 2);
    few(Level::Raid10, 4);
    few(Level::Raid5, 3);
    few(Level::Raid6, 4);
    few(Level::Raid73, 5);
    few(Level::Parity(4), 6);
    few(Level::Parity(32), 34);
    few(Level::Raid50, 6);
    few(Level::Raid60, 8);
    few(Level::Raid70, 10);
    let many = |level, max: usize| {
        for members in [max + 1, 256, usize::MAX] {
            let want = GeometryError::TooManyMembers { level, members, max };
            check(spec(level, members, None), want, &format!("at most {max} members"));
        }
    };
    many(Level::Raid0, 64);
    many(Level::Raid1, 8);
    many(Level::Raid10, 64);
    many(Level::Raid6, 64);
    many(Level::Parity(32), 64);
    many(Level::Raid60, 64);
}

#[test]
fn wrong_groups() {
    use GeometryError as E;
    let members = 7;
    check(spec(Level::Raid10, members, None), E::OddMembers { members }, "7 is odd");
    let (level, members) = (Level::Raid60, 12);
    check(spec(level, members, None), E::GroupSizeMissing { level, members }, "how many of the 12");
    let want = E::GroupTooSmall { level, group_size: 3, min: 4 };
    check(spec(level, members, Some(3)), want, "at least 4");
    check(
        spec(level, members, Some(0)),
        E::GroupTooSmall { level, group_size: 0, min: 4 },
        "not 0",
    );
    let want = E::GroupsUneven { members, group_size: 5 };
    check(spec(level, members, Some(5)), want, "groups of 5");
    let want = E::GroupsUneven { members, group_size: 255 };
    check(spec(level, members, Some(255)), want, "groups of 255");
    check(spec(level, members, Some(12)), E::OneGroup { level, members }, "two groups");
    let level = Level::Raid6;
    check(spec(level, 8, Some(8)), E::GroupSizeUnwanted { level }, "choose 50, 60 or 70");
    for parity in [0, 3, 33, 255] {
        let want = E::ParityOutOfRange { parity };
        check(spec(Level::Parity(parity), 64, None), want, "4 to 32");
    }
}

#[test]
fn wrong_sizes() {
    let good = spec(Level::Raid6, 8, None);
    for strip_bytes in [0, 1, 512, 2048, 4097, 65_537, 98_304, 2 << 20, u32::MAX] {
        let want = GeometryError::StripSize { strip_bytes };
        check(GeometrySpec { strip_bytes, ..good }, want, "power of two");
    }
    for member_blocks in [0, 15] {
        let want = GeometryError::MemberTooSmall { member_blocks, strip_blocks: 16 };
        check(GeometrySpec { member_blocks, ..good }, want, "one strip needs 16");
    }
    for member_blocks in [u64::MAX, 1 << 48] {
        let want = GeometryError::TooLarge { member_blocks };
        check(GeometrySpec { member_blocks, ..good }, want, "2^63");
    }
}

#[test]
fn the_nearest_strip_is_possible() {
    let check =
        |bytes: u32, want: u32| assert_eq!(crate::nearest_strip_bytes(bytes), want, "{bytes}");
    for exponent in 12..=20 {
        check(1 << exponent, 1 << exponent);
    }
    check(0, 4 << 10);
    check(5_000, 4 << 10);
    check(64_000, 64 << 10);
    check(98_304, 64 << 10);
    check(102_400, 128 << 10);
    check(2 << 20, 1 << 20);
    check(u32::MAX, 1 << 20);
}

#[test]
fn the_largest_and_the_smallest_arrays_are_fine() {
    let good = |spec: GeometrySpec, data_strips: u8| {
        let geometry = Geometry::new(&spec).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(geometry.data_strips(), data_strips);
        geometry
    };
    good(spec(Level::Raid0, 64, None), 64);
    good(spec(Level::Raid1, 8, None), 1);
    good(spec(Level::Raid10, 64, None), 32);
    good(spec(Level::Parity(32), 64, None), 32);
    good(spec(Level::Raid50, 64, Some(4)), 3);
    good(spec(Level::Raid60, 64, Some(32)), 30);
    let one_strip = GeometrySpec { member_blocks: 16, ..spec(Level::Raid6, 4, None) };
    assert_eq!(good(one_strip, 2).capacity_blocks(), 32);
    let huge = GeometrySpec { member_blocks: (1 << 45) - 1, ..spec(Level::Raid0, 64, None) };
    assert_eq!(good(huge, 64).capacity_blocks(), 64 * (((1 << 45) - 1) / 16 * 16));
}

#[test]
fn a_request_for_n_plus_m_must_fit_the_members() {
    let check = |text: &str, members: usize, want: Result<(), GeometryError>| {
        let request: LevelRequest = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let geometry = Geometry::new(&spec(request.level, members, None));
        assert_eq!(geometry.and_then(|g| g.check_request(&request)), want, "{text} on {members}");
    };
    check("8+4", 12, Ok(()));
    check("n+4", 13, Ok(()));
    check("6+2", 8, Ok(()));
    let (wanted, data_strips, parity_strips) = (8, 9, 4);
    let mismatch = GeometryError::DataStripsMismatch { wanted, data_strips, parity_strips };
    check("8+4", 13, Err(mismatch));
    assert!(mismatch.to_string().contains("needs 12 members"), "{mismatch}");
    let level = Level::Parity(32);
    check("60+32", 92, Err(GeometryError::TooManyMembers { level, members: 92, max: 64 }));
}
