//! A small world: RAM drives, one array, one client, and time that moves a microsecond per round.

use std::sync::Arc;

use strake_block::{
    BlockDevice, BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_mem::RamDevice;
use strake_engine::{
    Array, AssemblePolicy, Assembled, CreateSpec, Drive, Ids, MemberIo, Options, Outcome, assemble,
    create, plan_create, prepare_drive,
};
use strake_raid::{Level, MemberState};
use strake_reactor::Poller;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos, Uuid};

const DRIVE_BYTES: u64 = 48 << 20;
/// Rounds after which a world that does not answer counts as hung.
const PATIENCE: u64 = 20_000_000;

pub struct World {
    drives: Vec<Drive>,
    spares: u32,
    array: Option<Array>,
    pollers: Vec<Box<dyn Poller>>,
    queue: Option<Box<dyn IoQueue>>,
    batch: CompletionBatch,
    now: Nanos,
    cores: u16,
    options: Options,
    model: Vec<u8>,
    random: u64,
    uuids: u8,
}

pub fn drive(number: u32) -> Drive {
    // The end of a drive need not be a multiple of 4 KiB.
    let blocks = (DRIVE_BYTES >> 9) + u64::from(number % 8);
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(blocks, BlockSize::B512));
    Drive { device, path: format!("ram{number}") }
}

/// Creates an array named `tank` on RAM drives.
pub fn created(level: Level, members: usize, group_size: Option<u8>) -> (Vec<Drive>, Assembled) {
    let drives: Vec<Drive> = (0..members as u32).map(drive).collect();
    let spec = CreateSpec {
        name: "tank".parse().expect("a name"),
        level,
        group_size,
        strip_bytes: 16 << 10,
        block_size: None,
        consistency: strake_engine::Consistency::Safe,
    };
    let plan = plan_create(&spec, &drives).expect("the request is sound");
    let ids = Ids {
        array: Uuid([1; 16]),
        epoch: Uuid([2; 16]),
        members: (0..members as u8).map(|i| Uuid([100 + i; 16])).collect(),
    };
    let mut wait = || Some(Nanos(0));
    let assembled = create(&plan, drives.clone(), &ids, false, &mut wait).expect("drives work");
    (drives, assembled)
}

impl World {
    pub fn new(
        level: Level,
        members: usize,
        group_size: Option<u8>,
        cores: u16,
        options: Options,
    ) -> Self {
        let (drives, assembled) = created(level, members, group_size);
        let mut world = Self {
            drives,
            spares: members as u32,
            array: None,
            pollers: Vec::new(),
            queue: None,
            batch: CompletionBatch::new(64),
            now: Nanos(0),
            cores,
            options,
            model: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            uuids: 200,
        };
        world.start(assembled);
        let blocks = world.array.as_ref().map_or(0, |array| array.device().info().blocks);
        world.model = vec![0; (blocks << 9).min(24 << 20) as usize];
        world
    }

    fn start(&mut self, assembled: Assembled) {
        let (array, pollers) =
            Array::start_here(assembled, self.cores, self.options).expect("drives open");
        let queue =
            array.device().open_queue(CoreIndex(self.cores - 1), 64).expect("a queue opens");
        self.array = Some(array);
        self.pollers = pollers;
        self.queue = Some(queue);
    }

    /// The end of each member whose labels were written over.
    pub fn overwritten(&self) -> Vec<Option<strake_ondisk::Copy>> {
        let end = |drive: &Drive| {
            let mut wait = || Some(Nanos(0));
            let mut io = MemberIo::open(drive, &mut wait).expect("it opens");
            assert!(matches!(io.written_over(), Ok(None)));
            io.overwritten().expect("it can be read")
        };
        self.drives.iter().map(end).collect()
    }

    fn round(&mut self) {
        self.now = self.now.plus(Nanos(1000));
        for poller in &mut self.pollers {
            poller.turn(self.now);
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Runs a batch of operations at once and waits for all of them.
    fn run(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let mut waiting: Vec<Option<Op>> = ops.into_iter().map(Some).collect();
        let mut done: Vec<Option<Op>> = waiting.iter().map(|_| None).collect();
        let mut next = 0;
        for _ in 0..PATIENCE {
            let queue = self.queue.as_mut().expect("running");
            while next < waiting.len() {
                let op = waiting[next].take().expect("not sent yet");
                if let Err(back) = queue.submit(Io { token: Token(next as u64), op }) {
                    waiting[next] = Some(back.op);
                    break;
                }
                next += 1;
            }
            queue.ring_doorbell(self.now);
            self.round();
            let now = self.now;
            self.queue.as_mut().expect("running").poll(now, &mut self.batch);
            for completion in self.batch.drain() {
                assert_eq!(completion.result, Ok(()), "{:?}", completion.op);
                done[completion.token.0 as usize] = Some(completion.op);
            }
            if done.iter().all(Option::is_some) {
                return done.into_iter().flatten().collect();
            }
        }
        panic!(
            "the array hangs: {} of {} operations are back",
            done.iter().flatten().count(),
            done.len()
        );
    }

    /// Random writes, zeroes and deallocations, several at a time; no two of a batch overlap.
    pub fn scribble(&mut self, count: u64) {
        let blocks = self.model.len() as u64 >> 9;
        for _ in 0..count / 8 + 1 {
            let mut ops: Vec<Op> = Vec::new();
            let mut taken: Vec<LbaRange> = Vec::new();
            for _ in 0..8 {
                let longest = [8, 40, 300, 2000][self.random(4) as usize];
                let length = 1 + self.random(longest);
                let range = LbaRange::new(Lba(self.random(blocks - length)), length);
                if taken.iter().any(|other| other.overlaps(range)) {
                    continue;
                }
                taken.push(range);
                ops.push(self.change(range));
            }
            self.run(ops);
            self.run(vec![Op::Flush]);
        }
    }

    fn change(&mut self, range: LbaRange) -> Op {
        let bytes = (range.start.0 << 9) as usize..(range.end().0 << 9) as usize;
        if self.random(10) == 0 {
            self.model[bytes].fill(0);
            return Op::WriteZeroes { range, durability: Durability::Normal };
        }
        let mut buf = BufMut::alone(bytes.len());
        for chunk in buf.as_mut_slice().chunks_mut(8) {
            let value = self.random(u64::MAX);
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
        self.model[bytes].copy_from_slice(buf.as_slice());
        let durability = if self.random(8) == 0 { Durability::Fua } else { Durability::Normal };
        Op::Write { at: range.start, data: Sg::from(buf.freeze()), durability }
    }

    /// Reads everything back in pieces of changing size.
    pub fn verify(&mut self) {
        let blocks = self.model.len() as u64 >> 9;
        let mut at = 0;
        while at < blocks {
            let mut ops = Vec::new();
            let mut expected = Vec::new();
            while ops.len() < 32 && at < blocks {
                let length = (1 + self.random(700)).min(blocks - at);
                ops.push(Op::Read {
                    at: Lba(at),
                    data: SgMut::from(BufMut::alone((length << 9) as usize)),
                });
                expected.push((at << 9) as usize..((at + length) << 9) as usize);
                at += length;
            }
            for (op, range) in self.run(ops).into_iter().zip(expected) {
                let Op::Read { data, .. } = op else {
                    panic!("a read came back as something else")
                };
                let data = data.into_single().expect("one buffer");
                let wrong =
                    strake_parity::first_difference(data.as_slice(), &self.model[range.clone()]);
                assert_eq!(wrong, None, "bytes {range:?}");
            }
        }
    }

    fn wait_for(&mut self, what: &str, mut until: impl FnMut(&mut Self) -> bool) {
        for _ in 0..PATIENCE {
            if until(self) {
                return;
            }
            self.round();
        }
        panic!("{what} does not happen: {:?}", self.array.as_ref().map(Array::status));
    }

    pub fn fail(&mut self, member: u8) {
        let mut pending = self
            .array
            .as_ref()
            .expect("running")
            .begin_fail(MemberIndex(member))
            .expect("a member");
        let mut answer = None;
        self.wait_for("failing", |_| {
            answer = pending.poll();
            answer.is_some()
        });
        answer.flatten_ok();
    }

    pub fn replace(&mut self, member: u8) {
        let drive = drive(self.spares);
        self.spares += 1;
        self.uuids += 1;
        let uuid = Uuid([self.uuids; 16]);
        prepare_drive(&drive, uuid, &mut || Some(Nanos(0))).expect("the drive works");
        let array = self.array.as_ref().expect("running");
        let mut replacing =
            array.begin_replace(MemberIndex(member), &drive, uuid).expect("it fits");
        self.drives[usize::from(member)] = drive;
        let mut answer = None;
        self.wait_for("replacing", |_| {
            answer = replacing.poll();
            answer.is_some()
        });
        answer.flatten_ok();
    }

    pub fn wait_healthy(&mut self) {
        self.wait_for("rebuilding", |world| {
            let status = world.array.as_ref().expect("running").status();
            status.members.iter().all(|m| m.state == MemberState::InSync)
        });
    }

    /// Stops in order and assembles again from the drives in another order.
    pub fn restart(&mut self) {
        let mut quiet = self.array.as_ref().expect("running").begin_quiesce();
        self.wait_for("falling quiet", |_| {
            quiet.retain(|q| q.try_recv().is_err());
            quiet.is_empty()
        });
        let mut pending = self.array.as_ref().expect("running").begin_stop();
        let mut answer = None;
        self.wait_for("stopping", |_| {
            answer = pending.poll();
            answer.is_some()
        });
        answer.flatten_ok();
        self.assemble();
    }

    /// Drops everything where it stands.
    pub fn crash(&mut self) {
        self.assemble();
    }

    fn assemble(&mut self) {
        self.queue = None;
        self.array = None;
        self.pollers.clear();
        let mut shuffled = self.drives.clone();
        shuffled.reverse();
        self.uuids += 1;
        let fresh = self.uuids;
        let (mut outcomes, unreadable) = assemble(
            &shuffled,
            AssemblePolicy::default(),
            &|_, _| true,
            &mut || Uuid([fresh; 16]),
            &mut || Some(Nanos(0)),
        );
        assert!(unreadable.is_empty(), "{unreadable:?}");
        match outcomes.pop() {
            Some(Outcome::Ready(assembled)) => self.start(*assembled),
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => panic!("{what}"),
            None => panic!("no array was found"),
        }
    }
}

trait FlattenOk {
    fn flatten_ok(self);
}

impl FlattenOk for Option<Result<(), strake_engine::ArrayError>> {
    fn flatten_ok(self) {
        if let Some(Err(error)) = self {
            panic!("{error}");
        }
    }
}
