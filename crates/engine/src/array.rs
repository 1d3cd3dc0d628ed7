//! A running array, from the outside.

use std::sync::{Arc, mpsc};

use strake_block::{BlockDevice, ExtentSource};
use strake_ondisk::{AreaLayout, Bitmap};
use strake_raid::{Geometry, MemberState, Regions};
use strake_reactor::{CoreHandle, Poller, PollerId, mailbox};
use strake_units::{MemberIndex, MemberSet, Name, Uuid};

use crate::assemble::Assembled;
use crate::create::Drive;
use crate::error::ArrayError;
use crate::limits::{MAILBOX_DEPTH, SCRATCH_BYTES, TASKS_MAX};
use crate::message::{Change, Control, Reply};
use crate::pacing::Maintenance;
use crate::shard::{Link, Roll, ShardSpec, SharedDevice, drive, view_of};
use crate::shared_status::{MemberHealth, MemberStatus, SharedStatus};

mod control;
mod device;
mod io_limits;
mod life;
mod pending;
mod status;

pub use io_limits::IoLimits;
pub(crate) use life::check_returning;
pub use pending::{Pending, Replacing};
pub use status::{ArrayStatus, Counters, Progress};

use device::ArrayDevice;

/// How an array is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Merge waiting adjacent writes of a band into one plan, and answer waiting reads of a band that need the same
    /// survivors from one reading of them.
    pub merge: bool,
    /// Read around members that are much slower than their peers as long as redundancy allows, and of several copies
    /// the one with the least to do. Otherwise the first copy that can be read is read. Reads that take seconds are
    /// answered from elsewhere in any case.
    pub steer: bool,
    /// Keep parities and data of blocks that are overwritten again and again, so that they are not read each time.
    pub cache: bool,
    /// Memory of each shard for old data, parity and reconstruction, in bytes. However little it is, the largest plan
    /// has room; more lets more plans run at a time.
    pub scratch_bytes: usize,
    /// Bands that each shard works on at a time. How many requests and small writes it takes in follows from that, and
    /// so does most of what a start has to make. However few they are, there is room for maintenance beside clients.
    pub tasks: usize,
    /// How long members may take over one I/O.
    pub io_limits: IoLimits,
    /// How resync and rebuild run from the start on; [`set_maintenance`](Array::set_maintenance) changes it.
    pub maintenance: Maintenance,
}

impl Default for Options {
    fn default() -> Self {
        let (scratch_bytes, tasks) = (SCRATCH_BYTES, TASKS_MAX);
        Self {
            merge: true,
            steer: true,
            cache: true,
            scratch_bytes,
            tasks,
            io_limits: IoLimits::default(),
            maintenance: Maintenance::default(),
        }
    }
}

/// Wakes the core a shard runs on; does nothing where the caller drives the shard.
#[derive(Clone)]
pub(crate) struct Waker(Option<CoreHandle>);

impl Waker {
    pub(crate) fn wake(&self) {
        if let Some(core) = &self.0 {
            core.wake();
        }
    }
}

#[derive(Clone)]
struct ShardHandle {
    control: mpsc::Sender<Control>,
    wake: Waker,
    poller: Option<PollerId>,
}

impl ShardHandle {
    fn tell(&self, control: Control) -> bool {
        let reported = self.control.send(control).is_ok();
        self.wake.wake();
        reported
    }
}

/// A running array.
pub struct Array {
    uuid: Uuid,
    geometry: Geometry,
    regions: Regions,
    shared: Arc<SharedStatus>,
    shards: Vec<ShardHandle>,
    cores: Vec<CoreHandle>,
    /// The areas that each member had when the array was started.
    layouts: Vec<Option<AreaLayout>>,
}

impl Array {
    /// Starts the array on `cores`: shard `i` on `cores[i]`, whose index must be `i`.
    ///
    /// # Errors
    /// When a member cannot be opened on some core; nothing is left running then.
    pub fn start(
        assembled: Assembled,
        cores: &[CoreHandle],
        options: Options,
    ) -> Result<Self, ArrayError> {
        let wakers = cores.iter().map(|core| Waker(Some(core.clone()))).collect();
        let (mut array, specs) = Self::lay_out(assembled, wakers, options);
        array.cores = cores.to_vec();
        for (at, (core, spec)) in cores.iter().zip(specs).enumerate() {
            let started = core.call(move |core| drive(spec).map(|poller| core.add(poller)));
            match started.map_err(|_| ArrayError::gone(&array.name())).and_then(|result| result) {
                Ok(poller) => array.shards[at].poller = Some(poller),
                Err(error) => {
                    array.remove_pollers();
                    return Err(error);
                }
            }
        }
        Ok(array)
    }

    /// Builds the array with `cores` shards for the caller to drive on its own thread: a simulator, a benchmark
    /// or a test. Control operations then need the `begin_` form and turns in between.
    ///
    /// # Errors
    /// When a member cannot be opened.
    pub fn start_here(
        assembled: Assembled,
        cores: u16,
        options: Options,
    ) -> Result<(Self, Vec<Box<dyn Poller>>), ArrayError> {
        let wakers = (0..cores).map(|_| Waker(None)).collect();
        let (array, specs) = Self::lay_out(assembled, wakers, options);
        let pollers = specs.into_iter().map(drive).collect::<Result<Vec<_>, _>>()?;
        Ok((array, pollers))
    }

    fn lay_out(
        assembled: Assembled,
        wakers: Vec<Waker>,
        options: Options,
    ) -> (Self, Vec<ShardSpec>) {
        let cores = wakers.len();
        let untrusted = assembled.untrusted();
        let shared = Arc::new(SharedStatus::new(
            cores,
            assembled.geometry,
            assembled.regions,
            member_statuses(&assembled),
            assembled.superblock.clone(),
            untrusted.iter().map(|r| r.0).collect(),
        ));
        shared.set_maintenance(options.maintenance);
        for region in assembled.bitmaps.of(Bitmap::Written).iter_ones() {
            shared.written.mark(strake_units::RegionIndex(region));
        }
        for slot in (0..assembled.states.len() as u8).map(MemberIndex) {
            let regions = assembled.bitmaps.stale(slot).count_ones();
            shared.set_stale_regions(slot, u64::from(regions));
        }
        shared.set_bad_blocks(Arc::clone(&assembled.bad.list));
        let lacking: Arc<[MemberSet]> = assembled.lacking().into();
        let roll = Arc::new(Roll::of(&assembled.superblock));
        let mut leader = Some(assembled.leader_state());
        let layouts = leader.iter().flat_map(|leader| leader.layouts.clone()).collect();
        let drives = assembled.drives.iter();
        let devices: Vec<_> =
            drives.map(|d| d.as_ref().map(|d| SharedDevice::new(&d.device))).collect();
        let mut shards = Vec::new();
        let mut specs = Vec::new();
        for (at, (wake, links)) in wakers.iter().zip(mesh(&wakers)).enumerate() {
            let (send, control) = mpsc::channel();
            shards.push(ShardHandle { control: send, wake: wake.clone(), poller: None });
            specs.push(ShardSpec {
                core: at as u16,
                cores: cores as u16,
                geometry: assembled.geometry,
                regions: assembled.regions,
                options,
                shared: Arc::clone(&shared),
                control,
                links,
                views: assembled.states.iter().map(|s| view_of(*s)).collect(),
                lacking: Arc::clone(&lacking),
                devices: devices.clone(),
                untrusted: untrusted.clone(),
                leader: leader.take_if(|_| at == 0),
                bad: Arc::clone(&assembled.bad.list),
                roll: Arc::clone(&roll),
                replayed: assembled.replayed,
            });
        }
        let array = Self {
            uuid: assembled.superblock.array,
            geometry: assembled.geometry,
            regions: assembled.regions,
            shared,
            shards,
            cores: Vec::new(),
            layouts,
        };
        (array, specs)
    }

    /// The array's name.
    #[must_use]
    pub fn name(&self) -> Name {
        self.shared.name()
    }

    /// The array's identity.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The newest label that every member in use holds.
    #[must_use]
    pub fn newest_label(&self) -> strake_ondisk::Superblock {
        self.shared.superblock()
    }

    /// True when blocks of members are listed as bad, whether or not data is lost there.
    #[must_use]
    pub fn has_bad_blocks(&self) -> bool {
        !self.shared.bad_blocks().is_empty()
    }

    /// Where on `member` labels of the array may be that are not in front of its data, as byte offsets and bytes. A
    /// device that has become larger since has its tail elsewhere when it is looked at next.
    #[must_use]
    pub fn tails(&self, member: MemberIndex) -> Vec<(u64, u64)> {
        let recorded = self.shared.superblock().members.get(member.at()).map(|row| row.bytes);
        let recorded = recorded.and_then(AreaLayout::of);
        let at_start = self.layouts.get(member.at()).copied().flatten();
        recorded.iter().chain(&at_start).map(AreaLayout::tail_range).collect()
    }

    /// The array as a device.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(ArrayDevice {
            name: self.name(),
            info: self.info(),
            shared: Arc::clone(&self.shared),
            ports: self.shards.iter().map(|s| (s.control.clone(), s.wake.clone())).collect(),
        })
    }

    /// Which of its blocks were ever written.
    #[must_use]
    pub fn extents(&self) -> Arc<dyn ExtentSource> {
        Arc::clone(&self.shared) as Arc<dyn ExtentSource>
    }

    fn check_member(&self, member: MemberIndex) -> Result<(), ArrayError> {
        if member.at() < self.geometry.members() {
            return Ok(());
        }
        let last = self.geometry.members() - 1;
        Err(ArrayError::usage(format!(
            "array {} has members 0 to {last}, not {member}",
            self.name()
        )))
    }

    fn ask(&self, shard: usize, message: impl FnOnce(Reply) -> Control) -> Pending {
        let (reply, answer) = mpsc::channel();
        // A stopped shard drops the reply, which the waiter sees.
        self.shards[shard].tell(message(reply));
        Pending { name: self.name(), answer }
    }

    /// Asks the leader for a change of the labels.
    fn change(&self, change: Change) -> Pending {
        self.ask(0, |reply| Control::Change { change, reply })
    }

    /// Begins to stop: no more maintenance is started and no more writes are taken.
    pub fn begin_quiesce(&self) -> Vec<mpsc::Receiver<()>> {
        let quiesce = |shard: &ShardHandle| {
            let (reply, answer) = mpsc::channel();
            shard.tell(Control::Quiesce { reply });
            answer
        };
        self.shards.iter().map(quiesce).collect()
    }

    /// The same as [`begin_quiesce`](Self::begin_quiesce), but a shard answers when its members owe nothing: no I/O
    /// that was given up because its drive took too long is still under way, however long that takes. What arrives at
    /// a drive later would hit the array that is started from it next.
    #[must_use]
    pub fn begin_drain(&self) -> Vec<mpsc::Receiver<()>> {
        let drain = |shard: &ShardHandle| {
            let (reply, answer) = mpsc::channel();
            shard.tell(Control::Drain { reply });
            answer
        };
        self.shards.iter().map(drain).collect()
    }

    /// Records a clean stop. Only after every shard has answered [`begin_quiesce`](Self::begin_quiesce).
    #[must_use]
    pub fn begin_stop(&self) -> Pending {
        self.change(Change::Stop)
    }

    /// Stops the array in order: finishes what is in flight, records a clean stop, leaves the cores.
    ///
    /// # Errors
    /// When the stop could not be recorded; the array is stopped nevertheless, as after a crash.
    pub fn stop(self) -> Result<(), ArrayError> {
        self.stop_with_members().0
    }

    /// The same, with what its members were like at the end: a stop may cost one that hangs.
    pub fn stop_with_members(mut self) -> (Result<(), ArrayError>, Vec<MemberStatus>) {
        for quiet in self.begin_quiesce() {
            if quiet.recv().is_err() {
                break;
            }
        }
        let stopped = self.begin_stop().wait();
        let members = self.shared.members();
        self.remove_pollers();
        (stopped, members)
    }

    fn remove_pollers(&mut self) {
        for (shard, core) in self.shards.iter_mut().zip(&self.cores) {
            if let Some(poller) = shard.poller.take() {
                // A stopped core has dropped its pollers.
                let _ = core.call(move |core| drop(core.remove(poller)));
            }
        }
    }
}

impl Drop for Array {
    /// Leaves the cores without recording anything: what a crash would leave.
    fn drop(&mut self) {
        self.remove_pollers();
    }
}

fn member_statuses(assembled: &Assembled) -> Vec<MemberStatus> {
    let members = assembled.superblock.members.iter().zip(&assembled.states).zip(&assembled.drives);
    let status = |((record, state), drive): (
        (&strake_ondisk::MemberRecord, &MemberState),
        &Option<Drive>,
    )| {
        let path = drive.as_ref().map(|d| d.path.clone()).unwrap_or_default();
        MemberStatus {
            uuid: record.uuid,
            path,
            replacement: String::new(),
            state: *state,
            cause: None,
            stale_bytes: 0,
            health: MemberHealth::default(),
        }
    };
    members.map(status).collect()
}

/// Mailboxes between every two shards.
fn mesh(wakers: &[Waker]) -> Vec<Vec<Option<Link>>> {
    let count = wakers.len();
    let mut links: Vec<Vec<Option<Link>>> =
        (0..count).map(|_| (0..count).map(|_| None).collect()).collect();
    for a in 0..count {
        for b in a + 1..count {
            let (to_b, from_a) = mailbox(MAILBOX_DEPTH);
            let (to_a, from_b) = mailbox(MAILBOX_DEPTH);
            links[a][b] = Some(Link { send: to_b, receive: from_b, wake: wakers[b].clone() });
            links[b][a] = Some(Link { send: to_a, receive: from_a, wake: wakers[a].clone() });
        }
    }
    links
}
