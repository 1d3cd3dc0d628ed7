use super::{Sick, worn};
use crate::policy::samples;
use crate::record::store::Settings;
use strake_engine::{MemberHealth, MemberStatus};
use strake_nvme_wire::health::Smart;
use strake_raid::MemberState;

fn member(state: MemberState, medium: u64, timeouts: u64, device: u64) -> MemberStatus {
    let health = MemberHealth { medium, timeouts, device, ..MemberHealth::default() };
    MemberStatus { health, ..samples::member(state) }
}

fn check(limit: u32, member: &MemberStatus, why: Option<&str>) {
    let settings = Settings { replace_after_errors: limit, ..Settings::default() };
    let judged = Sick::default().judge(member, settings);
    match why {
        None => assert_eq!(judged, None),
        Some(why) => assert!(judged.as_ref().is_some_and(|j| j.contains(why)), "{judged:?}"),
    }
}

#[test]
fn errors_count_together_up_to_the_limit_and_0_is_none() {
    check(20, &member(MemberState::InSync, 10, 5, 4), None);
    check(
        20,
        &member(MemberState::InSync, 10, 5, 5),
        Some("10 unreadable blocks, 5 time-outs and 5"),
    );
    check(0, &member(MemberState::InSync, 1 << 40, 0, 0), None);
    check(1, &member(MemberState::InSync, 0, 0, 0), None);
    check(20, &member(MemberState::Faulty, 100, 0, 0), None);
}

#[test]
fn what_a_drive_says_of_itself_counts_at_once() {
    let mut sick = Sick::default();
    let page = Smart { warnings: 1, ..Smart::default() };
    sick.pages.insert("/dev/nvme3n1".to_owned(), page);
    let well = member(MemberState::InSync, 0, 0, 0);
    assert!(sick.judge(&well, Settings::default()).is_some());
    assert!(!sick.wants_spare(&well), "nobody was told yet");
    sick.call(well.uuid, "it runs out of spare blocks");
    assert!(sick.wants_spare(&well));
    sick.leave_alone(well.uuid);
    assert!(!sick.wants_spare(&well));
}

#[test]
fn a_drive_is_replaced_before_its_spare_blocks_or_its_endurance_end() {
    let spares = |spare, threshold| Smart {
        spare_percent: spare,
        spare_threshold_percent: threshold,
        ..Smart::default()
    };
    let wear = |wear_percent| Smart { wear_percent, spare_percent: 100, ..spares(100, 10) };
    let cases = [
        (spares(16, 10), 95, None),
        (spares(15, 10), 95, Some("15 % of its spare blocks left")),
        (spares(0, 0), 95, None),
        (spares(254, 255), 95, Some("below 255 %")),
        (wear(94), 95, None),
        (wear(95), 95, Some("95 % of the rated endurance")),
        (wear(255), 0, None),
        (wear(101), 100, Some("101 %")),
        (Smart { warnings: 0b1000, ..wear(99) }, 95, Some("read-only")),
        // A high temperature is no reason.
        (Smart { warnings: 0b10, ..wear(1) }, 95, None),
    ];
    for (page, at_wear_percent, want) in cases {
        let why = worn(&page, at_wear_percent);
        let is_it = match (&why, want) {
            (Some(why), Some(want)) => why.contains(want),
            (why, want) => why.is_none() && want.is_none(),
        };
        assert!(is_it, "{page:?}: {why:?} instead of {want:?}");
    }
}

#[test]
fn a_member_that_is_slow_for_hours_is_replaced_while_it_is_in_sync() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    sick.slow.insert(well.uuid, "for 3 hours, its reads took long".to_owned());
    let why = sick.judge(&well, Settings::default());
    assert_eq!(why.as_deref(), Some("for 3 hours, its reads took long"));
    assert_eq!(sick.judge(&member(MemberState::Faulty, 0, 0, 0), Settings::default()), None);
}
