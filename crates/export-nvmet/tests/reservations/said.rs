//! Reservation features that are reported to hosts, and rejected requests.

use crate::common::{Machine, code, h2c};
use crate::kept::{Book, with_book};
use crate::{KEPT, act, controller, get_feature, ram, register, registrants, report, set_feature};
use std::sync::Arc;
use strake_export_nvmet::Export;
use strake_nvme_wire::reservation::{Action, Keys, opcode};
use strake_nvme_wire::{Sgl, Status};

#[test]
fn features_say_who_a_host_is_and_what_lasts() {
    let machine = Machine::start();
    let book = Arc::new(Book::default());
    machine.target.add_export(&with_book(ram(), &book)).expect("a second namespace");
    let (mut admin, mut io) = controller(&machine, 9);
    let mut host_id = |flags| {
        admin.send(0x0a, Sgl::Transport { length: 16 }, &[(10, 0x81), (11, flags)], &[]);
        let (data, _, status) = admin.finish();
        (data, status)
    };
    assert_eq!(host_id(1), (vec![9; 16], 0));
    assert_eq!(host_id(0), (vec![], code(Status::INVALID_FIELD)), "64 bits are too few");
    let sequence = code(Status::SEQUENCE_ERROR);
    assert_eq!(set_feature(&mut admin, 0x81, 0, 0), sequence, "it was said in Connect");

    assert_eq!(get_feature(&mut admin, 0x83, 2), (0, 0));
    assert_eq!(set_feature(&mut admin, 0x83, 2, 1), 0);
    assert_eq!(get_feature(&mut admin, 0x83, 2), (1, 0));
    assert!(book.page().is_some_and(|page| page.persists), "it was written down");
    assert_eq!(report(&mut io, 2, 64)[9], 1, "PTPLS");
    assert_eq!(set_feature(&mut admin, 0x83, 2, 0), 0);
    assert_eq!(book.page(), None);
    let field = code(Status::INVALID_FIELD);
    assert_eq!(set_feature(&mut admin, 0x83, 1, 1), field, "there is nowhere to write it down");
    let (bad, gone) = (code(Status::INVALID_NAMESPACE), code(Status::INACCESSIBLE));
    let away = Export { device: None, namespace: 3, uuid: [3; 16], ..with_book(ram(), &book) };
    machine.target.add_export(&away).expect("one without a device");
    for (what, namespace, status) in
        [("none", 0, bad), ("not there", 7, bad), ("too high", 33, bad), ("away", 3, gone)]
    {
        for feature in [0x82, 0x83] {
            assert_eq!(set_feature(&mut admin, feature, namespace, 0), status, "{what}");
            assert_eq!(get_feature(&mut admin, feature, namespace).1, status, "{what}");
        }
    }
    for (what, feature, value) in [
        ("no such notice", 0x82, 1),
        ("more than on", 0x83, 2),
        ("kept over a reset", 0x82 | 1 << 31, 0),
    ] {
        assert_eq!(set_feature(&mut admin, feature, 2, value), field, "{what}");
    }
    assert_eq!(get_feature(&mut admin, 0x82 | 1 << 8, 2).1, field, "there is no default");
}

#[test]
fn everything_is_announced() {
    let machine = Machine::start();
    machine.target.add_export(&with_book(ram(), &Arc::default())).expect("a second namespace");
    let (mut admin, _io) = controller(&machine, 1);
    let mut identify = |cns, namespace| {
        let sgl = Sgl::Transport { length: 4096 };
        admin.send(6, sgl, &[(1, namespace), (10, cns)], &[]);
        admin.finish().0
    };
    let page = identify(1, 0);
    assert_eq!((page[520] & 1 << 5, page[96] & 1), (1 << 5, 1), "ONCS, CTRATT");
    assert_eq!((identify(0, 1)[30], identify(0, 1)[31]), (1, 0xfe), "shared; nothing lasts");
    assert_eq!(identify(0, 2)[31], 0xff, "RESCAP");
    admin.send(2, Sgl::Transport { length: 4096 }, &[(10, 1023 << 16 | 5)], &[]);
    let effects = admin.finish().0;
    for opcode in [opcode::REGISTER, opcode::REPORT, opcode::ACQUIRE, opcode::RELEASE] {
        assert_eq!(effects[1024 + usize::from(opcode) * 4], 1, "{opcode:#x}");
    }
}

#[test]
fn reservation_commands_that_make_no_sense_are_refused() {
    let machine = Machine::start();
    let (_admin, mut io) = controller(&machine, 1);
    let field = code(Status::INVALID_FIELD);
    let (short, odd) = (code(Status::SGL_LENGTH), code(Status::INVALID_NAMESPACE));
    let capsule = |length| Sgl::InCapsule { offset: 0, length };
    let room = |length| Sgl::Transport { length };
    for (what, opcode, sgl, words, length, status) in [
        ("half a pair of keys", opcode::REGISTER, capsule(8), [(1, 1), (10, 0)], 8, short),
        ("no keys", opcode::ACQUIRE, capsule(0), [(1, 1), (10, 1 << 8)], 0, short),
        ("three keys", opcode::ACQUIRE, capsule(24), [(1, 1), (10, 1 << 8)], 24, short),
        ("less than a key", opcode::RELEASE, capsule(4), [(1, 1), (10, 1)], 4, short),
        ("a way that is reserved", opcode::REGISTER, capsule(16), [(1, 1), (10, 7)], 16, field),
        (
            "a type that is reserved",
            opcode::ACQUIRE,
            capsule(16),
            [(1, 1), (10, 7 << 8)],
            16,
            field,
        ),
        ("any key will do", opcode::ACQUIRE, capsule(16), [(1, 1), (10, 8 | 1 << 8)], 16, field),
        ("a key of zero", opcode::REGISTER, capsule(16), [(1, 1), (10, 0)], 16, field),
        ("what cannot last", opcode::REGISTER, capsule(16), [(1, 1), (10, 3 << 30)], 16, field),
        ("all namespaces", opcode::REGISTER, capsule(16), [(1, u32::MAX), (10, 0)], 16, odd),
        ("no namespace", opcode::REPORT, room(64), [(1, 0), (10, 15)], 0, odd),
        ("too long a report", opcode::REPORT, room(2 << 20), [(1, 1), (10, 1 << 19)], 0, field),
        (
            "identifiers of 64 bits",
            opcode::REPORT,
            room(64),
            [(1, 1), (10, 15)],
            0,
            code(Status::HOST_ID_FORMAT),
        ),
        ("less room than asked for", opcode::REPORT, room(4), [(1, 1), (10, 15)], 0, short),
    ] {
        // Every key is zero, and reports request 128-bit identifiers except in the test of this field.
        let eds = u32::from(status != code(Status::HOST_ID_FORMAT));
        let words = [words[0], words[1], (11, eds)];
        io.send(opcode, sgl, &words, &vec![0; length]);
        assert_eq!(io.finish().2, status, "{what}");
    }
    let anonymous = &mut controller(&machine, 0).1;
    assert_eq!(act(anonymous, Action::Register(KEPT), 0, 1), field, "a host without an identity");
    assert_eq!(registrants(&mut io, 1), (0, vec![]), "none of it did anything");
    assert_eq!(report(&mut io, 1, 4).len(), 4, "the beginning of a report");
}

/// Some hosts also send two keys for a release; and keys may arrive in the capsule or after an R2T.
#[test]
fn keys_come_in_any_way_that_data_comes() {
    let machine = Machine::start();
    let (_admin, mut io) = controller(&machine, 1);
    register(&mut io, 3);
    let keys = Keys { current: 3, other: 0 }.bytes();
    let sgl = Sgl::InCapsule { offset: 0, length: 16 };
    let cid = io.send(opcode::ACQUIRE, Sgl::Transport { length: 16 }, &[(1, 1), (10, 1 << 8)], &[]);
    let asked = io.pdu().expect("the connection stays");
    let tag = u16::from_le_bytes([asked.header[2], asked.header[3]]);
    io.put(&h2c(cid, tag, 0, 16, 4, &keys));
    assert_eq!(io.finish().2, 0);
    assert_eq!(registrants(&mut io, 1), (1, vec![(1, 3, 1)]));
    io.send(opcode::RELEASE, sgl, &[(1, 1), (10, 1 << 8)], &keys);
    assert_eq!(io.finish().2, 0);
    assert_eq!(registrants(&mut io, 1), (0, vec![(1, 3, 0)]));
}
