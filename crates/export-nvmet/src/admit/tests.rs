//! Each rule is a line of a table.

use super::{
    Ability, Access, Freshness, Need, Source, Terms, Work, admit, copied, range, source,
    source_range,
};
use strake_block::Durability;
use strake_nvme_wire::command::SQE_BYTES;
use strake_nvme_wire::nvm::SourceRange;
use strake_nvme_wire::{Sgl, Sqe, Status};
use strake_units::{BlockSize, Lba, LbaRange};

const TERMS: Terms = Terms {
    blocks: 1000,
    block: BlockSize::B4096,
    access: Access::ReadWrite,
    deallocate: Ability::Present,
};

fn sqe(opcode: u8, nsid: u32, words: &[(usize, u32)]) -> Sqe {
    let mut bytes = [0; SQE_BYTES];
    (bytes[0], bytes[1]) = (opcode, 0x40);
    for (number, word) in words.iter().chain(&[(1, nsid)]) {
        bytes[number * 4..number * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    Sqe(bytes)
}

fn blocks(opcode: u8, start: u32, count: u32) -> Sqe {
    sqe(opcode, 1, &[(10, start), (12, count - 1)])
}

const fn run(start: u64, count: u64) -> LbaRange {
    LbaRange::new(Lba(start), count)
}

#[test]
fn what_is_possible_becomes_work() {
    let fua = 1 << 30;
    for (what, sqe, work) in [
        ("a read", blocks(2, 3, 4), Work::Read(run(3, 4), Freshness::Any)),
        ("the last block", blocks(2, 999, 1), Work::Read(run(999, 1), Freshness::Any)),
        ("a stable read", sqe(2, 1, &[(12, fua)]), Work::Read(run(0, 1), Freshness::Stable)),
        ("a write", blocks(1, 3, 256), Work::Write(run(3, 256), Durability::Normal)),
        ("a stable write", sqe(1, 1, &[(12, fua)]), Work::Write(run(0, 1), Durability::Fua)),
        ("zeroes", blocks(8, 0, 1000), Work::Zeroes(run(0, 1000), Durability::Normal)),
        ("a comparison", blocks(5, 3, 4), Work::Compare(run(3, 4), Freshness::Any)),
        ("a look at blocks", blocks(0xc, 3, 4), Work::Verify(run(3, 4), Freshness::Any)),
        ("a flush", sqe(0, 1, &[]), Work::Flush),
        ("a deallocation", sqe(9, 1, &[(10, 255), (11, 4)]), Work::Deallocate(256)),
        (
            "a copy",
            sqe(0x19, 1, &[(10, 7), (11, 1), (12, 255)]),
            Work::Copy(Lba(7 | 1 << 32), 256, Durability::Normal),
        ),
        ("a stable copy", sqe(0x19, 1, &[(12, fua)]), Work::Copy(Lba(0), 1, Durability::Fua)),
        ("advice", sqe(9, 1, &[(10, 1), (11, 3)]), Work::Advice(2)),
    ] {
        assert_eq!(admit(&sqe, &TERMS), Ok(work), "{what}");
    }
    for (opcode, fuse, work) in [
        (5, 1, Work::Compare(run(7, 1), Freshness::Any)),
        (1, 2, Work::Write(run(7, 1), Durability::Normal)),
    ] {
        let mut half = blocks(opcode, 7, 1);
        half.0[1] |= fuse;
        assert_eq!(admit(&half, &TERMS), Ok(work));
    }
    let fixed = Terms { deallocate: Ability::Absent, ..TERMS };
    assert_eq!(admit(&sqe(9, 1, &[(11, 4)]), &fixed), Ok(Work::Advice(1)), "nobody can do it");
}

#[test]
fn what_is_not_possible_is_refused() {
    let read_only = Terms { access: Access::ReadOnly, ..TERMS };
    let large = Terms { blocks: 1 << 40, ..TERMS };
    let half = |opcode, count, fuse| {
        let mut sqe = blocks(opcode, 0, count);
        sqe.0[1] |= fuse;
        sqe
    };
    for (what, sqe, terms, status) in [
        ("beyond the end", blocks(2, 999, 2), TERMS, Status::OUT_OF_RANGE),
        (
            "around the end",
            sqe(2, 1, &[(10, u32::MAX), (11, u32::MAX), (12, 9)]),
            TERMS,
            Status::OUT_OF_RANGE,
        ),
        ("more than MDTS", blocks(2, 0, 257), TERMS, Status::INVALID_FIELD),
        ("more zeroes than WZSL", blocks(8, 0, 16385), large, Status::INVALID_FIELD),
        ("a directive", sqe(1, 1, &[(12, 1 << 20)]), TERMS, Status::INVALID_FIELD),
        ("copies described otherwise", sqe(0x19, 1, &[(12, 1 << 8)]), TERMS, Status::INVALID_FIELD),
        ("a copy by a directive", sqe(0x19, 1, &[(12, 1 << 20)]), TERMS, Status::INVALID_FIELD),
        ("a copy where none may be", sqe(0x19, 1, &[]), read_only, Status::WRITE_PROTECTED),
        ("a pair that begins with a read", half(2, 1, 1), TERMS, Status::INVALID_FIELD),
        ("a pair that begins with a write", half(1, 1, 1), TERMS, Status::INVALID_FIELD),
        ("a pair that ends with a comparison", half(5, 1, 2), TERMS, Status::INVALID_FIELD),
        ("a pair that ends with zeroes", half(8, 1, 2), TERMS, Status::INVALID_FIELD),
        ("a pair that compares two blocks", half(5, 2, 1), TERMS, Status::INVALID_FIELD),
        ("a pair that writes two blocks", half(1, 2, 2), TERMS, Status::INVALID_FIELD),
        ("a third half", half(1, 1, 3), TERMS, Status::INVALID_FIELD),
        ("a fused write where none may be", half(1, 1, 2), read_only, Status::WRITE_PROTECTED),
        ("a write where none may be", blocks(1, 0, 1), read_only, Status::WRITE_PROTECTED),
        ("zeroes where none may be", blocks(8, 0, 1), read_only, Status::WRITE_PROTECTED),
        (
            "a deallocation where none may be",
            sqe(9, 1, &[(11, 4)]),
            read_only,
            Status::WRITE_PROTECTED,
        ),
    ] {
        let got = admit(&sqe, &terms).map_or_else(|status| status, |_| Status::SUCCESS);
        assert_eq!(got, status, "{what}");
    }
}

#[test]
fn ranges_lie_inside_the_namespace() {
    let bytes = |start: u64, count: u32| {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&count.to_le_bytes());
        bytes[8..].copy_from_slice(&start.to_le_bytes());
        bytes
    };
    assert_eq!(range(&bytes(0, 1000), &TERMS), Ok(run(0, 1000)));
    assert_eq!(range(&bytes(1000, 0), &TERMS), Ok(run(1000, 0)));
    assert_eq!(range(&bytes(1, 1000), &TERMS), Err(Status::OUT_OF_RANGE));
    assert_eq!(range(&bytes(u64::MAX, 1), &TERMS), Err(Status::OUT_OF_RANGE));
}

#[test]
fn copies_stay_inside_the_namespace_and_their_limits() {
    let large = Terms { blocks: 1 << 40, ..TERMS };
    let source = |start: u64, count: u32, terms: &Terms| {
        source_range(&SourceRange { start, count }.bytes(), terms)
    };
    assert_eq!(source(999, 1, &TERMS), Ok(run(999, 1)));
    assert_eq!(source(999, 2, &TERMS), Err(Status::OUT_OF_RANGE));
    assert_eq!(source(u64::MAX, 1, &TERMS), Err(Status::OUT_OF_RANGE));
    assert_eq!(source(0, 16384, &large), Ok(run(0, 16384)));
    assert_eq!(source(0, 16385, &large), Err(Status::SIZE_LIMIT));
    let small = Terms { block: BlockSize::B512, ..large };
    assert_eq!(source(0, 65535, &small), Ok(run(0, 65535)));
    assert_eq!(source(0, 65536, &small), Err(Status::SIZE_LIMIT), "MSSRL cannot say so much");

    let copy = |to: u64, sources: &[LbaRange], terms: &Terms| {
        copied(Lba(to), sources.iter().copied().map(Ok), terms)
    };
    assert_eq!(copy(990, &[run(0, 5), run(2, 5)], &TERMS), Ok(()), "sources may overlap");
    assert_eq!(copy(991, &[run(0, 5), run(2, 5)], &TERMS), Err(Status::OUT_OF_RANGE));
    assert_eq!(copy(u64::MAX, &[run(0, 5)], &TERMS), Err(Status::OUT_OF_RANGE));
    assert_eq!(copy(5, &[run(0, 5)], &TERMS), Ok(()));
    assert_eq!(copy(4, &[run(0, 5)], &TERMS), Err(Status::OVERLAP));
    assert_eq!(copy(100, &[run(0, 5), run(109, 1), run(7, 9)], &TERMS), Err(Status::OVERLAP));
    assert_eq!(copy(1 << 30, &[run(0, 8192), run(0, 8192)], &large), Ok(()));
    assert_eq!(copy(1 << 30, &[run(0, 8193), run(0, 8192)], &large), Err(Status::SIZE_LIMIT));
    let bad = [Ok(run(0, 1)), Err(Status::OUT_OF_RANGE)];
    assert_eq!(copied(Lba(9), bad.into_iter(), &TERMS), Err(Status::OUT_OF_RANGE));
}

#[test]
fn descriptors_fit_what_they_describe() {
    let with = |sgl: Sgl| {
        let mut sqe = blocks(1, 0, 1);
        sqe.0[24..40].copy_from_slice(&sgl.bytes());
        sqe
    };
    let capsule = |offset, length| with(Sgl::InCapsule { offset, length });
    let host = |length| with(Sgl::Transport { length });
    let (send, receive) = (Need::Send(4096), Need::Receive { least: 4096, most: 4096 });
    let ranges = Work::Deallocate(2).need(BlockSize::B4096);
    let large = Need::Receive { least: 16384, most: 16384 };
    for (what, sqe, need, carried, found) in [
        ("data for the host", host(4096), send, 0, Ok(Source::Nothing)),
        ("more room than data", host(8192), send, 0, Ok(Source::Nothing)),
        ("less room than data", host(512), send, 0, Err(Status::SGL_LENGTH)),
        ("data for the host in its capsule", capsule(0, 4096), send, 4096, Err(Status::SGL_TYPE)),
        ("data in the capsule", capsule(0, 4096), receive, 4096, Ok(Source::Capsule(4096))),
        ("less in the capsule", capsule(0, 4096), receive, 512, Err(Status::SGL_LENGTH)),
        ("less described", capsule(0, 512), receive, 4096, Err(Status::SGL_LENGTH)),
        ("from within the capsule", capsule(64, 4096), receive, 4096, Err(Status::SGL_OFFSET)),
        ("data with the host", host(4096), receive, 0, Ok(Source::Host(4096))),
        ("with the host, and in the capsule", host(4096), receive, 4096, Err(Status::SGL_LENGTH)),
        ("more with the host", host(8192), receive, 0, Err(Status::SGL_LENGTH)),
        ("two ranges", capsule(0, 32), ranges, 32, Ok(Source::Capsule(32))),
        ("more ranges than are meant", capsule(0, 4096), ranges, 4096, Ok(Source::Capsule(4096))),
        ("fewer ranges than are meant", capsule(0, 16), ranges, 16, Err(Status::SGL_LENGTH)),
        ("more than 256 ranges", capsule(0, 8192), ranges, 8192, Err(Status::SGL_LENGTH)),
        ("nothing at all", host(0), Need::Nothing, 0, Ok(Source::Nothing)),
        ("too much for a capsule", capsule(0, 16384), large, 16384, Err(Status::SGL_LENGTH)),
    ] {
        assert_eq!(source(&sqe, need, carried), found, "{what}");
    }
}
