use super::{
    ASK_EVERY, Kind, Objection, PAGE_AGE_MAX, Page, REPORT_EVERY, Reason, Sick, Subject, judge_page,
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
    match (why, judged.as_slice()) {
        (None, []) => {}
        (Some(why), [reason]) => assert!(reason.why.contains(why), "{reason:?}"),
        (why, judged) => panic!("{judged:?} instead of {why:?}"),
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

fn reason(kind: Kind) -> Reason {
    Reason { kind, why: String::new() }
}

#[test]
fn a_member_that_fails_wants_a_spare_while_it_is_in_sync() {
    let mut sick = Sick::default();
    let (well, now) = (member(MemberState::InSync, 0, 0, 0), Instant::now());
    sick.keep_page(Subject::Member(well.uuid), Smart { warnings: 1, ..Smart::default() });
    let reasons = sick.judge(&well, Settings::default());
    assert!(!sick.wants_spare(&well), "it was not reported yet");
    assert_eq!(sick.note(well.uuid, reasons.clone(), now), reasons);
    assert!(sick.wants_spare(&well));
    assert!(!sick.wants_spare(&member(MemberState::Faulty, 0, 0, 0)));
    assert_eq!(sick.note(well.uuid, Vec::new(), now), []);
    assert!(!sick.wants_spare(&well));
    let all = [
        Kind::Predicts,
        Kind::Errors,
        Kind::Worn,
        Kind::FewSpareBlocks,
        Kind::MediaErrors,
        Kind::Slow,
    ];
    for (kind, wanted) in all.into_iter().zip([true, true, false, false, false, false]) {
        sick.note(well.uuid, vec![reason(kind)], now);
        assert_eq!(sick.wants_spare(&well), wanted, "{kind:?}");
    }
}

#[test]
fn a_reason_is_reported_when_it_appears_and_at_most_once_a_day() {
    use Kind::{Predicts, Worn};
    let mut sick = Sick::default();
    let uuid = member(MemberState::InSync, 0, 0, 0).uuid;
    let begin = Instant::now();
    let steps: [(Duration, &[Kind], &[Kind]); 9] = [
        (Duration::ZERO, &[Worn], &[Worn]),
        (Duration::ZERO, &[Worn], &[]),
        (Duration::ZERO, &[Predicts, Worn], &[Predicts]),
        (Duration::ZERO, &[Worn], &[]),
        (Duration::ZERO, &[Predicts, Worn], &[]),
        (Duration::ZERO, &[], &[]),
        (REPORT_EVERY - Duration::from_secs(1), &[Predicts], &[]),
        (REPORT_EVERY, &[], &[]),
        (REPORT_EVERY, &[Predicts], &[Predicts]),
    ];
    for (nth, (after, now, reported)) in steps.into_iter().enumerate() {
        let reasons = now.iter().map(|kind| reason(*kind)).collect();
        let kinds: Vec<Kind> =
            sick.note(uuid, reasons, begin + after).iter().map(|reason| reason.kind).collect();
        assert_eq!(kinds, reported, "step {nth}");
    }
    let last = sick.note(uuid, vec![reason(Predicts)], begin + REPORT_EVERY * 3);
    assert_eq!(last, [], "it is the same all the time");
}

#[test]
fn a_member_may_have_several_reasons() {
    let mut sick = Sick::default();
    let kinds = |sick: &Sick, member| -> Vec<Kind> {
        sick.judge(member, Settings::default()).iter().map(|reason| reason.kind).collect()
    };
    let bad = member(MemberState::InSync, 20, 0, 0);
    sick.slow.insert(bad.uuid, "for 3 hours, its reads took long".to_owned());
    sick.keep_page(Subject::Member(bad.uuid), Smart { wear_percent: 95, ..Smart::default() });
    assert_eq!(kinds(&sick, &bad), [Kind::Worn, Kind::Errors, Kind::Slow]);
    assert_eq!(kinds(&sick, &member(MemberState::Faulty, 20, 0, 0)), []);
}

/// A health page, the limit of wear, and the reasons with some of their words.
type Case = (Smart, u8, &'static [(Kind, &'static str)]);

#[test]
fn what_a_health_page_says_of_its_drive() {
    use Kind::{FewSpareBlocks, Predicts, Worn};
    let spares = |spare, threshold| Smart {
        spare_percent: spare,
        spare_threshold_percent: threshold,
        ..Smart::default()
    };
    let wear = |wear_percent| Smart { wear_percent, ..spares(100, 10) };
    let cases: [Case; 14] = [
        (spares(16, 10), 95, &[]),
        (spares(15, 10), 95, &[(FewSpareBlocks, "15 % of its spare blocks left")]),
        (spares(95, 90), 95, &[(FewSpareBlocks, "below 90 %")]),
        // No drive counts like this, or every drive is born like this.
        (spares(0, 0), 95, &[]),
        (spares(100, 99), 95, &[]),
        (spares(99, 99), 95, &[]),
        (spares(254, 255), 95, &[]),
        (wear(94), 95, &[]),
        (wear(95), 95, &[(Worn, "95 % of the rated endurance")]),
        (wear(255), 0, &[]),
        (wear(101), 100, &[(Worn, "101 %")]),
        (
            Smart { wear_percent: 99, ..spares(12, 10) },
            95,
            &[(Worn, "99 %"), (FewSpareBlocks, "12 %")],
        ),
        (Smart { warnings: 0b1000, ..wear(99) }, 95, &[(Predicts, "read-only"), (Worn, "99 %")]),
        // A high temperature is no reason.
        (Smart { warnings: 0b10, ..wear(1) }, 95, &[]),
    ];
    for (page, report_at_wear_percent, want) in cases {
        let mut reasons = Vec::new();
        let settings = Settings { report_at_wear_percent, ..Settings::default() };
        judge_page(&page, settings, &mut reasons);
        assert_eq!(reasons.len(), want.len(), "{page:?}: {reasons:?}");
        for (reason, (kind, words)) in reasons.iter().zip(want) {
            assert!(reason.kind == *kind && reason.why.contains(words), "{page:?}: {reason:?}");
        }
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
    let answer = |subject: &Subject, path: &str| (subject.clone(), path.to_owned(), Some(page));
    sick.begin_query([subject.clone(), other.clone()].into(), begin);
    sick.note_pages(vec![answer(&subject, "/dev/a"), answer(&other, "/dev/b")], begin, 0);
    let later = begin + PAGE_AGE_MAX - Duration::from_secs(1);
    sick.note_pages(vec![answer(&other, "/dev/c")], later, 0);
    assert_eq!(paths(&sick, later), ["/dev/a", "/dev/c"]);
    assert_eq!(paths(&sick, begin + PAGE_AGE_MAX), ["/dev/c"], "metrics are of the present");
    assert!(!sick.judge(&well, Settings::default()).is_empty(), "a failing drive may fall silent");
    sick.begin_query([subject.clone()].into(), later);
    assert_eq!(paths(&sick, later), ["/dev/a"], "the other drive is a spare no longer");
    sick.begin_query([].into(), later);
    assert_eq!(sick.judge(&well, Settings::default()), []);
}

#[test]
fn of_two_pages_of_a_path_the_newer_one_counts() {
    let mut sick = Sick::default();
    let begin = Instant::now();
    let page = |wear_percent| Smart { wear_percent, ..Smart::default() };
    for (nth, wear) in [(1, 10), (2, 30), (0, 20)] {
        let subject = Subject::Spare(nth.to_string());
        let at = begin + Duration::from_secs(u64::from(wear));
        sick.note_pages(vec![(subject, "/dev/a".to_owned(), Some(page(wear)))], at, 0);
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
    let spare = Subject::Spare("a".into());
    assert_eq!(sick.objection("a", || true), Some(Objection::Unknown));
    assert_eq!(sick.objection("a", || false), None, "a file has no health page");
    // The daemon may not have the privilege to read pages.
    sick.begin_query([spare.clone()].into(), Instant::now());
    sick.note_pages(vec![(spare.clone(), "/dev/a".into(), None)], Instant::now(), 0);
    assert_eq!(sick.objection("a", || true), None);
    sick.keep_page(spare.clone(), Smart { wear_percent: 99, ..Smart::default() });
    assert_eq!(sick.objection("a", || true), None, "a worn spare is better than a failing member");
    sick.keep_page(spare, Smart { warnings: 1, ..Smart::default() });
    assert!(matches!(sick.objection("a", || true), Some(Objection::Predicts(_))));
}

#[test]
fn media_errors_of_members_are_counted_by_day() {
    let mut sick = Sick::default();
    let well = member(MemberState::InSync, 0, 0, 0);
    let subject = Subject::Member(well.uuid);
    for day in 0..4 {
        let page = Smart { media_errors: day, ..Smart::default() };
        let answered = vec![(subject.clone(), "/dev/a".to_owned(), Some(page))];
        sick.begin_query([subject.clone()].into(), Instant::now());
        sick.note_pages(answered, Instant::now(), day);
    }
    let reasons = sick.judge(&well, Settings::default());
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert!(reason.kind == Kind::MediaErrors && reason.why.contains("3 of 7"), "{reason:?}");
    sick.begin_query([].into(), Instant::now());
    sick.begin_query([subject].into(), Instant::now());
    assert_eq!(sick.judge(&well, Settings::default()), [], "a member that left is forgotten");
}
