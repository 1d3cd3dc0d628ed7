//! Scripted worlds: the same drives, clients and oracle, and a script instead of chance.
//!
//! A script defines the events (members fail, drives are removed and return in some order, the power fails), and the
//! seed defines only their interleaving. All calls of a script return `Err` with a message, for a rejection of the
//! array and for a violation. A script that expects a rejection checks its message with [`refused`].

mod labels;
mod operator;
mod people;
mod probe;

use strake_block::{DeallocateReads, VolatileCache};
use strake_engine::{ArrayStatus, AssemblePolicy};
use strake_raid::{Geometry, Level, MemberState, Role};
use strake_units::{BlockSize, Lba, LbaRange, MemberSet, Nanos};

pub use labels::observe;
pub use operator::operate;
pub use people::{ACCEPT_LOSS, DEGRADED, Order};
pub use probe::Clearing;

use super::{Report, Settings, World, panic_text};
use crate::drive::{Crash, DriveSpec, SimDrive};
use crate::faults::Rates;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::trace::Trace;
use probe::Probe;

/// Settle time of a remote drive's target.
const SETTLE_TIME: Nanos = Nanos(8 * Nanos::SECOND.0);

/// The parameters of a scripted world.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The level.
    pub level: Level,
    /// Members of all groups.
    pub members: usize,
    /// Members per group for 50, 60, 70.
    pub group_size: Option<u8>,
    /// Strip in bytes.
    pub strip_bytes: u32,
    /// Strips of one member.
    pub rows: u64,
    /// Block size of each drive; the last one applies to all further drives.
    pub blocks: Vec<BlockSize>,
    /// Whether drives have a volatile cache.
    pub cache: VolatileCache,
    /// The content of deallocated blocks; a new array initializes itself unless they read as zeroes.
    pub deallocate: DeallocateReads,
    /// The number of shards; drawn from the seed if not given.
    pub cores: Option<u16>,
    /// Slots of remote drives.
    pub remote: MemberSet,
}

impl Cast {
    /// A small array of `level` on drives with 4 KiB blocks, a volatile cache, and zeroes.
    #[must_use]
    pub fn new(level: Level, members: usize) -> Self {
        Self {
            level,
            members,
            group_size: None,
            strip_bytes: 16 << 10,
            rows: 64,
            blocks: vec![BlockSize::B4096],
            cache: VolatileCache::Present,
            deallocate: DeallocateReads::Zeroes,
            cores: None,
            remote: MemberSet::EMPTY,
        }
    }

    /// As [`new`](Self::new), with several regions, so that a part of the array can be dirty or stale.
    #[must_use]
    pub fn with_regions(mut self) -> Self {
        self.strip_bytes = 64 << 10;
        self.rows = 800;
        self
    }

    fn drive(&self, at: usize) -> DriveSpec {
        let last = self.blocks.last().copied().unwrap_or(BlockSize::B4096);
        DriveSpec {
            bytes: strake_ondisk::HEAD_BYTES
                + strake_ondisk::TAIL_BYTES
                + self.rows * u64::from(self.strip_bytes),
            block_size: self.blocks.get(at).copied().unwrap_or(last),
            cache: self.cache,
            deallocate: self.deallocate,
            settle_time: if self.remote.contains(at) { SETTLE_TIME } else { Nanos(0) },
        }
    }

    pub(super) fn shape(&self, rng: &mut Rng) -> Shape {
        let cores = self.cores.unwrap_or(rng.between(1, 3) as u16);
        let merge = !rng.one_in(4);
        let clients = usize::from(cores) + rng.below(2) as usize;
        let depth = rng.pick(&[1, 4, 8]);
        Shape {
            level: self.level,
            members: self.members,
            group_size: self.group_size,
            strip_bytes: self.strip_bytes,
            block_size: None,
            drives: (0..self.members).map(|at| self.drive(at)).collect(),
            consistency: strake_engine::Consistency::Safe,
            cores,
            merge,
            // As in `Shape::draw`, without a separate draw.
            steer: merge != (depth == 4),
            cache: merge,
            clients,
            depth,
            rates: Rates::default(),
            requests: 0,
            calm: 1,
        }
    }
}

/// Runs `script` in the world of `seed`.
#[must_use]
pub fn play(
    seed: u64,
    cast: &Cast,
    settings: Settings,
    script: impl Fn(&mut Stage) -> Result<(), String>,
) -> Report {
    let trace = Trace::new(settings.keep, settings.print);
    let mut requests = 0;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut stage = Stage::new(seed, cast, settings, &trace)?;
        let result = script(&mut stage);
        requests = stage.world.next_id;
        result
    }));
    let violation = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    };
    Report { seed, shape: format!("{cast:?}"), violation, trace, requests }
}

/// Checks that an error contains `words`.
///
/// Returns an error if nothing was rejected, or if the message differs.
pub fn refused<T>(result: Result<T, String>, words: &str) -> Result<(), String> {
    match result {
        Ok(_) => Err(format!("was not refused; expected: {words}")),
        Err(said) if said.contains(words) => Ok(()),
        Err(said) => Err(format!("expected {words:?}, but: {said}")),
    }
}

/// A world that follows a script.
pub struct Stage {
    world: World,
    probe: Option<Probe>,
}

impl Stage {
    /// Creates and starts an array of `cast`.
    ///
    /// Returns the reason why it cannot be created.
    pub fn new(seed: u64, cast: &Cast, settings: Settings, trace: &Trace) -> Result<Self, String> {
        let mut rng = Rng::new(seed);
        let shape = cast.shape(&mut rng);
        Self::of_shape(&shape, rng, settings, trace)
    }

    fn of_shape(
        shape: &Shape,
        rng: Rng,
        settings: Settings,
        trace: &Trace,
    ) -> Result<Self, String> {
        let world = World::new(shape, rng, settings, trace)?;
        let mut stage = Self { world, probe: None };
        stage.open_probe()?;
        Ok(stage)
    }

    /// The array's geometry.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.world.geometry
    }

    /// The current or last drive of the member of `slot`.
    #[must_use]
    pub fn drive(&self, slot: usize) -> SimDrive {
        self.world.drives[slot].clone()
    }

    /// The drives of all members, by slot.
    #[must_use]
    pub fn drives(&self) -> Vec<SimDrive> {
        self.world.drives.clone()
    }

    /// A random number, for choices of scripts.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.world.rng.below(bound)
    }

    /// Shuffles `items`.
    pub fn shuffled<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        self.world.rng.shuffle(&mut items);
        items
    }

    /// The status of the array.
    #[must_use]
    pub fn status(&self) -> ArrayStatus {
        self.world.array().status()
    }

    /// Every member's state.
    #[must_use]
    pub fn states(&self) -> Vec<MemberState> {
        self.world.states()
    }

    /// Members that are not in sync, by slot.
    #[must_use]
    pub fn out(&self) -> Vec<usize> {
        let states = self.states().into_iter().enumerate();
        states.filter(|(_, state)| *state != MemberState::InSync).map(|(slot, _)| slot).collect()
    }

    /// Lets clients submit `requests` random requests, waits for all completions, and checks each.
    ///
    /// Returns the first violation.
    pub fn work(&mut self, requests: u64) -> Result<(), String> {
        self.begin_work(requests)?;
        self.settle()
    }

    /// Lets clients submit `requests` requests and returns while the last of them are in flight.
    ///
    /// Returns the first violation.
    pub fn begin_work(&mut self, requests: u64) -> Result<(), String> {
        self.world.left = requests;
        self.world.run_until("requests to be made", |world| world.left == 0)
    }

    /// Lets clients submit `requests` requests from now on, during the next steps of the script.
    pub fn load(&mut self, requests: u64) {
        self.world.left = requests;
        self.world.wake_all();
    }

    /// Waits for all completions.
    ///
    /// Returns the first violation, or a missing completion.
    pub fn settle(&mut self) -> Result<(), String> {
        self.world.run_until("requests to be answered", |w| w.left == 0 && w.outstanding() == 0)
    }

    /// Runs the world for this number of rounds.
    ///
    /// Returns the first violation.
    pub fn turns(&mut self, turns: u64) -> Result<(), String> {
        self.world.wake_all();
        for _ in 0..turns {
            self.world.round()?;
            self.world.now = self.world.now.plus(Nanos::MICRO);
            self.world.trace.set_now(self.world.now);
        }
        Ok(())
    }

    /// Lets time pass.
    ///
    /// Returns the first violation.
    pub fn pass(&mut self, time: Nanos) -> Result<(), String> {
        let until = self.world.now.plus(time);
        self.world.run_until_time(until)
    }

    /// Waits until `done` accepts the status of the array.
    ///
    /// Returns an error if this never happens.
    pub fn wait(&mut self, what: &str, done: impl Fn(&ArrayStatus) -> bool) -> Result<(), String> {
        self.world.run_until(what, |world| done(&world.array().status()))
    }

    /// Waits until no rebuild or resync is in progress.
    ///
    /// Returns an error if one does not finish, or stalls.
    pub fn wait_maintenance(&mut self) -> Result<(), String> {
        self.world.wait_for_maintenance()
    }

    /// Checks that every member is in sync and no maintenance is left, also after a restart, and that data matches the
    /// writes and parity and copies match the textbook encoder, twice.
    ///
    /// Returns the violation.
    pub fn all_is_well(&mut self) -> Result<(), String> {
        self.settle()?;
        self.wait_maintenance()?;
        if !self.out().is_empty() {
            return Err(format!("not everybody is in sync: {:?}", self.states()));
        }
        for _ in 0..2 {
            self.read_back()?;
            self.stop()?;
            self.check_parity()?;
            self.restart()?;
        }
        Ok(())
    }

    /// Reads every block that was written at any time, and compares.
    ///
    /// Returns the first violation.
    pub fn read_back(&mut self) -> Result<(), String> {
        self.world.read_everything()
    }

    /// Compares parity and copies on the drives with a textbook encoder.
    ///
    /// # Errors
    /// Returns the first difference.
    pub fn check_parity(&self) -> Result<(), String> {
        let drives = &self.world.drives;
        crate::textbook::verify(&self.world.shape.placement(), &|member, at| {
            drives[member].page(at)
        })
    }

    /// Stops the array cleanly.
    ///
    /// Returns an error if the stop was not recorded, or if a request did not complete.
    pub fn stop(&mut self) -> Result<(), String> {
        self.settle()?;
        self.probe = None;
        self.world.stop().map(drop)
    }

    /// Crashes the host.
    pub fn crash(&mut self, crash: Crash) {
        self.world.trace.event(&[60, crash as u64], || format!("script: {crash:?}"));
        self.world.settle_doubts();
        let stripes = self.world.unsettled_stripes(crash);
        self.world.doubts.add(stripes);
        self.world.recovering = true;
        self.world.killed = true;
        self.world.drives.iter().chain(&self.world.retired).for_each(|drive| drive.crash(crash));
        self.probe = None;
        self.world.running = None;
        self.world.asked.clear();
        self.world.left = 0;
        self.world.oracle.crash(crash);
    }

    /// Starts the array with all members' drives, which must be sufficient.
    ///
    /// Returns the reason why it does not start.
    pub fn restart(&mut self) -> Result<(), String> {
        let drives = self.drives();
        let here: Vec<SimDrive> = drives.into_iter().filter(|drive| !drive.is_gone()).collect();
        self.start(&here, AssemblePolicy::default())
    }

    /// Reads `range` and returns the result of the array; the data is checked.
    ///
    /// Returns a violation. An error of the array is the inner result.
    pub fn read(&mut self, range: LbaRange) -> Result<Result<(), strake_block::IoError>, String> {
        let mut probe = self.probe.take().ok_or("nothing runs")?;
        let result = probe.read(&mut self.world, range);
        self.probe = Some(probe);
        result
    }

    /// Writes `range` and returns the result of the array.
    ///
    /// Returns a violation. An error of the array is the inner result.
    pub fn write(&mut self, range: LbaRange) -> Result<Result<(), strake_block::IoError>, String> {
        let mut probe = self.probe.take().ok_or("nothing runs")?;
        let result = probe.write(&mut self.world, range);
        self.probe = Some(probe);
        result
    }

    /// Zeroes or deallocates `range`, which must succeed.
    ///
    /// Returns the error or the violation.
    pub fn clear(&mut self, range: LbaRange, how: Clearing) -> Result<(), String> {
        let mut probe = self.probe.take().ok_or("nothing runs")?;
        let result = probe.clear(&mut self.world, range, how);
        self.probe = Some(probe);
        result?.map_err(|error| error.to_string())
    }

    /// Connects another client, on any core, which replaces the client of the script.
    ///
    /// Returns an error if the array accepts no client.
    pub fn reconnect(&mut self) -> Result<(), String> {
        self.open_probe()
    }

    /// The slot and the byte offset on its drive of copy `copy` of a block.
    #[must_use]
    pub fn where_is(&self, lba: Lba, copy: u8) -> (usize, u64) {
        let geometry = &self.world.geometry;
        let place = geometry.place(lba);
        let role = Role::Data { strip: place.strip, copy };
        let position = geometry.position(place.stripe, role);
        let slot = geometry.member(place.stripe, position).at();
        let at = geometry.member_lba(place.stripe, place.offset).bytes(geometry.block_size());
        (slot, strake_ondisk::HEAD_BYTES + at)
    }

    /// Permits failed requests from now on, because the script removes more members than the array tolerates. The next
    /// start ends this.
    pub fn expect_loss(&mut self) {
        self.world.lost = true;
    }

    /// The permitted content of every block, for [`recall`](Self::recall) when the script returns to this history.
    #[must_use]
    pub fn memory(&self) -> Oracle {
        self.world.oracle.clone()
    }

    /// Continues with another history of the array.
    pub fn recall(&mut self, memory: &Oracle) {
        self.world.oracle = memory.clone();
    }

    fn open_probe(&mut self) -> Result<(), String> {
        self.probe = Some(Probe::open(&self.world)?);
        Ok(())
    }
}
