use super::{PAGE_AGE_MAX, Page, Reason, Sick, Subject, Urgency, judge_page};
use crate::policy::samples;
use crate::record::store::Settings;
use std::time::{Duration, Instant};
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
        Some(why) => assert!(judged.as_ref().is_some_and(|j| j.why.contains(why)), "{judged:?}"),
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
fn a_member_that_should_be_replaced_wants_a_spare_while_it_is_in_sync() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    sick.keep_page(Subject::Member(well.uuid), Smart { warnings: 1, ..Smart::default() });
    let reason = sick.judge(&well, Settings::default());
    assert_eq!(reason.as_ref().map(|reason| reason.urgency), Some(Urgency::Failing));
    assert_eq!(sick.wants_spare(&well), None, "it was not reported yet");
    assert!(sick.note(well.uuid, reason.clone()));
    assert!(!sick.note(well.uuid, reason), "it is reported once");
    assert_eq!(sick.wants_spare(&well), Some(Urgency::Failing));
    assert_eq!(sick.wants_spare(&member(MemberState::Faulty, 0, 0, 0)), None);
    assert!(!sick.note(well.uuid, None));
    assert_eq!(sick.wants_spare(&well), None);
}

#[test]
fn a_reason_is_reported_again_only_if_it_is_more_urgent() {
    let mut sick = Sick::default();
    let uuid = member(MemberState::InSync, 0, 0, 0).uuid;
    let mut note = |urgency| sick.note(uuid, Some(Reason { why: String::new(), urgency }));
    let all = [Urgency::Watched, Urgency::Worn, Urgency::Watched, Urgency::Failing, Urgency::Worn];
    assert_eq!(all.map(&mut note), [true, true, false, true, false]);
}

#[test]
fn the_most_urgent_reason_counts() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    let urgency = |sick: &Sick| sick.judge(&well, Settings::default()).map(|r| r.urgency);
    sick.slow.insert(well.uuid, "for 3 hours, its reads took long".to_owned());
    assert_eq!(urgency(&sick), Some(Urgency::Watched));
    sick.keep_page(Subject::Member(well.uuid), Smart { wear_percent: 95, ..Smart::default() });
    assert_eq!(urgency(&sick), Some(Urgency::Worn));
    let bad = member(MemberState::InSync, 20, 0, 0);
    let reason = sick.judge(&bad, Settings::default());
    assert_eq!(reason.map(|reason| reason.urgency), Some(Urgency::Failing));
    assert_eq!(sick.judge(&member(MemberState::Faulty, 0, 0, 0), Settings::default()), None);
}

#[test]
fn what_a_health_page_says_of_its_drive() {
    use Urgency::{Failing, Watched, Worn};
    let spares = |spare, threshold| Smart {
        spare_percent: spare,
        spare_threshold_percent: threshold,
        ..Smart::default()
    };
    let wear = |wear_percent| Smart { wear_percent, ..spares(100, 10) };
    let cases = [
        (spares(16, 10), 95, None),
        (spares(15, 10), 95, Some((Watched, "15 % of its spare blocks left"))),
        (spares(95, 90), 95, Some((Watched, "below 90 %"))),
        // No drive counts like this, or every drive is born like this.
        (spares(0, 0), 95, None),
        (spares(100, 99), 95, None),
        (spares(99, 99), 95, None),
        (spares(254, 255), 95, None),
        (wear(94), 95, None),
        (wear(95), 95, Some((Worn, "95 % of the rated endurance"))),
        (wear(255), 0, None),
        (wear(101), 100, Some((Worn, "101 %"))),
        (Smart { wear_percent: 99, ..spares(12, 10) }, 95, Some((Worn, "99 %"))),
        (Smart { warnings: 0b1000, ..wear(99) }, 95, Some((Failing, "read-only"))),
        // A high temperature is no reason.
        (Smart { warnings: 0b10, ..wear(1) }, 95, None),
    ];
    for (page, replace_at_wear_percent, want) in cases {
        let reason = judge_page(&page, Settings { replace_at_wear_percent, ..Settings::default() });
        let is_it = match (&reason, want) {
            (Some(Reason { why, urgency }), Some((want, words))) => {
                *urgency == want && why.contains(words)
            }
            (reason, want) => reason.is_none() && want.is_none(),
        };
        assert!(is_it, "{page:?}: {reason:?} instead of {want:?}");
    }
}

#[test]
fn a_drive_that_does_not_answer_keeps_its_page_for_an_hour() {
    let mut sick = Sick::default();
    let (subject, other) = (Subject::Spare("a".into()), Subject::Spare("b".into()));
    let asked = [subject.clone(), other.clone()].into();
    let begin = Instant::now();
    let paths = |sick: &Sick| sick.pages().map(|page: &Page| page.path.clone()).collect::<Vec<_>>();
    let answer = |subject: &Subject, path: &str| (subject.clone(), path.into(), Smart::default());
    let both = vec![answer(&subject, "/dev/a"), answer(&other, "/dev/b")];
    sick.note_pages(&asked, both, begin, 0);
    let later = begin + PAGE_AGE_MAX - Duration::from_secs(1);
    sick.note_pages(&asked, vec![answer(&other, "/dev/c")], later, 0);
    assert_eq!(paths(&sick), ["/dev/a", "/dev/c"]);
    sick.note_pages(&asked, Vec::new(), begin + PAGE_AGE_MAX, 0);
    assert_eq!(paths(&sick), ["/dev/c"]);
    sick.note_pages(&[subject].into(), Vec::new(), later, 0);
    assert!(paths(&sick).is_empty(), "it is a spare no longer");
}

#[test]
fn media_errors_of_members_are_counted_by_day() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    let subject = Subject::Member(well.uuid);
    for day in 0..4 {
        let page = Smart { media_errors: day, ..Smart::default() };
        let answered = vec![(subject.clone(), "/dev/a".to_owned(), page)];
        sick.note_pages(&[subject.clone()].into(), answered, Instant::now(), day);
    }
    let reason = sick.judge(&well, Settings::default());
    assert!(reason.is_some_and(|r| r.urgency == Urgency::Watched && r.why.contains("3 of 7")));
}
