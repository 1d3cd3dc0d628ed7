//! The hosts that a reservation excludes, and the commands.

use crate::common::{BLOCK, Host, Machine};
use crate::{
    CONFLICT, act, controller, get_feature, notice, register, registrants, reported, set_feature,
};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::nvm::{SOURCE_BYTES, SourceRange, opcode as nvm};
use strake_nvme_wire::reservation::{Acquire, Action, ReservationType as T};

/// Copies the first block to the second.
fn copy(io: &mut Host) -> u16 {
    let sgl = Sgl::InCapsule { offset: 0, length: SOURCE_BYTES as u32 };
    io.send(nvm::COPY, sgl, &[(1, 1), (10, 1)], &SourceRange { start: 0, count: 1 }.bytes());
    io.finish().2
}

/// The status of each command in the table of the specification.
fn access(io: &mut Host) -> (Vec<u16>, Vec<u16>) {
    let capsule = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    let status = |io: &mut Host, opcode, sgl, data: &[u8], word| {
        io.send(opcode, sgl, &[(1, 1), (11, word)], data);
        io.finish().2
    };
    let none = Sgl::Transport { length: 0 };
    let room = Sgl::Transport { length: BLOCK as u32 };
    let block = vec![0; BLOCK];
    let reads = vec![
        status(io, nvm::READ, room, &[], 0),
        status(io, nvm::COMPARE, capsule, &block, 0),
        status(io, nvm::VERIFY, none, &[], 0),
    ];
    let range = Sgl::InCapsule { offset: 0, length: 16 };
    let writes = vec![
        status(io, nvm::WRITE, capsule, &block, 0),
        status(io, nvm::WRITE_ZEROES, none, &[], 0),
        status(io, nvm::FLUSH, none, &[], 0),
        status(io, nvm::DATASET_MANAGEMENT, range, &[0; 16], 0),
        status(io, nvm::DATASET_MANAGEMENT, range, &[0; 16], 4),
        copy(io),
    ];
    (reads, writes)
}

/// Base, section 8.19.3: all types, for the holder, another registrant and any other host, with each command.
#[test]
fn each_type_keeps_out_whom_it_should() {
    let machine = Machine::start();
    let (_admins, mut ios): (Vec<_>, Vec<_>) = (1..=3).map(|id| controller(&machine, id)).unzip();
    let (free, shut) = ([0; 6], [CONFLICT; 6]);
    for (kind, registrant, other) in [
        (T::WriteExclusive, (true, false), (true, false)),
        (T::ExclusiveAccess, (false, false), (false, false)),
        (T::WriteExclusiveRegistrants, (true, true), (true, false)),
        (T::ExclusiveAccessRegistrants, (true, true), (false, false)),
        (T::WriteExclusiveAll, (true, true), (true, false)),
        (T::ExclusiveAccessAll, (true, true), (false, false)),
    ] {
        register(&mut ios[0], 1);
        register(&mut ios[1], 2);
        assert_eq!(act(&mut ios[0], Action::Acquire(Acquire::Free, kind), 1, 0), 0);
        for (number, (reads, writes)) in [(true, true), registrant, other].into_iter().enumerate() {
            let (read, written) = access(&mut ios[number]);
            let expected = |may: bool| if may { &free[..] } else { &shut[..] };
            assert_eq!(read, expected(reads)[..3], "{kind:?}, host {number} reads");
            assert_eq!(written, expected(writes), "{kind:?}, host {number} writes");
        }
        assert_eq!(act(&mut ios[0], Action::Clear, 1, 0), 0);
        assert_eq!(access(&mut ios[2]).1, free, "nobody is kept out any more");
    }
}

/// Base, section 8.19: registrants are host identifiers, not controllers.
#[test]
fn all_controllers_of_a_host_are_one_registrant() {
    let machine = Machine::start();
    let (_first, mut io) = controller(&machine, 1);
    let (_second, mut other) = controller(&machine, 1);
    register(&mut io, 7);
    let take = Action::Acquire(Acquire::Free, T::ExclusiveAccess);
    assert_eq!(act(&mut other, take, 7, 0), 0, "by the other one");
    assert_eq!(registrants(&mut io, 1), (2, vec![(1, 7, 1)]));
    assert_eq!((io.write(0, &[1; BLOCK]), other.write(0, &[2; BLOCK])), (0, 0));
    let (_admin, mut stranger) = controller(&machine, 2);
    assert_eq!(stranger.write(0, &[3; BLOCK]), CONFLICT);
    assert_eq!(stranger.read(0, 1).1, CONFLICT);
}

/// Base, section 8.19.1.
#[test]
fn hosts_are_notified_of_what_others_did_to_them() {
    const RETAIN: u32 = 1 << 15;
    let machine = Machine::start();
    let (mut first, mut io) = controller(&machine, 1);
    let (mut second, mut other) = controller(&machine, 2);
    register(&mut io, 1);
    register(&mut other, 2);
    let only = T::WriteExclusiveRegistrants;
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0), "nothing happened");

    assert_eq!(act(&mut io, Action::Acquire(Acquire::Free, only), 1, 0), 0);
    assert_eq!(act(&mut io, Action::Release(only), 1, 0), 0);
    assert_eq!(act(&mut io, Action::Acquire(Acquire::Preempt, only), 1, 2), 0);
    assert_eq!(reported(&mut second), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut second, RETAIN), (1, 2, 1, 1), "it looks and leaves it there");
    assert_eq!(notice(&mut second, 0), (1, 2, 1, 1), "released");
    assert_eq!(reported(&mut second), event::RESERVATION_RESULT, "there is more");
    assert_eq!(notice(&mut second, 0), (2, 1, 0, 1), "its registration was taken");
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0), "that was all");
    assert_eq!(notice(&mut first, 0), (0, 0, 0, 0), "whoever did it knows");

    // Masked notices are not recorded.
    register(&mut other, 2);
    assert_eq!(set_feature(&mut first, 0x82, 1, 0b1000), 0);
    assert_eq!(get_feature(&mut second, 0x82, 1), (0b1000, 0), "it is the namespace's");
    assert_eq!(act(&mut io, Action::Clear, 1, 0), 0);
    assert_eq!(notice(&mut second, 0), (0, 0, 0, 0));
    assert_eq!(set_feature(&mut first, 0x82, u32::MAX, 0), 0, "for all namespaces");
    register(&mut io, 1);
    register(&mut other, 2);
    assert_eq!(act(&mut io, Action::Clear, 1, 0), 0);
    assert_eq!(reported(&mut second), event::RESERVATION_RESULT);
    assert_eq!(notice(&mut second, 0), (3, 3, 0, 1));
}
