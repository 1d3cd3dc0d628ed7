//! What a pool lies on: a drive, or an array of drives.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use strake_block::BlockDevice;
use strake_dev_mem::{FaultPlan, Faulty, MemSpec, RamDevice};
use strake_engine::{
    Array, AssemblePolicy, Consistency, CreateSpec, Drive as Member, Ids, Options, Outcome,
    assemble, create, plan_create,
};
use strake_raid::Level;
use strake_reactor::Poller;
use strake_testkit::Chance;
use strake_units::{BlockSize, MemberIndex, Nanos, Uuid};

use super::world::{Drive, wait};

/// A device below a pool, whose power can be cut.
pub(super) trait Below {
    /// The device.
    fn device(&self) -> Arc<dyn BlockDevice>;

    /// Takes a turn.
    fn turn(&self, now: Nanos);

    /// Ends without a shutdown, as kill -9 does.
    fn end(&mut self) {}

    /// Cuts the power after the end. The seed decides which writes in caches survive.
    fn power_cut(&self, seed: u64);

    /// Writes of the ended process are executed. Without this, no queue reports them to the model of a cache.
    fn settle(&self);

    /// Starts again after the end.
    fn start(&mut self) {}

    /// Loses a member, if it has one to lose.
    fn lose_member(&mut self) {}
}

impl Below for Drive {
    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(self) as Arc<dyn BlockDevice>
    }

    fn turn(&self, _now: Nanos) {}

    fn power_cut(&self, seed: u64) {
        self.plan().power_cut(seed, None);
    }

    fn settle(&self) {
        Faulty::settle(self, &mut wait()).expect("the drive is written");
    }
}

/// The shards of an array, which also turn while a start waits for the array.
type Shards = Rc<RefCell<Vec<Box<dyn Poller>>>>;

/// An array of drives with volatile caches.
pub(super) struct Raid {
    disks: Vec<Drive>,
    array: Option<Array>,
    shards: Shards,
    epochs: u8,
    chance: Chance,
    is_degraded: bool,
}

impl Raid {
    pub(super) fn new(level: Level, members: u8, bytes: u64, seed: u64) -> Self {
        let disk = |at: u8| {
            let spec = MemSpec::new(bytes >> 12, BlockSize::B4096);
            let plan = FaultPlan::new(seed + u64::from(at)).with_cache();
            Arc::new(Faulty::new(RamDevice::with_spec(spec), plan))
        };
        let disks: Vec<Drive> = (0..members).map(disk).collect();
        let spec = CreateSpec {
            name: "below".parse().expect("a name"),
            level,
            group_size: None,
            strip_bytes: 64 << 10,
            block_size: None,
            consistency: Consistency::Safe,
        };
        let (array, shards) = (None, Rc::new(RefCell::new(Vec::new())));
        let chance = Chance::new(seed);
        let mut raid = Self { disks, array, shards, epochs: 10, chance, is_degraded: false };
        let drives = raid.members();
        let plan = plan_create(&spec, &drives).expect("a sound array");
        let members = (0..members).map(|at| Uuid([100 + at; 16])).collect();
        let ids = Ids { array: Uuid([1; 16]), epoch: Uuid([2; 16]), members };
        let made = create(&plan, drives, &ids, true, &mut wait()).expect("the array is created");
        raid.run(made);
        raid
    }

    fn members(&self) -> Vec<Member> {
        let member = |(at, disk): (usize, &Drive)| Member {
            device: Arc::clone(disk) as Arc<dyn BlockDevice>,
            path: format!("ram{at}"),
        };
        self.disks.iter().enumerate().map(member).collect()
    }

    fn run(&mut self, assembled: strake_engine::Assembled) {
        let options = Options { tasks: 64, ..Options::default() };
        let (array, shards) = Array::start_here(assembled, 1, options).expect("drives open");
        self.array = Some(array);
        *self.shards.borrow_mut() = shards;
    }
}

impl Below for Raid {
    fn device(&self) -> Arc<dyn BlockDevice> {
        self.array.as_ref().expect("the array runs").device()
    }

    fn turn(&self, now: Nanos) {
        for shard in self.shards.borrow_mut().iter_mut() {
            shard.turn(now);
        }
    }

    fn end(&mut self) {
        self.array = None;
        self.shards.borrow_mut().clear();
    }

    fn power_cut(&self, seed: u64) {
        for (disk, seed) in self.disks.iter().zip(seed..) {
            disk.plan().power_cut(seed, None);
        }
    }

    fn settle(&self) {
        for disk in &self.disks {
            Faulty::settle(disk, &mut wait()).expect("the drive is written");
        }
    }

    fn start(&mut self) {
        let policy = AssemblePolicy { allow_degraded: true, accept_loss: false };
        self.epochs += 1;
        let epoch = self.epochs;
        let mut fresh = || Uuid([epoch; 16]);
        let members = self.members();
        let (mut found, _) = assemble(&members, policy, &|_, _| true, &mut fresh, &mut wait());
        match found.pop() {
            Some(Outcome::Ready(assembled)) => self.run(*assembled),
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => panic!("{what}"),
            None => panic!("the array is lost"),
        }
    }

    fn lose_member(&mut self) {
        if std::mem::replace(&mut self.is_degraded, true) {
            return;
        }
        let member = MemberIndex(self.chance.below(self.disks.len()) as u8);
        let array = self.array.as_ref().expect("the array runs");
        let mut failing = array.begin_fail(member).expect("redundancy remains");
        let mut now = 1 << 40;
        while failing.poll().is_none() {
            now += 1000;
            self.turn(Nanos(now));
        }
    }
}
