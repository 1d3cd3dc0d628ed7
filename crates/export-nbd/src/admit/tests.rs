//! Tests of the rules: each line has a request and its verdict.

use super::*;
use proptest::prelude::*;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// An export of 1 GiB with 4 KiB blocks on which everything is possible.
fn terms() -> Terms {
    Terms {
        bytes: 1 << 30,
        block: BlockSize::B4096,
        access: Access::ReadWrite,
        trim: Ability::Present,
        fast_zeroes: Ability::Present,
        agreement: Agreement { replies: ReplyStyle::Structured, allocation: Allocation::Selected },
    }
}

fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
    Request { flags, command, cookie: 7, offset, length }
}

/// Checks one verdict; of a refusal, only the code is compared.
fn check(terms: &Terms, request: Request, want: Result<Work, Code>) {
    let got = match admit(&request, terms) {
        Verdict::Do(work) => Ok(work),
        Verdict::Refuse(code, words) => {
            assert!(!words.is_empty() && words.len() <= 64, "{words:?}");
            Err(code)
        }
        other @ (Verdict::Disconnect | Verdict::Violation) => panic!("{request:?} {other:?}"),
    };
    assert_eq!(got, want, "{request:?}");
}

#[test]
fn acceptable_requests_become_work() {
    let (t, fua) = (terms(), command_flag::FUA);
    let simple = Terms { agreement: Agreement::default(), ..t };
    check(&t, request(command::READ, 0, 4096, 4096), Ok(Work::Read(Framing::Chunks)));
    check(&simple, request(command::READ, 0, 4096, 4096), Ok(Work::Read(Framing::Simple)));
    let df = request(command::READ, command_flag::DF, 0, 64 * KIB);
    check(&t, df, Ok(Work::Read(Framing::OneChunk)));
    check(&t, request(command::READ, fua, 0, 32 * MIB), Ok(Work::Read(Framing::Chunks)));
    check(&t, request(command::WRITE, 0, 0, 32 * MIB), Ok(Work::Write(Durability::Normal)));
    check(&t, request(command::WRITE, fua, 0, 4096), Ok(Work::Write(Durability::Fua)));
    check(&t, request(command::FLUSH, 0, 0, 0), Ok(Work::Flush));
    check(&t, request(command::FLUSH, fua, 0, 0), Ok(Work::Flush));
    check(&t, request(command::TRIM, 0, 0, 1 << 30), Ok(Work::Trim(Durability::Normal)));
    check(&t, request(command::TRIM, fua, 0, 4096), Ok(Work::Trim(Durability::Fua)));
    let zero = |flags| request(command::WRITE_ZEROES, flags, 0, 1 << 30);
    check(&t, zero(0), Ok(Work::Zeroes(Durability::Normal)));
    check(&t, zero(fua | command_flag::NO_HOLE), Ok(Work::Zeroes(Durability::Fua)));
    check(&t, zero(command_flag::FAST_ZERO), Ok(Work::Zeroes(Durability::Normal)));
    check(&t, request(command::CACHE, 0, 0, 1 << 30), Ok(Work::Nothing));
    let status = |flags| request(command::BLOCK_STATUS, flags, 0, 1 << 30);
    check(&t, status(0), Ok(Work::Status(Extents::Several)));
    check(&t, status(command_flag::REQ_ONE), Ok(Work::Status(Extents::One)));
    // Section "Request types": empty requests are unspecified but no reason to disconnect.
    for command in [command::READ, command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        check(&t, request(command, 0, 0, 0), Ok(Work::Nothing));
    }
}

#[test]
fn ranges_lie_inside_and_are_aligned() {
    let t = terms();
    let check_all = |offset, length, read, write| {
        check(&t, request(command::READ, 0, offset, length), Err(read));
        check(&t, request(command::TRIM, 0, offset, length), Err(read));
        check(&t, request(command::CACHE, 0, offset, length), Err(read));
        check(&t, request(command::BLOCK_STATUS, 0, offset, length), Err(read));
        check(&t, request(command::WRITE, 0, offset, length), Err(write));
        check(&t, request(command::WRITE_ZEROES, 0, offset, length), Err(write));
    };
    check_all(1 << 30, 4096, Code::Invalid, Code::NoSpace);
    check_all((1 << 30) - 4096, 8192, Code::Invalid, Code::NoSpace);
    check_all(u64::MAX, 1, Code::Invalid, Code::NoSpace);
    check_all(u64::MAX - 4095, 4096, Code::Invalid, Code::NoSpace);
    check_all(512, 4096, Code::Invalid, Code::Invalid);
    check_all(0, 512, Code::Invalid, Code::Invalid);
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    let t = Terms { access: Access::ReadOnly, ..terms() };
    for command in [command::WRITE, command::WRITE_ZEROES, command::TRIM] {
        check(&t, request(command, 0, 0, 4096), Err(Code::Perm));
        check(&t, request(command, 0, 1 << 40, 4096), Err(Code::Perm));
    }
    check(&t, request(command::FLUSH, 0, 0, 0), Ok(Work::Flush));
}

#[test]
fn what_the_device_lacks_is_refused() {
    let t = Terms { trim: Ability::Absent, fast_zeroes: Ability::Absent, ..terms() };
    check(&t, request(command::TRIM, 0, 0, 4096), Err(Code::Invalid));
    let zero = |flags| request(command::WRITE_ZEROES, flags, 0, 4096);
    check(&t, zero(command_flag::FAST_ZERO), Err(Code::NotSupported));
    check(&t, zero(0), Ok(Work::Zeroes(Durability::Normal)));
}

#[test]
fn flags_and_commands_that_do_not_exist_are_refused() {
    let t = terms();
    let simple = Terms { agreement: Agreement::default(), ..t };
    for command in 0..=command::BLOCK_STATUS {
        if command != command::DISC {
            check(&t, request(command, 1 << 15, 0, 4096), Err(Code::Invalid));
        }
    }
    check(&simple, request(command::READ, command_flag::DF, 0, 4096), Err(Code::Invalid));
    check(&simple, request(command::BLOCK_STATUS, 0, 0, 4096), Err(Code::Invalid));
    check(&t, request(command::WRITE, command_flag::NO_HOLE, 0, 4096), Err(Code::Invalid));
    check(&t, request(command::BLOCK_STATUS, 0, 0, 0), Err(Code::Invalid));
    check(&t, request(command::FLUSH, 0, 4096, 0), Err(Code::Invalid));
    for command in [8, 99, u16::MAX] {
        check(&t, request(command, 0, 0, 4096), Err(Code::Invalid));
    }
}

#[test]
fn payloads_have_a_largest_size() {
    let t = terms();
    let simple = Terms { agreement: Agreement::default(), ..t };
    check(&t, request(command::READ, 0, 0, 32 * MIB + 4096), Err(Code::Overflow));
    check(&simple, request(command::READ, 0, 0, 32 * MIB + 4096), Err(Code::Invalid));
    let df = |length| request(command::READ, command_flag::DF, 0, length);
    check(&t, df(4 * MIB), Ok(Work::Read(Framing::OneChunk)));
    check(&t, df(4 * MIB + 4096), Err(Code::Overflow));
    let write = request(command::WRITE, 0, 0, 32 * MIB + 4096);
    assert_eq!(admit(&write, &t), Verdict::Violation);
    assert_eq!(admit(&request(command::WRITE, 0xffff, 0, u32::MAX), &t), Verdict::Violation);
    assert_eq!(admit(&request(command::DISC, 0, 0, 0), &t), Verdict::Disconnect);
}

proptest! {
    /// Every accepted request is inside the export and aligned to its blocks.
    #[test]
    fn nothing_outside_is_let_through(
        flags: u16, command in 0u16..10, offset: u64, length: u32, near: bool,
    ) {
        let t = terms();
        let offset = if near { (offset % (2 << 30)) & !4095 } else { offset };
        let length = if near { (length % (64 * MIB)) & !4095 } else { length };
        let request = request(command, flags, offset, length);
        if let Verdict::Do(work) = admit(&request, &t) {
            prop_assert!(offset.checked_add(u64::from(length)).is_some_and(|end| end <= t.bytes));
            prop_assert_eq!((offset | u64::from(length)) % 4096, 0);
            let has_data = matches!(work, Work::Read(_) | Work::Write(_));
            prop_assert!(!has_data || length <= REQUEST_BYTES_MAX);
        }
    }
}

#[test]
fn a_reservation_leaves_what_its_type_leaves() {
    let reading = [Work::Read(Framing::Chunks), Work::Status(Extents::One)];
    let writing = [
        Work::Write(Durability::Normal),
        Work::Zeroes(Durability::Fua),
        Work::Trim(Durability::Normal),
    ];
    for rights in [Rights::All, Rights::Read, Rights::Nothing] {
        for work in [Work::Nothing, Work::Flush] {
            assert_eq!(permit(work, rights), Ok(()));
        }
        for work in reading {
            assert_eq!(permit(work, rights).is_ok(), rights != Rights::Nothing, "{work:?}");
        }
        for work in writing {
            assert_eq!(permit(work, rights).is_ok(), rights == Rights::All, "{work:?}");
        }
    }
}
