use super::Sick;
use crate::policy::samples;
use crate::record::store::Settings;
use strake_engine::{MemberHealth, MemberStatus};
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
    sick.predictions.insert("/dev/nvme3n1".to_owned(), "it runs out of spare blocks");
    let well = member(MemberState::InSync, 0, 0, 0);
    assert!(sick.judge(&well, Settings::default()).is_some());
    assert!(!sick.wants_spare(&well), "nobody was told yet");
    sick.call(well.uuid, "it runs out of spare blocks");
    assert!(sick.wants_spare(&well));
    sick.leave_alone(well.uuid);
    assert!(!sick.wants_spare(&well));
}
