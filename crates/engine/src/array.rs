//! The interface of a running array.

use std::sync::{Arc, mpsc};

use strake_block::{BlockDevice, ExtentSource};
use strake_ondisk::{AreaLayout, Bitmap};
use strake_raid::{Geometry, MemberState, Regions};
use strake_reactor::{CoreHandle, Poller, PollerId, beside, mailbox};
use strake_units::{MemberIndex, MemberSet, Name, Uuid};

use crate::assemble::Assembled;
use crate::drive::Drive;
use crate::error::ArrayError;
use crate::limits::{MAILBOX_DEPTH, SCRATCH_BYTES, TASKS_MAX};
use crate::message::{Change, Control, Reply};
use crate::pacing::Maintenance;
use crate::roll::Roll;
use crate::shard::{Link, ShardSpec, buffers_of, drive, view_of};
use crate::shared_device::SharedDevice;
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

/// Options of a running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Merge waiting adjacent writes of a band into one plan. Answer waiting reads of a band that need the same
    /// survivors with one read of the survivors.
    pub merge: bool,
    /// Avoid reads from members that are much slower than their peers as long as redundancy allows, and read the copy
    /// whose member has the fewest outstanding I/Os. Otherwise, the first readable copy is read. In any case, other
    /// members answer reads that take seconds.
    pub steer: bool,
    /// Cache parities and data of blocks that are overwritten repeatedly, so that later writes need not read them.
    pub cache: bool,
    /// Memory of each shard for old data, parity and reconstruction, in bytes. The minimum is sufficient for the
    /// largest plan. More memory allows more concurrent plans.
    pub scratch_bytes: usize,
    /// Maximum number of bands in progress on each shard. This number determines the capacity for requests and small
    /// writes, and most of the memory that a start allocates. Maintenance always has capacity beside clients.
    pub tasks: usize,
    /// Time limits of one I/O of a member.
    pub io_limits: IoLimits,
    /// Initial settings of resync and rebuild; [`set_maintenance`](Array::set_maintenance) changes it.
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

/// Wakes the core of a shard. Does nothing if the caller drives the shard.
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
    /// The areas of each member when the array was started.
    layouts: Vec<Option<AreaLayout>>,
}

impl Array {
    /// Starts the array on `cores`: shard `i` on `cores[i]`, whose index must be `i`.
    ///
    /// # Errors
    /// If a member cannot be opened on some core. The array is then not running on any core.
    pub fn start(
        assembled: Assembled,
        cores: &[CoreHandle],
        options: Options,
    ) -> Result<Self, ArrayError> {
        let wakers = cores.iter().map(|core| Waker(Some(core.clone()))).collect();
        let buffers = beside(cores, || buffers_of(&assembled.geometry, &options));
        let (mut array, specs) = Self::lay_out(assembled, wakers, options);
        array.cores = cores.to_vec();
        for (at, ((core, spec), buffers)) in cores.iter().zip(specs).zip(buffers).enumerate() {
            let started =
                core.call(move |core| drive(spec, buffers).map(|poller| core.add(poller)));
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

    /// Builds the array with `cores` shards that the caller drives on its own thread, for a simulator, a benchmark or a
    /// test. For control operations, the caller uses the `begin_` form and drives the shards until the answer arrives.
    ///
    /// # Errors
    /// If a member cannot be opened.
    pub fn start_here(
        assembled: Assembled,
        cores: u16,
        options: Options,
    ) -> Result<(Self, Vec<Box<dyn Poller>>), ArrayError> {
        let wakers = (0..cores).map(|_| Waker(None)).collect();
        let (array, specs) = Self::lay_out(assembled, wakers, options);
        let build = |spec: ShardSpec| drive(spec, buffers_of(&array.geometry, &options));
        let pollers = specs.into_iter().map(build).collect::<Result<Vec<_>, _>>()?;
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

    /// Returns the name of the array.
    #[must_use]
    pub fn name(&self) -> Name {
        self.shared.name()
    }

    /// Returns the identity of the array.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Returns the geometry of the array.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the newest label that every member in use has.
    #[must_use]
    pub fn newest_label(&self) -> strake_ondisk::Superblock {
        self.shared.superblock()
    }

    /// True if the list of bad blocks is not empty. Listed blocks do not imply lost data.
    #[must_use]
    pub fn has_bad_blocks(&self) -> bool {
        !self.shared.bad_blocks().is_empty()
    }

    /// Byte ranges on `member` after the data area that may contain labels of the array: byte offsets and lengths. If
    /// the device has grown since the start, the next start finds the tail ring at another offset.
    #[must_use]
    pub fn tails(&self, member: MemberIndex) -> Vec<(u64, u64)> {
        let recorded = self.shared.superblock().members.get(member.at()).map(|row| row.bytes);
        let recorded = recorded.and_then(AreaLayout::of);
        let at_start = self.layouts.get(member.at()).copied().flatten();
        recorded.iter().chain(&at_start).map(AreaLayout::tail_range).collect()
    }

    /// Returns the array as a block device.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(ArrayDevice {
            name: self.name(),
            info: self.info(),
            shared: Arc::clone(&self.shared),
            ports: self.shards.iter().map(|s| (s.control.clone(), s.wake.clone())).collect(),
        })
    }

    /// Returns the source of the blocks that were ever written.
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
        // A stopped shard drops the reply, and the waiter gets an error.
        self.shards[shard].tell(message(reply));
        Pending { name: self.name(), answer }
    }

    /// Requests a change of the labels from the leader.
    fn change(&self, change: Change) -> Pending {
        self.ask(0, |reply| Control::Change { change, reply })
    }

    /// Starts a stop: the shards start no more maintenance and accept no more writes.
    pub fn begin_quiesce(&self) -> Vec<mpsc::Receiver<()>> {
        let quiesce = |shard: &ShardHandle| {
            let (reply, answer) = mpsc::channel();
            shard.tell(Control::Quiesce { reply });
            answer
        };
        self.shards.iter().map(quiesce).collect()
    }

    /// Like [`begin_quiesce`](Self::begin_quiesce), but a shard answers only when its members have completed all I/Os,
    /// including I/Os that were abandoned after their time limit. A write that reaches a drive later would damage the
    /// array that is started from the drive next.
    #[must_use]
    pub fn begin_drain(&self) -> Vec<mpsc::Receiver<()>> {
        let drain = |shard: &ShardHandle| {
            let (reply, answer) = mpsc::channel();
            shard.tell(Control::Drain { reply });
            answer
        };
        self.shards.iter().map(drain).collect()
    }

    /// Records a clean shutdown. The caller must first wait until every shard has answered
    /// [`begin_quiesce`](Self::begin_quiesce).
    #[must_use]
    pub fn begin_stop(&self) -> Pending {
        self.change(Change::Stop)
    }

    /// Stops the array: completes all requests in progress, records a clean shutdown, and removes the array from the
    /// cores.
    ///
    /// # Errors
    /// If the clean shutdown could not be recorded. The array is stopped nevertheless, and the next start is as after a
    /// crash.
    pub fn stop(self) -> Result<(), ArrayError> {
        self.stop_with_members().0
    }

    /// Stops the array like [`stop`](Self::stop), and returns the status of the members at the end, because an
    /// unresponsive member may fail during the stop.
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
    /// Removes the array from the cores without recording anything, as after a crash.
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

/// Creates mailboxes between every two shards.
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
