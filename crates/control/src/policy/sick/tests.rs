use super::{
    ASK_EVERY, PAGE_AGE_MAX, Page, REPORT_EVERY, Reason, Sick, Subject, Urgency, judge_page,
};
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
fn a_member_that_fails_wants_a_spare_while_it_is_in_sync() {
    let mut sick = Sick::default();
    let (well, now) = (member(MemberState::InSync, 0, 0, 0), Instant::now());
    sick.keep_page(Subject::Member(well.uuid), Smart { warnings: 1, ..Smart::default() });
    let reason = sick.judge(&well, Settings::default());
    assert_eq!(reason.as_ref().map(|reason| reason.urgency), Some(Urgency::Failing));
    assert!(!sick.wants_spare(&well), "it was not reported yet");
    assert!(sick.note(well.uuid, reason, now));
    assert!(sick.wants_spare(&well));
    assert!(!sick.wants_spare(&member(MemberState::Faulty, 0, 0, 0)));
    assert!(!sick.note(well.uuid, None, now));
    assert!(!sick.wants_spare(&well));
    let watched = Reason { why: String::new(), urgency: Urgency::Watched };
    sick.note(well.uuid, Some(watched), now);
    assert!(!sick.wants_spare(&well));
}

#[test]
fn a_reason_is_reported_once_a_day_and_when_it_becomes_more_urgent() {
    use Urgency::{Failing, Watched};
    let mut sick = Sick::default();
    let uuid = member(MemberState::InSync, 0, 0, 0).uuid;
    let begin = Instant::now();
    let mut note = |after, urgency: Option<Urgency>| {
        let reason = urgency.map(|urgency| Reason { why: String::new(), urgency });
        sick.note(uuid, reason, begin + after)
    };
    let steps = [
        (Duration::ZERO, Some(Watched), true),
        (Duration::ZERO, Some(Watched), false),
        (Duration::ZERO, Some(Failing), true),
        (Duration::ZERO, Some(Watched), false),
        (Duration::ZERO, Some(Failing), false),
        (Duration::ZERO, None, false),
        (REPORT_EVERY - Duration::from_secs(1), Some(Failing), false),
        (REPORT_EVERY, None, false),
        (REPORT_EVERY, Some(Failing), true),
        (REPORT_EVERY * 3, Some(Failing), false),
    ];
    for (nth, (after, urgency, reported)) in steps.into_iter().enumerate() {
        assert_eq!(note(after, urgency), reported, "step {nth}");
    }
}

#[test]
fn the_most_urgent_reason_counts() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    let why = |sick: &Sick, member| sick.judge(member, Settings::default()).map(|r| r.why);
    sick.slow.insert(well.uuid, "for 3 hours, its reads took long".to_owned());
    assert!(why(&sick, &well).is_some_and(|why| why.contains("took long")));
    sick.keep_page(Subject::Member(well.uuid), Smart { wear_percent: 95, ..Smart::default() });
    assert!(why(&sick, &well).is_some_and(|why| why.contains("95 %")));
    let bad = member(MemberState::InSync, 20, 0, 0);
    assert!(why(&sick, &bad).is_some_and(|why| why.contains("20 unreadable")));
    assert_eq!(why(&sick, &member(MemberState::Faulty, 0, 0, 0)), None);
}

#[test]
fn what_a_health_page_says_of_its_drive() {
    use Urgency::{Failing, Watched};
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
        (wear(95), 95, Some((Watched, "95 % of the rated endurance"))),
        (wear(255), 0, None),
        (wear(101), 100, Some((Watched, "101 %"))),
        (Smart { wear_percent: 99, ..spares(12, 10) }, 95, Some((Watched, "99 %"))),
        (Smart { warnings: 0b1000, ..wear(99) }, 95, Some((Failing, "read-only"))),
        // A high temperature is no reason.
        (Smart { warnings: 0b10, ..wear(1) }, 95, None),
    ];
    for (page, report_at_wear_percent, want) in cases {
        let reason = judge_page(&page, Settings { report_at_wear_percent, ..Settings::default() });
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
fn a_drive_that_does_not_answer_keeps_its_last_page() {
    let mut sick = Sick::default();
    let (well, begin) = (member(MemberState::InSync, 0, 0, 0), Instant::now());
    let (subject, other) = (Subject::Member(well.uuid), Subject::Spare("b".into()));
    let paths = |sick: &Sick, now| -> Vec<String> {
        sick.pages(now).map(|page: &Page| page.path.clone()).collect()
    };
    let page = Smart { warnings: 1, ..Smart::default() };
    let answer = |subject: &Subject, path: &str| (subject.clone(), path.to_owned(), page);
    sick.begin_query([subject.clone(), other.clone()].into(), begin);
    sick.note_pages(vec![answer(&subject, "/dev/a"), answer(&other, "/dev/b")], begin, 0);
    let later = begin + PAGE_AGE_MAX - Duration::from_secs(1);
    sick.note_pages(vec![answer(&other, "/dev/c")], later, 0);
    assert_eq!(paths(&sick, later), ["/dev/a", "/dev/c"]);
    assert_eq!(paths(&sick, begin + PAGE_AGE_MAX), ["/dev/c"], "metrics are of the present");
    assert!(sick.judge(&well, Settings::default()).is_some(), "a failing drive may fall silent");
    sick.begin_query([subject.clone()].into(), later);
    assert_eq!(paths(&sick, later), ["/dev/a"], "the other drive is a spare no longer");
    sick.begin_query([].into(), later);
    assert_eq!(sick.judge(&well, Settings::default()), None);
}

#[test]
fn of_two_pages_of_a_path_the_newer_one_counts() {
    let mut sick = Sick::default();
    let begin = Instant::now();
    let page = |wear_percent| Smart { wear_percent, ..Smart::default() };
    for (nth, wear) in [(1, 10), (2, 30), (0, 20)] {
        let subject = Subject::Spare(nth.to_string());
        let at = begin + Duration::from_secs(u64::from(wear));
        sick.note_pages(vec![(subject, "/dev/a".to_owned(), page(wear))], at, 0);
    }
    let wears: Vec<u8> = sick.pages(begin).map(|page| page.smart.wear_percent).collect();
    assert_eq!(wears, [30]);
}

#[test]
fn drives_are_queried_each_minute_and_when_one_is_new() {
    let mut sick = Sick::default();
    let begin = Instant::now();
    let all = ["a", "b"].map(|identity| Subject::Spare(identity.into()));
    let one = [all[0].clone()].into();
    assert!(!sick.is_due(&[].into(), begin), "there are none");
    assert!(sick.is_due(&one, begin));
    sick.begin_query(one.clone(), begin);
    assert!(!sick.is_due(&one, begin + ASK_EVERY - Duration::from_secs(1)));
    assert!(sick.is_due(&one, begin + ASK_EVERY));
    assert!(sick.is_due(&all.clone().into(), begin));
    sick.begin_query(all.into(), begin);
    assert!(!sick.is_due(&one, begin), "one has left");
}

#[test]
fn what_speaks_against_a_spare() {
    let mut sick = Sick::default();
    assert!(sick.objection("a", || true).is_some_and(|why| why.contains("not known")));
    assert_eq!(sick.objection("a", || false), None, "a file has no health page");
    sick.keep_page(Subject::Spare("a".into()), Smart { wear_percent: 99, ..Smart::default() });
    assert_eq!(sick.objection("a", || true), None, "a worn spare is better than a failing member");
    sick.keep_page(Subject::Spare("a".into()), Smart { warnings: 1, ..Smart::default() });
    assert!(sick.objection("a", || true).is_some());
}

#[test]
fn media_errors_of_members_are_counted_by_day() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    let subject = Subject::Member(well.uuid);
    for day in 0..4 {
        let page = Smart { media_errors: day, ..Smart::default() };
        let answered = vec![(subject.clone(), "/dev/a".to_owned(), page)];
        sick.begin_query([subject.clone()].into(), Instant::now());
        sick.note_pages(answered, Instant::now(), day);
    }
    let reason = sick.judge(&well, Settings::default());
    assert!(reason.is_some_and(|r| r.urgency == Urgency::Watched && r.why.contains("3 of 7")));
    sick.begin_query([].into(), Instant::now());
    sick.begin_query([subject].into(), Instant::now());
    assert_eq!(sick.judge(&well, Settings::default()), None, "a member that left is forgotten");
}
