//! Rare results of the kernel, as test input.

use super::*;
use strake_block::{Sg, SgMut, Token};
use strake_units::{Lba, LbaRange};

/// Feeds `results` to a slot with `op`; returns the steps and the result, `None` if it still runs.
fn check(
    op: Op,
    learned: &Learned,
    results: &[i32],
) -> (Vec<Step>, Option<Result<(), IoErrorKind>>) {
    let zeroes = BufMut::alone(ZEROES_BYTES).freeze();
    let context = Context { size: BlockSize::B512, learned, zeroes: &zeroes };
    let mut slot = Slot::empty();
    slot.fill(Io { token: Token(1), op }, &context);
    let mut steps = vec![slot.step];
    for (i, result) in results.iter().enumerate() {
        match slot.advance(*result, &context) {
            Next::Again => steps.push(slot.step),
            Next::Finish(end) => {
                assert_eq!(i + 1, results.len(), "it ended early");
                return (steps, Some(end.map_err(|error| error.kind)));
            }
        }
    }
    (steps, None)
}

fn read() -> Op {
    Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(4096)) }
}

fn write(durability: Durability) -> Op {
    Op::Write { at: Lba(0), data: Sg::from(BufMut::alone(4096).freeze()), durability }
}

fn zeroes(durability: Durability) -> Op {
    Op::WriteZeroes { range: LbaRange::new(Lba(0), 8), durability }
}

const NORMAL: Durability = Durability::Normal;

#[test]
fn errors_get_the_kind_they_mean() {
    let check = |op: Op, errno: i32, want: IoErrorKind| {
        let (_, end) = check(op, &Learned::default(), &[-errno]);
        assert_eq!(end, Some(Err(want)), "errno {errno}");
    };
    for errno in [libc::EIO, libc::ENODATA, libc::EBADMSG, libc::EILSEQ] {
        check(read(), errno, IoErrorKind::Medium);
        check(write(NORMAL), errno, IoErrorKind::Device);
        check(Op::Flush, errno, IoErrorKind::Device);
    }
    for op in [read, || write(NORMAL), || Op::Flush] {
        check(op(), libc::ENODEV, IoErrorKind::Gone);
        check(op(), libc::ENXIO, IoErrorKind::Gone);
        check(op(), libc::ETIMEDOUT, IoErrorKind::Timeout);
        check(op(), libc::ECANCELED, IoErrorKind::Aborted);
        check(op(), libc::ENOMEM, IoErrorKind::Device);
    }
    check(write(NORMAL), libc::ENOSPC, IoErrorKind::NoSpace);
    check(zeroes(NORMAL), libc::EDQUOT, IoErrorKind::NoSpace);
    check(write(NORMAL), libc::EROFS, IoErrorKind::ReadOnly);
    check(write(NORMAL), libc::EINVAL, IoErrorKind::Misaligned);
    check(write(NORMAL), libc::EFBIG, IoErrorKind::OutOfRange);
    let range = LbaRange::new(Lba(0), 8);
    check(Op::Deallocate { range }, libc::EIO, IoErrorKind::Device);
}

#[test]
fn partial_transfers_go_on_where_they_stopped() {
    let learned = Learned::default();
    let transfers = |count: usize| vec![Step::Transfer; count];
    assert_eq!(check(read(), &learned, &[4096]), (transfers(1), Some(Ok(()))));
    assert_eq!(check(read(), &learned, &[512, 3584]), (transfers(2), Some(Ok(()))));
    assert_eq!(check(write(NORMAL), &learned, &[512, 512]), (transfers(3), None));
    // 700 bytes are one block and a part of the next: that part is transferred again.
    assert_eq!(check(read(), &learned, &[700, 3584]), (transfers(2), Some(Ok(()))));
    let gone = Some(Err(IoErrorKind::Gone));
    assert_eq!(check(read(), &learned, &[512, 0]), (transfers(2), gone));
    assert_eq!(check(write(NORMAL), &learned, &[0]), (transfers(1), gone));
}

#[test]
fn interruptions_are_repeated_but_not_forever() {
    let learned = Learned::default();
    let (steps, end) = check(read(), &learned, &[-libc::EAGAIN, -libc::EINTR, 4096]);
    assert_eq!((steps.len(), end), (3, Some(Ok(()))));
    for stuck in [-libc::EAGAIN, 100] {
        let forever = vec![stuck; RESUBMITS_MAX as usize + 1];
        assert_eq!(check(read(), &learned, &forever).1, Some(Err(IoErrorKind::Device)));
    }
}

#[test]
fn fua_without_kernel_support_becomes_write_and_flush() {
    let learned = Learned::default();
    let refused = -libc::EOPNOTSUPP;
    assert_eq!(check(write(Durability::Fua), &learned, &[4096]).1, Some(Ok(())));
    let (steps, end) = check(write(Durability::Fua), &learned, &[refused, 4096, 0]);
    assert_eq!((steps, end), (vec![Step::Transfer, Step::Transfer, Step::Sync], Some(Ok(()))));
    let (steps, end) = check(write(Durability::Fua), &learned, &[4096, -libc::EIO]);
    assert_eq!(steps, [Step::Transfer, Step::Sync], "once learned, never tried again");
    assert_eq!(end, Some(Err(IoErrorKind::Device)));
    assert_eq!(check(write(NORMAL), &learned, &[refused]).1, Some(Err(IoErrorKind::Unsupported)));
}

#[test]
fn zeroing_falls_back_step_by_step() {
    let learned = Learned::default();
    let refused = -libc::EOPNOTSUPP;
    let [range, punch, plain] = [Zeroing::Range, Zeroing::Punch, Zeroing::Write].map(Step::Zero);
    assert_eq!(check(zeroes(NORMAL), &learned, &[0]), (vec![range], Some(Ok(()))));
    let fua = check(zeroes(Durability::Fua), &learned, &[0, 0]);
    assert_eq!(fua, (vec![range, Step::Sync], Some(Ok(()))));
    let all = check(zeroes(Durability::Fua), &learned, &[refused, refused, 1024, 3072, 0]);
    assert_eq!(all, (vec![range, punch, plain, plain, Step::Sync], Some(Ok(()))));
    assert_eq!(check(zeroes(NORMAL), &learned, &[4096]), (vec![plain], Some(Ok(()))));
    assert_eq!(check(zeroes(NORMAL), &learned, &[refused]).1, Some(Err(IoErrorKind::Unsupported)));
}

/// A drive that reports at run time that it cannot unmap must still return zeroes: they are written.
#[test]
fn what_cannot_be_given_back_becomes_zeroes() {
    let learned = Learned::default();
    let refused = -libc::EOPNOTSUPP;
    let [range, punch, plain] = [Zeroing::Range, Zeroing::Punch, Zeroing::Write].map(Step::Zero);
    let deallocate = || Op::Deallocate { range: LbaRange::new(Lba(0), 8) };
    assert_eq!(check(deallocate(), &learned, &[0]), (vec![Step::Punch], Some(Ok(()))));
    let zeroed = check(deallocate(), &learned, &[refused, 0]);
    assert_eq!(zeroed, (vec![Step::Punch, range], Some(Ok(()))));
    let written = check(deallocate(), &learned, &[refused, refused, refused, 1024, 3072]);
    assert_eq!(written, (vec![Step::Punch, range, punch, plain, plain], Some(Ok(()))));
}

#[test]
fn vectors_skip_what_is_done() {
    let learned = Learned::default();
    let zeroes = BufMut::alone(ZEROES_BYTES).freeze();
    let context = Context { size: BlockSize::B512, learned: &learned, zeroes: &zeroes };
    let mut list = Sg::default();
    for _ in 0..3 {
        list.push(BufMut::alone(1024).freeze()).expect("room for four");
    }
    let addresses: Vec<usize> = list.parts().iter().map(Buf::address).collect();
    let mut slot = Slot::empty();
    let op = Op::Write { at: Lba(0), data: list, durability: NORMAL };
    slot.fill(Io { token: Token(0), op }, &context);
    let mut check = |done: u64, want: &[(usize, usize)]| {
        slot.done = done;
        let count = slot.point_at_data() as usize;
        let found: Vec<_> =
            slot.vectors[..count].iter().map(|v| (v.iov_base as usize, v.iov_len)).collect();
        assert_eq!(found, want, "after {done} bytes");
    };
    check(0, &[(addresses[0], 1024), (addresses[1], 1024), (addresses[2], 1024)]);
    check(512, &[(addresses[0] + 512, 512), (addresses[1], 1024), (addresses[2], 1024)]);
    check(1024, &[(addresses[1], 1024), (addresses[2], 1024)]);
    check(2560, &[(addresses[2] + 512, 512)]);
    assert_eq!(slot.point_at_zeroes(&zeroes, 3 * ZEROES_BYTES as u64 + 512), 4);
    assert_eq!(slot.vectors[3].iov_len, 512);
    assert_eq!(slot.point_at_zeroes(&zeroes, u64::MAX), 4);
}

/// The opcode and the flags of an entry (`struct io_uring_sqe`, io_uring_enter(2)).
fn asked(entry: &squeue::Entry) -> (u8, i32) {
    assert_eq!(size_of_val(entry), 64);
    let bytes = ptr::from_ref(entry).cast::<u8>();
    // SAFETY: an entry consists of the 64 bytes of the kernel's structure, `repr(C)`, and was just created; both
    // positions lie in it, and the reads need no alignment.
    unsafe { (bytes.read(), bytes.add(28).cast::<i32>().read_unaligned()) }
}

/// Checks the durability flags of the entries for the kernel: for plain writes, for writes of registered buffers, and
/// for the rest of a partially completed write.
#[test]
fn the_kernel_is_asked_for_durability_in_every_entry_of_a_durable_write() {
    let file = std::fs::File::open("/proc/self/exe").expect("we run from a file");
    let mode = crate::ring::Mode::Interrupts;
    let mut ring =
        Ring::open(2, mode, std::os::fd::AsFd::as_fd(&file)).expect("the kernel has io_uring");
    let chunks = strake_block::Arena::carve(4, 64 << 10);
    ring.register(&[chunks[0].arena().clone()]).expect("it can be registered");
    let (learned, zeroes) = (Learned::default(), BufMut::alone(ZEROES_BYTES).freeze());
    let context = Context { size: BlockSize::B512, learned: &learned, zeroes: &zeroes };
    let mut chunks = chunks.into_iter();
    let mut one = |registered: bool| match registered {
        true => chunks.next().expect("there are four").freeze(),
        false => BufMut::alone(64 << 10).freeze(),
    };
    for (durability, flags) in [(NORMAL, 0), (Durability::Fua, libc::RWF_DSYNC)] {
        for (registered, code) in [(false, opcode::Writev::CODE), (true, opcode::WriteFixed::CODE)]
        {
            let op = Op::Write { at: Lba(0), data: Sg::from(one(registered)), durability };
            let mut slot = Slot::empty();
            slot.fill(Io { token: Token(1), op }, &context);
            assert_eq!(asked(&slot.entry(&context, &ring)), (code, flags), "{durability:?}");
            assert!(matches!(slot.advance(4096, &context), Next::Again), "a part is done");
            assert_eq!(asked(&slot.entry(&context, &ring)), (code, flags), "{durability:?}");
            let left = (64 << 10) - 4096;
            assert!(matches!(slot.advance(left, &context), Next::Finish(Ok(()))), "all is done");
        }
    }
}

/// A flush syncs the data of the file; a durable write or durable zeroes end with a sync if no flag is supported.
#[test]
fn the_kernel_is_asked_to_sync_data() {
    let file = std::fs::File::open("/proc/self/exe").expect("we run from a file");
    let mode = crate::ring::Mode::Interrupts;
    let ring =
        Ring::open(2, mode, std::os::fd::AsFd::as_fd(&file)).expect("the kernel has io_uring");
    let (learned, zeroes_page) = (Learned::default(), BufMut::alone(ZEROES_BYTES).freeze());
    let context = Context { size: BlockSize::B512, learned: &learned, zeroes: &zeroes_page };
    let sync = (opcode::Fsync::CODE, types::FsyncFlags::DATASYNC.bits() as i32);
    let last = |op: Op, answers: &[i32]| {
        let mut slot = Slot::empty();
        slot.fill(Io { token: Token(1), op }, &context);
        for answer in answers {
            let _ = slot.entry(&context, &ring);
            assert!(matches!(slot.advance(*answer, &context), Next::Again), "it goes on");
        }
        asked(&slot.entry(&context, &ring))
    };
    assert_eq!(last(Op::Flush, &[]), sync);
    assert_eq!(last(zeroes(Durability::Fua), &[0]), sync);
    assert_eq!(last(write(Durability::Fua), &[-libc::EOPNOTSUPP, 4096]), sync);
}
