//! A queue with a scripted target: the commands that it sends, and its reaction to every response. The test sets the
//! time.

mod breaches;
mod conversations;
mod durability;
mod losses;
mod moves;
mod parts;
mod stats;

use super::FabricsQueue;
use crate::address::HostName;
use crate::cache::Instance;
use crate::device::Options;
use crate::error::{Breach, Reason};
use crate::identify::Facts;
use crate::inbox::Inbox;
use crate::limits::{ANSWER_TIME_MAX, LOSS_TIME, RETRY_AFTER, TRIES_MAX};
use crate::link::{Life, Link, Phase, Port, Terms};
use crate::path_manager::Request;
use crate::reservation::ReservationMode;
use crate::shared::Shared;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_block::{
    Buf, BufMut, Completion, CompletionBatch, DeallocateReads, Durability, Io, IoErrorKind,
    IoQueue, Op, Sg, SgMut, Token, VolatileCache,
};
use strake_nvme_tcp::pdu::{self, COMMON_BYTES, Common, PduKind, Transfer, Use, flag};
use strake_nvme_tcp::{Digests, digest, framing};
use strake_nvme_wire::{Cqe, Sgl, Sqe, Status, nvm};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// Settle time of commands after the end of an association.
const SETTLE: Nanos = Nanos(8 * Nanos::SECOND.0);
const BLOCK: usize = 4096;
const BLOCKS: u64 = 1 << 20;
const NONE: Digests = Digests { header: Use::Off, data: Use::Off };
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

pub(crate) fn facts() -> Facts {
    Facts {
        identity: "a".to_owned(),
        serial: String::new(),
        model: String::new(),
        nsid: 1,
        blocks: BLOCKS,
        block: BlockSize::B4096,
        transfer_bytes: 1 << 20,
        zeroes_bytes: Some(1 << 20),
        deallocate: DeallocateReads::Unspecified,
        cache: VolatileCache::Present,
        read_only: false,
        optimal_bytes: 0,
        settle_time: SETTLE,
        instance: None,
        reservations: None,
        access: None,
    }
}

/// A PDU that the queue sent.
struct Pdu {
    common: Common,
    header: Vec<u8>,
    data: Vec<u8>,
}

impl Pdu {
    fn command(&self) -> Sqe {
        assert_eq!(self.common.kind, PduKind::CapsuleCmd);
        pdu::command_of(self.header.first_chunk().expect("a whole header"))
    }

    fn transfer(&self) -> Transfer {
        assert_eq!(self.common.kind, PduKind::H2cData);
        Transfer::parse(self.header.first_chunk().expect("a whole header"))
    }
}

/// A queue, the thread's end of it, and the target's end of its connection.
struct Rig {
    queue: FabricsQueue,
    shared: Arc<Shared>,
    requests: Inbox<Request>,
    port: Port,
    life: Arc<Life>,
    target: UnixStream,
    digests: Digests,
    now: Nanos,
    done: Vec<Completion>,
}

impl Rig {
    fn new() -> Self {
        Self::with(facts(), NONE, 8192)
    }

    fn with(facts: Facts, digests: Digests, in_capsule_bytes: u32) -> Self {
        Self::guarded(ReservationMode::Off, (facts, digests, in_capsule_bytes))
    }

    fn guarded(
        reservation: ReservationMode,
        (facts, digests, in_capsule_bytes): (Facts, Digests, u32),
    ) -> Self {
        let address = "nvme-tcp://a/nqn.a".parse().expect("an address");
        let host = HostName { nqn: "nqn.b".to_owned(), id: [1; 16], keys: None, tls: None };
        let options = Options { reservation, ..Options::default() };
        let shared = Shared::new(&address, &host, facts, options);
        let shared = Arc::new(shared.expect("descriptors"));
        let (asker, requests) = Inbox::open().expect("descriptors");
        let zeroes = BufMut::alone(128 << 10).freeze();
        let start = Nanos::SECOND;
        let queue = FabricsQueue::open(&shared, &asker, (0, 8, CoreIndex(0)), zeroes, start)
            .expect("a queue");
        let Ok(Request::Open(port)) = requests.next() else { panic!("a queue asks for a link") };
        let (target, _) = UnixStream::pair().expect("sockets");
        let done = Vec::new();
        let now = start;
        let life = Life::new(0);
        life.end(Nanos::default());
        let mut rig = Self { queue, shared, requests, port, life, target, digests, now, done };
        rig.connect(1, in_capsule_bytes);
        rig
    }

    /// Establishes association `number`, as the thread does; another instance may serve the namespace.
    fn connect(&mut self, number: u64, in_capsule_bytes: u32) {
        self.connect_to(Instance::PerhapsAnother, number, in_capsule_bytes);
    }

    fn connect_to(&mut self, instance: Instance, number: u64, in_capsule_bytes: u32) {
        self.end();
        self.target = self.use_next(instance, number, in_capsule_bytes);
    }

    /// Selects association `number`, and returns its target's end. The previous association continues.
    fn use_next(&mut self, instance: Instance, number: u64, in_capsule_bytes: u32) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("a socket");
        theirs.set_nonblocking(true).expect("a socket");
        let digests = self.digests;
        let terms =
            Terms { digests, alignment: 0, data_bytes_max: 8192, in_capsule_bytes, window: 4 };
        self.shared.cache.association_began(number, instance);
        self.shared.association.store(number, Ordering::Release);
        self.life = Life::new(number);
        let (life, facts) = (Arc::clone(&self.life), Arc::new(self.shared.facts().clone()));
        let wire = OwnedFd::from(ours).into();
        self.port.offer(Some(Link { wire, number: 3, terms, life, facts }));
        theirs
    }

    /// Selects no association, as the thread does.
    fn stop(&mut self) {
        self.shared.down_at.store(self.now.0, Ordering::Relaxed);
        let association = self.shared.association.swap(0, Ordering::AcqRel);
        self.shared.cache.association_ended(association);
        self.life.condemn();
    }

    /// Ends the association, unless it has ended.
    fn end(&mut self) {
        if !matches!(self.life.phase(), Phase::Ended(_)) {
            self.life.end(self.now.plus(SETTLE));
        }
    }

    /// Loses the association.
    fn lose(&mut self) {
        self.stop();
        self.end();
    }

    fn submit(&mut self, token: u64, op: Op) {
        assert!(self.queue.submit(Io { token: Token(token), op }).is_ok(), "there is room");
        self.queue.ring_doorbell(self.now);
    }

    /// Executes a flush; returns its result.
    fn flush(&mut self, token: u64) -> Result<(), IoErrorKind> {
        self.submit(token, Op::Flush);
        let cid = self.command().cid();
        self.answer(cid, Status::SUCCESS);
        self.ended().result.map_err(|error| error.kind)
    }

    /// Opens the queue again, with association `number`.
    fn reopen(&mut self, zeroes: Buf, number: u64) {
        let (asker, requests) = Inbox::open().expect("descriptors");
        let queue =
            FabricsQueue::open(&self.shared, &asker, (1, 8, CoreIndex(1)), zeroes, self.now);
        self.queue = queue.expect("a queue");
        let Ok(Request::Open(port)) = requests.next() else { panic!("a queue asks for a link") };
        (self.requests, self.port) = (requests, port);
        self.connect(number, 8192);
    }

    fn read(&mut self, token: u64, at: u64, blocks: usize) {
        let data = SgMut::from(BufMut::alone(blocks * BLOCK));
        self.submit(token, Op::Read { at: Lba(at), data });
    }

    fn write(&mut self, token: u64, at: u64, data: &[u8]) {
        let mut buf = BufMut::alone(data.len());
        buf.as_mut_slice().copy_from_slice(data);
        let data = Sg::from(buf.freeze());
        self.submit(token, Op::Write { at: Lba(at), data, durability: Durability::Normal });
    }

    fn poll(&mut self) {
        let mut batch = CompletionBatch::new(16);
        self.queue.poll(self.now, &mut batch);
        self.done.extend(batch.drain());
    }

    fn pass(&mut self, span: Nanos) {
        self.now = self.now.plus(span);
        self.poll();
    }

    /// The next PDU that the queue has sent.
    fn pdu(&mut self) -> Pdu {
        let mut first = [0; COMMON_BYTES];
        self.target.read_exact(&mut first).expect("the queue has sent something");
        let common = Common::parse(&first).expect("a PDU");
        let frame = common.frame(self.digests).expect("a PDU that can be cut");
        let mut header = first.to_vec();
        header.resize(frame.lead, 0);
        self.target.read_exact(&mut header[COMMON_BYTES..]).expect("a whole header");
        if frame.header_digest == Use::On {
            let at = frame.header;
            assert_eq!(header[at..at + 4], digest::of(&header[..at]), "the header's digest");
        }
        let mut data = vec![0; frame.data as usize];
        self.target.read_exact(&mut data).expect("all data");
        if frame.data_digest == Use::On {
            let mut said = [0; 4];
            self.target.read_exact(&mut said).expect("the digest");
            assert_eq!(said, digest::of(&data), "the data's digest");
        }
        Pdu { common, header, data }
    }

    fn command(&mut self) -> Sqe {
        self.pdu().command()
    }

    fn is_silent(&mut self) -> bool {
        let more = self.target.read_exact(&mut [0; 1]);
        more.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    fn say(&mut self, bytes: &[u8]) {
        self.target.write_all(bytes).expect("the queue's socket takes it");
        self.poll();
    }

    fn answer(&mut self, cid: u16, status: Status) {
        let cqe = Cqe { result: 0, head: 0, cid, status };
        let header = pdu::capsule_resp(&cqe, self.digests);
        self.say(&framing::whole(&header, self.digests, 0, &[]));
    }

    fn ask(&mut self, cid: u16, offset: u32, length: u32) {
        let header = Transfer { cid, tag: 9, offset, length }.r2t(self.digests);
        self.say(&framing::whole(&header, self.digests, 0, &[]));
    }

    fn data(&mut self, cid: u16, offset: u32, flags: u8, data: &[u8]) {
        let bytes = self.data_pdu(cid, offset, flags, data);
        self.say(&bytes);
    }

    fn data_pdu(&self, cid: u16, offset: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let digests = self.digests;
        let lead = pdu::lead(pdu::DATA_BYTES, digests, 0);
        let length = data.len() as u32;
        let transfer = Transfer { cid, tag: 0, offset, length };
        let header = transfer.data(PduKind::C2hData, digests, lead, flags);
        framing::whole(&header, digests, lead, data)
    }

    /// The only completion since the last call.
    fn ended(&mut self) -> Completion {
        assert_eq!(self.done.len(), 1, "one request has ended");
        self.done.pop().expect("there is one")
    }

    fn ended_well(&mut self, token: u64) -> Op {
        let ended = self.ended();
        assert_eq!((ended.token, ended.result), (Token(token), Ok(())));
        ended.op
    }

    fn failed(&mut self) -> IoErrorKind {
        self.ended().result.expect_err("it failed").kind
    }

    /// Checks that the association was ended for this reason, and that no request has completed and nothing is sent.
    fn is_lost_because(&mut self, reason: Reason) {
        let Ok(Request::Lost(_, said)) = self.requests.next() else {
            panic!("the association is still in use")
        };
        assert_eq!(said, reason);
        assert!(self.done.is_empty(), "requests are held");
        assert!(self.queue.link.is_none(), "the connection is dropped");
        assert!(self.requests.next().is_err(), "it is told once");
    }

    fn is_broken_by(&mut self, breach: Breach) {
        self.is_lost_because(Reason::Broken(breach));
    }
}

#[test]
fn a_read_is_asked_for_and_filled() {
    for digests in [NONE, BOTH] {
        let mut rig = Rig::with(facts(), digests, 8192);
        rig.read(7, 5, 2);
        let command = rig.command();
        let blocks = nvm::Blocks::parse(&command);
        assert_eq!((command.opcode(), command.nsid()), (nvm::opcode::READ, 1));
        assert_eq!((blocks.start, blocks.count), (5, 2));
        assert_eq!(command.sgl(), Ok(Sgl::Transport { length: 8192 }));
        rig.data(command.cid(), 0, 0, &[1; BLOCK]);
        rig.data(command.cid(), 4096, flag::LAST, &[2; BLOCK]);
        assert!(rig.done.is_empty(), "the completion is still missing");
        rig.answer(command.cid(), Status::SUCCESS);
        let Op::Read { data, .. } = rig.ended_well(7) else { panic!("a read comes home") };
        let bytes = data.into_single().expect("one piece");
        assert!(bytes.as_slice()[..BLOCK].iter().all(|&byte| byte == 1));
        assert!(bytes.as_slice()[BLOCK..].iter().all(|&byte| byte == 2));
    }
}

#[test]
fn data_may_come_in_any_pieces_and_stand_for_the_completion() {
    let mut rig = Rig::with(facts(), BOTH, 8192);
    rig.read(1, 0, 1);
    let cid = rig.command().cid();
    let data: Vec<u8> = (0..BLOCK).map(|at| (at % 251) as u8).collect();
    let pdu = rig.data_pdu(cid, 0, flag::LAST | flag::SUCCESS, &data);
    for piece in pdu.chunks(97) {
        assert!(rig.done.is_empty());
        rig.say(piece);
    }
    let Op::Read { data: got, .. } = rig.ended_well(1) else { panic!("a read comes home") };
    assert_eq!(got.parts()[0].as_slice(), data);
}

#[test]
fn a_small_write_goes_along_and_a_large_one_when_asked_for() {
    for digests in [NONE, BOTH] {
        let mut rig = Rig::with(facts(), digests, 8192);
        rig.write(1, 3, &[5; 2 * BLOCK]);
        let pdu = rig.pdu();
        assert_eq!(pdu.command().sgl(), Ok(Sgl::InCapsule { offset: 0, length: 8192 }));
        assert_eq!(pdu.data, [5; 2 * BLOCK]);
        rig.answer(pdu.command().cid(), Status::SUCCESS);
        rig.ended_well(1);
    }
    let mut rig = Rig::new();
    let data: Vec<u8> = (0..8 * BLOCK).map(|at| (at / 13) as u8).collect();
    rig.write(2, 3, &data);
    let command = rig.command();
    assert_eq!(command.sgl(), Ok(Sgl::Transport { length: 8 * BLOCK as u32 }));
    let mut got = Vec::new();
    for (offset, length) in [(0, 12_288), (12_288, 20_480)] {
        rig.ask(command.cid(), offset, length);
        let end = (offset + length) as usize;
        while got.len() < end {
            let pdu = rig.pdu();
            let transfer = pdu.transfer();
            assert_eq!((transfer.cid, transfer.tag), (command.cid(), 9));
            assert_eq!(transfer.offset as usize, got.len(), "in order");
            assert!(transfer.length <= 8192, "no more than the target takes at a time");
            got.extend_from_slice(&pdu.data);
            assert_eq!(pdu.common.flags & flag::LAST != 0, got.len() == end);
        }
    }
    assert_eq!(got, data);
    rig.answer(command.cid(), Status::SUCCESS);
    let Op::Write { data, .. } = rig.ended_well(2) else { panic!("a write comes home") };
    let buf = data.into_single().expect("one piece");
    assert!(buf.reclaim().is_ok(), "nobody else holds the data any more");
}

#[test]
fn requests_are_cut_to_what_the_target_takes() {
    let mut rig = Rig::with(Facts { transfer_bytes: 8192, ..facts() }, NONE, 8192);
    rig.read(1, 10, 5);
    let mut got = Vec::new();
    for count in [2, 2, 1_u32] {
        let command = rig.command();
        let blocks = nvm::Blocks::parse(&command);
        got.push((blocks.start, blocks.count));
        let data = vec![blocks.start as u8; count as usize * BLOCK];
        rig.data(command.cid(), 0, flag::LAST | flag::SUCCESS, &data);
    }
    assert_eq!(got, [(10, 2), (12, 2), (14, 1)]);
    let Op::Read { data, .. } = rig.ended_well(1) else { panic!("a read comes home") };
    let data = data.into_single().expect("one piece");
    let firsts: Vec<u8> = data.as_slice().chunks(BLOCK).map(|block| block[0]).collect();
    assert_eq!(firsts, [10, 10, 12, 12, 14]);
}

#[test]
fn flushes_zeroes_and_deallocations_are_commands_of_their_own() {
    let mut rig = Rig::new();
    rig.submit(1, Op::Flush);
    let command = rig.command();
    assert_eq!(command.opcode(), nvm::opcode::FLUSH);
    rig.answer(command.cid(), Status::SUCCESS);
    rig.ended_well(1);

    let range = LbaRange::new(Lba(9), 300);
    rig.submit(2, Op::WriteZeroes { range, durability: Durability::Fua });
    for (start, count) in [(9, 256), (265, 44)] {
        let command = rig.command();
        let blocks = nvm::Blocks::parse(&command);
        assert_eq!(command.opcode(), nvm::opcode::WRITE_ZEROES);
        assert_eq!((blocks.start, blocks.count, blocks.force_unit_access), (start, count, true));
        rig.answer(command.cid(), Status::SUCCESS);
    }
    rig.ended_well(2);

    rig.submit(3, Op::Deallocate { range });
    let pdu = rig.pdu();
    assert!(nvm::Dataset::parse(&pdu.command()).deallocate);
    let reported = nvm::Range::parse(pdu.data.first_chunk().expect("a range"));
    assert_eq!(reported, nvm::Range { start: 9, count: 300 });
    rig.answer(pdu.command().cid(), Status::SUCCESS);
    rig.ended_well(3);

    let mut rig = Rig::with(Facts { zeroes_bytes: None, ..facts() }, NONE, 8192);
    rig.submit(
        4,
        Op::WriteZeroes { range: LbaRange::new(Lba(0), 2), durability: Durability::Normal },
    );
    let pdu = rig.pdu();
    assert_eq!(pdu.command().opcode(), nvm::opcode::WRITE);
    assert_eq!(pdu.data, [0; 2 * BLOCK]);
}

#[test]
fn what_cannot_be_done_never_reaches_the_target() {
    let mut rig = Rig::with(Facts { read_only: true, ..facts() }, NONE, 8192);
    rig.write(1, 0, &[0; BLOCK]);
    rig.poll();
    assert_eq!(rig.failed(), IoErrorKind::ReadOnly);
    rig.read(2, BLOCKS, 1);
    rig.poll();
    assert_eq!(rig.failed(), IoErrorKind::OutOfRange);
    let data = SgMut::from(BufMut::alone(100));
    rig.submit(3, Op::Read { at: Lba(0), data });
    rig.poll();
    assert_eq!(rig.failed(), IoErrorKind::Misaligned);
    assert!(rig.is_silent());
    let facts = Facts { deallocate: DeallocateReads::Unsupported, ..facts() };
    let mut rig = Rig::with(facts, NONE, 8192);
    rig.submit(4, Op::Deallocate { range: LbaRange::new(Lba(0), 1) });
    rig.poll();
    assert_eq!(rig.failed(), IoErrorKind::Unsupported);
}

#[test]
fn no_more_commands_are_sent_than_the_target_takes_at_a_time() {
    let mut rig = Rig::new();
    for token in 0..8 {
        rig.read(token, token, 1);
    }
    let data = SgMut::from(BufMut::alone(BLOCK));
    let ninth = Io { token: Token(8), op: Op::Read { at: Lba(0), data } };
    assert!(rig.queue.submit(ninth).is_err(), "the queue takes eight");
    let cids: Vec<u16> = (0..4).map(|_| rig.command().cid()).collect();
    assert!(rig.is_silent(), "the target takes four");
    rig.data(cids[2], 0, flag::LAST | flag::SUCCESS, &[0; BLOCK]);
    rig.ended_well(2);
    assert_eq!(nvm::Blocks::parse(&rig.command()).start, 4);
    assert!(rig.is_silent());
}

#[test]
fn statuses_become_errors_and_what_is_refused_for_now_is_sent_again() {
    for (status, kind) in [
        (Status::UNRECOVERED_READ, IoErrorKind::Medium),
        (Status::OUT_OF_RANGE, IoErrorKind::OutOfRange),
        (Status::INTERNAL, IoErrorKind::Device),
    ] {
        let mut rig = Rig::new();
        rig.read(1, 0, 1);
        let cid = rig.command().cid();
        rig.answer(cid, status);
        assert_eq!(rig.failed(), kind, "{status}");
    }
    let mut rig = Rig::new();
    rig.write(1, 0, &[0; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.answer(cid, Status::WRITE_FAULT);
    assert_eq!(rig.failed(), IoErrorKind::Device, "a write is not unreadable");

    rig.read(2, 0, 1);
    for _ in 0..TRIES_MAX {
        let cid = rig.command().cid();
        assert!(rig.done.is_empty());
        rig.answer(cid, Status::TRANSFER_ERROR);
        rig.pass(RETRY_AFTER);
    }
    assert_eq!(rig.failed(), IoErrorKind::Device, "not for ever");
}

/// A temporarily rejected command is repeated for as long as requests are held; then the drive counts as removed.
#[test]
fn what_cannot_be_done_for_now_is_tried_until_requests_are_held_no_longer() {
    for status in [Status::NOT_READY, Status::INACCESSIBLE, Status::INTERRUPTED] {
        let mut rig = Rig::new();
        rig.write(1, 0, &[0; BLOCK]);
        let tries = LOSS_TIME.0 / RETRY_AFTER.0;
        for _ in 0..tries {
            let cid = rig.pdu().command().cid();
            rig.answer(cid, status);
            assert!(rig.done.is_empty(), "{status}");
            rig.pass(RETRY_AFTER);
        }
        assert_eq!(rig.failed(), IoErrorKind::Gone, "{status}");
    }
}

#[test]
fn damaged_data_is_read_again() {
    let mut rig = Rig::with(facts(), BOTH, 8192);
    rig.read(1, 0, 1);
    let cid = rig.command().cid();
    let mut pdu = rig.data_pdu(cid, 0, flag::LAST | flag::SUCCESS, &[3; BLOCK]);
    pdu[100] ^= 1;
    rig.say(&pdu);
    assert!(rig.done.is_empty(), "damaged data is not given to anybody");
    rig.pass(RETRY_AFTER);
    let again = rig.command().cid();
    assert_ne!(again, cid, "it is another command");
    rig.data(again, 0, flag::LAST | flag::SUCCESS, &[4; BLOCK]);
    rig.ended_well(1);
}

/// F30: a change in flight may still be executed after its connection is lost. If it were sent again at once, and
/// another change of the same blocks followed, it could be executed last.
#[test]
fn f30_a_change_is_sent_again_only_when_the_old_association_is_over() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    rig.read(2, 9, 1);
    rig.pdu();
    rig.pdu();
    let (target, _) = UnixStream::pair().expect("sockets");
    rig.target = target;
    rig.poll();
    rig.is_lost_because(Reason::Closed);
    rig.connect(2, 8192);
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.command().opcode(), nvm::opcode::READ, "a read changes nothing");
    rig.write(3, 5, &[3; BLOCK]);
    let new = rig.pdu().command();
    assert_eq!(nvm::Blocks::parse(&new).start, 5, "what was never sent need not wait");
    rig.pass(Nanos(SETTLE.0 - 2 * RETRY_AFTER.0));
    assert!(rig.is_silent(), "the write is held");
    rig.pass(RETRY_AFTER);
    let again = rig.pdu();
    assert_eq!(nvm::Blocks::parse(&again.command()).start, 0);
    assert_eq!(again.data, [1; BLOCK]);
    rig.answer(again.command().cid(), Status::SUCCESS);
    rig.ended_well(1);
}

/// The queue may detect the loss before the thread ends the association.
#[test]
fn f30_a_change_waits_for_the_end_that_the_thread_knows_of() {
    let mut rig = Rig::new();
    rig.write(1, 0, &[1; BLOCK]);
    rig.pdu();
    rig.stop();
    let first = Arc::clone(&rig.life);
    rig.target = rig.use_next(Instance::Same, 2, 8192);
    rig.pass(Nanos::SECOND);
    assert!(rig.is_silent(), "the target may still hear of us");
    rig.read(2, 0, 1);
    assert!(rig.is_silent(), "nobody knows for how long");
    first.end(rig.now.plus(SETTLE));
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.command().opcode(), nvm::opcode::READ);
    rig.pass(Nanos(SETTLE.0 - 2 * RETRY_AFTER.0));
    assert!(rig.is_silent());
    rig.pass(RETRY_AFTER);
    assert_eq!(rig.pdu().data, [1; BLOCK]);
}

#[test]
fn a_target_that_falls_silent_is_left() {
    let mut rig = Rig::new();
    rig.read(1, 0, 1);
    rig.pass(Nanos(ANSWER_TIME_MAX.0 - 1));
    assert!(rig.requests.next().is_err());
    rig.pass(Nanos::SECOND);
    rig.is_lost_because(Reason::Silent);
}

/// The control plane reads labels without a known time: every read failed at once, because it seemed to have been held,
/// or unanswered, since the boot.
#[test]
fn who_does_not_know_the_time_is_not_late() {
    let mut rig = Rig::new();
    rig.pass(LOSS_TIME);
    let now = std::mem::take(&mut rig.now);
    rig.read(1, 0, 1);
    rig.now = now;
    rig.pass(Nanos::SECOND);
    assert!(rig.requests.next().is_err(), "the target has had a second");
    rig.lose();
    let now = std::mem::take(&mut rig.now);
    rig.poll();
    rig.now = now;
    rig.pass(Nanos::SECOND);
    assert!(rig.done.is_empty(), "it was held for a second");
}
