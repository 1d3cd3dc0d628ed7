use super::{
    Acquire, Action, KeyCheck, Keys, NOTICE_BYTES, Notice, NoticeKind, Persistence, Report,
    ReportHead, ReportedRegistrant, ReservationType, can_persist, capabilities,
    has_write_exclusive, opcode,
};
use crate::command::{Sgl, Sqe};

const SGL: Sgl = Sgl::InCapsule { offset: 0, length: 16 };

fn parsed(opcode: u8, dword: u32) -> Option<Action> {
    Action::parse(&Sqe::new(opcode, 1, SGL).with(10, dword))
}

/// Base, sections 7.2 to 7.4.
#[test]
fn commands_say_what_is_wanted() {
    let we = ReservationType::WriteExclusive;
    for (what, opcode, dword, action) in [
        ("a registration", 0x0d, 0, Action::Register(Persistence::Unchanged)),
        ("one whatever the key", 0x0d, 8, Action::Register(Persistence::Unchanged)),
        ("one that lasts", 0x0d, 3 << 30, Action::Register(Persistence::On)),
        ("its end", 0x0d, 1, Action::Unregister(KeyCheck::On, Persistence::Unchanged)),
        ("another key", 0x0d, 2 | 2 << 30, Action::Replace(KeyCheck::On, Persistence::Off)),
        ("from any key", 0x0d, 2 | 8, Action::Replace(KeyCheck::Off, Persistence::Unchanged)),
        ("a reservation", 0x11, 1 << 8, Action::Acquire(Acquire::Free, we)),
        ("somebody's", 0x11, 1 | 1 << 8, Action::Acquire(Acquire::Preempt, we)),
        ("at once", 0x11, 2 | 1 << 8, Action::Acquire(Acquire::PreemptAndAbort, we)),
        ("a release", 0x15, 1 << 8, Action::Release(we)),
        ("a clearance", 0x15, 1, Action::Clear),
    ] {
        assert_eq!(parsed(opcode, dword), Some(action), "{what}");
        assert_eq!(Action::parse(&action.command(1, SGL)), Some(action), "{what}");
    }
    for kind in ReservationType::ALL {
        assert_eq!(ReservationType::parse(kind as u8), Some(kind));
        assert_eq!(parsed(opcode::RELEASE, (kind as u32) << 8), Some(Action::Release(kind)));
    }
}

#[test]
fn values_that_are_reserved_are_no_action() {
    for (what, opcode, dword) in [
        ("a fourth way to register", opcode::REGISTER, 3),
        ("the reserved change of persistence", opcode::REGISTER, 1 << 30),
        ("a fourth way to acquire", opcode::ACQUIRE, 3 | 1 << 8),
        ("no type", opcode::ACQUIRE, 0),
        ("a seventh type", opcode::ACQUIRE, 7 << 8),
        ("a type of which only the lower bits exist", opcode::ACQUIRE, 0x81 << 8),
        ("an acquisition whatever the key", opcode::ACQUIRE, 8 | 1 << 8),
        ("a third way to release", opcode::RELEASE, 2 | 1 << 8),
        ("the release of no type", opcode::RELEASE, 0),
        ("a release whatever the key", opcode::RELEASE, 8 | 1 << 8),
        ("a clearance whatever the key", opcode::RELEASE, 8 | 1),
        ("a report", opcode::REPORT, 0),
        ("a read", 0x02, 0),
    ] {
        assert_eq!(parsed(opcode, dword), None, "{what}");
    }
}

/// Base, section 8.19.3.
#[test]
fn types_differ_in_whom_they_let_do_what() {
    use ReservationType as T;
    for (kind, all, registrants, read) in [
        (T::WriteExclusive, false, false, true),
        (T::ExclusiveAccess, false, false, false),
        (T::WriteExclusiveRegistrants, false, true, true),
        (T::ExclusiveAccessRegistrants, false, true, false),
        (T::WriteExclusiveAll, true, true, true),
        (T::ExclusiveAccessAll, true, true, false),
    ] {
        let got = (kind.is_held_by_all(), kind.favours_registrants(), kind.lets_others_read());
        assert_eq!(got, (all, registrants, read), "{kind:?}");
    }
}

#[test]
fn keys_reports_and_notices_have_their_places() {
    let keys = Keys { current: 0x0102, other: 0x0304 };
    assert_eq!(keys.bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Keys::parse(&keys.bytes()), keys);
    assert_eq!(Action::Clear.data_bytes(), 8);
    assert_eq!(Action::Register(Persistence::On).data_bytes(), 16);

    let sqe = Sqe::new(opcode::REPORT, 1, SGL).with(10, 31).with(11, 1);
    assert_eq!(Report::parse(&sqe), Report { length: 128, is_extended: true });
    assert_eq!(Report::parse(&Report::parse(&sqe).command(1)), Report::parse(&sqe));
    let kind = Some(ReservationType::ExclusiveAccessAll);
    let head = ReportHead { generation: 0x102, kind, registrants: 2, persists: true };
    assert_eq!(head.bytes()[..10], [2, 1, 0, 0, 6, 2, 0, 0, 0, 1]);
    assert_eq!(ReportHead::parse(&head.bytes()), head);
    let registrant = ReportedRegistrant { host: [9; 16], key: 7, holds: true };
    assert_eq!(registrant.bytes()[..8], [0xff, 0xff, 1, 0, 0, 0, 0, 0]);
    assert_eq!(registrant.bytes()[8..32], [&[7, 0, 0, 0, 0, 0, 0, 0][..], &[9; 16]].concat());

    assert_eq!(ReportedRegistrant::parse(&registrant.bytes()), registrant);

    let kind = NoticeKind::ReservationPreempted;
    let notice = Notice { number: 5, kind, left: 2, namespace: 0x103 };
    assert_eq!(notice.page()[..16], [5, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 3, 1, 0, 0]);
    assert_eq!(Notice::parse(&notice.page()), Some(notice));
    assert_eq!(Notice::parse(&[0; NOTICE_BYTES]), None);
    assert_eq!(NoticeKind::RegistrationPreempted.mask_bit(), 0b10);
    assert_eq!((capabilities(true), capabilities(false)), (0xff, 0xfe));
    assert!(has_write_exclusive(0b10) && !has_write_exclusive(0b1101));
    assert!(can_persist(1) && !can_persist(0xfe));
}
