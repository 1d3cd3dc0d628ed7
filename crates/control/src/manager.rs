//! What the control plane owns, and how it starts and stops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity};
use strake_api::v1::{Core, Daemon, Problem, SystemStatus};
use strake_dev_uring::{Machine, inherit_nothing};
use strake_engine::{Array, Drive, IoLimits, Recovery};
use strake_reactor::{CoreConfig, CoreHandle, CoreThread, Pinning, monotonic};
use strake_units::{CoreIndex, Uuid};

use crate::appeared::Listed;
use crate::crowds::Crowd;
use crate::drives::Drives;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Events, Note, WallClock};
use crate::files::StateFolder;
use crate::grow::Growth;
use crate::hooks::Hooks;
use crate::lost::Loss;
use crate::member_config::Written;
use crate::newest::Newest;
use crate::offline::Offline;
use crate::prospects::{Prospect, Sight};
use crate::readd::PathKey;
use crate::remote::Remotes;
use crate::remote::past::Past;
use crate::replacement::Replacement;
use crate::returns::Returns;
use crate::scrub::KeptScrub;
use crate::servers::ExportServer;
use crate::sick::Sick;
use crate::spares::SpareState;
use crate::starting::Starting;
use crate::store::{Config, Settings, Store};
use crate::view::Meters;
use crate::watch::Seen;

/// Most data cores: beyond it, an array's shards have more mailboxes than stripes in flight.
const CORES_MAX: usize = 64;

/// Which CPUs get a data core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreChoice {
    /// Half of the CPUs this process may use, at least one: the other half serves clients and everything else.
    Auto,
    /// These, by the kernel's numbers.
    Cpus(Vec<usize>),
}

impl std::str::FromStr for CoreChoice {
    type Err = String;

    /// Reads `auto`, or CPU numbers with commas and ranges: `0,2,4-7`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let bad = || {
                format!(
                    "{part:?} is not a CPU number; write numbers and ranges, such as 0,2,4-7, or auto"
                )
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| bad())?;
            let last: usize = last.trim().parse().map_err(|_| bad())?;
            if first > last || last >= CpuSet::MAX_CPU {
                return Err(bad());
            }
            cpus.extend(first..=last);
            if cpus.len() > CORES_MAX {
                return Err(format!("at most {CORES_MAX} data cores"));
            }
        }
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != cpus.len() {
            return Err("a CPU is named twice; every data core needs one of its own".to_owned());
        }
        Ok(Self::Cpus(cpus))
    }
}

/// How the manager is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the data cores run.
    pub cores: CoreChoice,
    /// How long an array waits for missing members before it is started without them; `None` for ever.
    pub assemble_timeout: Option<Duration>,
    /// How long drives may take over one I/O.
    pub io_limits: IoLimits,
    /// Where the times of events come from.
    pub clock: WallClock,
    /// Whose drives there are; a test lays out another machine in a folder.
    pub machine: Machine,
}

impl Default for Options {
    /// Cores of its own choice, waiting for ever, the machine's clock and drives.
    fn default() -> Self {
        Self {
            cores: CoreChoice::Auto,
            assemble_timeout: None,
            io_limits: IoLimits::default(),
            clock: WallClock::default(),
            machine: Machine::default(),
        }
    }
}

impl Options {
    /// How an array with `settings` is run.
    pub(crate) fn of_array(&self, settings: &Settings) -> strake_engine::Options {
        let maintenance = settings.maintenance();
        strake_engine::Options { io_limits: self.io_limits, maintenance, ..Default::default() }
    }
}

/// An array that runs.
pub(crate) struct Running {
    pub(crate) array: Array,
    /// The drive in each slot, the failed ones too until they are replaced.
    pub(crate) drives: Vec<Option<Drive>>,
    /// The drive that is to take the place of one of them, while it is being filled.
    pub(crate) replacement: Option<Replacement>,
    /// Made in this run, so that a resync is its first initialization.
    pub(crate) fresh: bool,
    pub(crate) resync_bytes_at_start: u64,
    /// What its start found of a crash.
    pub(crate) recovery: Recovery,
    pub(crate) meters: Meters,
    /// What was last recorded of its scrub.
    pub(crate) scrub: KeptScrub,
    /// While room is made on its members for it to grow: how far that is.
    pub(crate) growth: Option<Arc<Growth>>,
}

impl Running {
    pub(crate) fn new(
        array: Array,
        drives: Vec<Option<Drive>>,
        fresh: bool,
        (resync_bytes_at_start, recovery): (u64, Recovery),
    ) -> Self {
        Self {
            array,
            drives,
            replacement: None,
            fresh,
            resync_bytes_at_start,
            recovery,
            meters: Meters::default(),
            scrub: KeptScrub::default(),
            growth: None,
        }
    }

    pub(crate) fn uuid(&self) -> String {
        self.array.uuid().to_string()
    }

    /// Its drives, and the one that is to take the place of one of them.
    pub(crate) fn all_drives(&self) -> impl Iterator<Item = &Drive> {
        self.drives.iter().flatten().chain(self.replacement.as_ref().map(|next| &next.drive))
    }

    /// Keys that reserve its drives.
    pub(crate) fn drive_keys(&self) -> impl Iterator<Item = String> {
        self.all_drives().map(|d| drive_key(&d.device.identity()))
    }
}

/// The control plane under its lock. It is shared, and waits for drives, through [`Control`](crate::Control).
pub struct Manager {
    // Dropped in this order when it was not stopped: servers leave the arrays, arrays the cores.
    pub(crate) servers: BTreeMap<String, Arc<ExportServer>>,
    /// What was told of addresses that had no room.
    pub(crate) crowds: BTreeMap<String, Crowd>,
    pub(crate) running: Vec<Running>,
    pub(crate) drives: Drives,
    cores: Vec<CoreThread>,
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// Each recorded array that does not run, by its identity.
    pub(crate) offline: BTreeMap<String, Offline>,
    /// Arrays that were lost while they ran, by their identity.
    pub(crate) losses: BTreeMap<String, Loss>,
    /// What each spare is like, by the identity of its medium.
    pub(crate) spares: BTreeMap<String, SpareState>,
    /// What was last told about each running array, by its identity.
    pub(crate) seen: BTreeMap<String, Seen>,
    /// Each array that is being started by itself, by its identity.
    pub(crate) starting: BTreeMap<String, Starting>,
    /// What commands and actions under way work on.
    pub(crate) reserved: BTreeSet<String>,
    /// Commands under way, which a stop waits for.
    pub(crate) commands: Commands,
    pub(crate) hooks: Hooks,
    pub(crate) remotes: Remotes,
    /// What an earlier daemon may still have under way there.
    pub(crate) past: Past,
    /// What was last recorded on the members of each running array, by its identity.
    pub(crate) written: BTreeMap<String, Written>,
    /// The machine's drives at the last look.
    pub(crate) listed: Listed,
    /// What was last looked at for each array and path: `None` when there was nothing.
    pub(crate) looked: BTreeMap<(String, String), Option<PathKey>>,
    /// Why the drive found for a place of an array is not used, by the array's identity and the slot.
    pub(crate) objections: BTreeMap<(String, usize), String>,
    /// Where the drive of a member in use is no more, and why it is used all the same: the data depends on it. By the
    /// array's identity and the slot.
    pub(crate) unreachable: BTreeMap<(String, usize), String>,
    /// Why the copy of a member is not begun again, by the array's identity and the slot.
    pub(crate) copy_trouble: BTreeMap<(String, usize), String>,
    /// The identity of each member's drive at whose path another one was found, by the array's identity and the slot.
    pub(crate) swapped: BTreeMap<(String, usize), String>,
    /// Where the drive is that went on without a running array, by the array's identity and the slot: what was written
    /// there is nowhere else.
    pub(crate) other_halves: BTreeMap<(String, usize), String>,
    /// What was found out about the drives of members that are out, by the array's identity and the slot.
    pub(crate) prospects: BTreeMap<(String, usize), Prospect>,
    /// What was looked at for that, by the array's identity and the path.
    pub(crate) sights: BTreeMap<(String, String), Sight>,
    /// Identities of files that serve as drives and were whole when they were last looked at.
    pub(crate) whole_files: BTreeSet<String>,
    /// What was last seen of each recorded array.
    pub(crate) newest: Newest,
    /// The same as it is on disk; `None` while nobody knows.
    pub(crate) newest_written: Option<Newest>,
    events: Arc<Events>,
    /// The trouble of the state directory that was last told.
    reported_trouble: Option<String>,
    /// Why each recorded export that is not offered is not, by its name.
    pub(crate) export_trouble: BTreeMap<String, String>,
    /// Exports of which it was told that their reservations are not recorded.
    pub(crate) reported_unrecorded: BTreeSet<String>,
    pub(crate) started: Instant,
    /// When each recorded array was last tried that is later than the assemble timeout, by its identity.
    pub(crate) last_tries: BTreeMap<String, Instant>,
    pub(crate) sick: Sick,
    /// Members that were taken back without a command.
    pub(crate) returns: Returns,
    /// Refuses what commands and starts would begin.
    pub(crate) stopping: bool,
    /// Names of arrays whose labels a start had changed when the daemon was stopped before they ran.
    pub(crate) cut_short: Vec<String>,
}

impl Manager {
    /// Locks the state directory and starts the data cores. Nothing of what is recorded is started yet.
    ///
    /// # Errors
    /// When the state directory or the machine does not allow a daemon to run.
    pub(crate) fn open(state: StateFolder, options: Options) -> Result<Self, ControlError> {
        let (store, config) = Store::open_in(state.clone())?;
        let cores = start_cores(&options.cores)?;
        let events = Arc::new(Events::open_in(state.clone(), options.clock.clone())?);
        if let Err(reason) = inherit_nothing() {
            tracing::warn!(%reason, "programs of hooks inherit what straked was started with");
        }
        let hooks = Hooks::start(&config, &events)?;
        let started = Note::new(EventKind::DaemonStarted, "daemon", "the daemon started");
        events.record(started.cause(format!("version {}", env!("CARGO_PKG_VERSION"))));
        if store.was_unclean() {
            let what = "the daemon before this one was not shut down cleanly";
            let note = Note::new(EventKind::DaemonUncleanStart, "daemon", what)
                .cause("it was killed, it crashed, or the machine lost power")
                .next("strake status");
            events.record(note);
        }
        Ok(Self {
            servers: BTreeMap::new(),
            running: Vec::new(),
            drives: Drives::of(options.machine.clone()),
            cores,
            store,
            config,
            options,
            offline: BTreeMap::new(),
            losses: BTreeMap::new(),
            spares: BTreeMap::new(),
            crowds: BTreeMap::new(),
            seen: BTreeMap::new(),
            starting: BTreeMap::new(),
            reserved: BTreeSet::new(),
            commands: Commands::default(),
            hooks,
            remotes: Remotes::default(),
            past: Past::open(state.clone(), monotonic()),
            written: BTreeMap::new(),
            listed: Listed::default(),
            looked: BTreeMap::new(),
            objections: BTreeMap::new(),
            other_halves: BTreeMap::new(),
            copy_trouble: BTreeMap::new(),
            swapped: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            prospects: BTreeMap::new(),
            sights: BTreeMap::new(),
            whole_files: BTreeSet::new(),
            newest: crate::newest::read(state.path()),
            newest_written: None,
            events,
            reported_trouble: None,
            export_trouble: BTreeMap::new(),
            reported_unrecorded: BTreeSet::new(),
            started: Instant::now(),
            last_tries: BTreeMap::new(),
            sick: Sick::default(),
            returns: Returns::default(),
            stopping: false,
            cut_short: Vec::new(),
        })
    }

    /// Events, which need no lock.
    #[must_use]
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    pub(crate) fn record(&self, note: Note) {
        self.events.record(note);
    }

    pub(crate) fn settings(&self, uuid: &str) -> Settings {
        let record = self.config.arrays.iter().find(|a| a.uuid == uuid);
        record.map(|a| a.settings).unwrap_or_default()
    }

    pub(crate) fn core_handles(&self) -> Vec<CoreHandle> {
        self.cores.iter().map(CoreThread::handle).collect()
    }

    /// Refuses commands once a [stop](crate::Control::stop) has begun.
    pub(crate) fn check_open(&self) -> Result<(), ControlError> {
        if self.stopping {
            return Err(ControlError::new(
                ControlErrorKind::Stopped,
                "the daemon is stopping; start it again first",
            ));
        }
        Ok(())
    }

    /// Data cores, to be ended.
    pub(crate) fn take_cores(&mut self) -> Vec<CoreThread> {
        std::mem::take(&mut self.cores)
    }

    /// The daemon itself. `socket` is where it listens, `memory_bytes` and `cpu_us` what the process uses.
    #[must_use]
    pub fn daemon(&self, socket: &str, memory_bytes: u64, cpu_us: u64) -> Daemon {
        let core = |(index, core): (usize, &CoreThread)| {
            let (cpu, notice) = match core.pinning() {
                Pinning::Any => (None, String::new()),
                Pinning::Pinned { cpu } => (Some(cpu as u32), String::new()),
                Pinning::Refused { cpu, os } => {
                    let why = std::io::Error::from_raw_os_error(os);
                    (None, format!("not pinned to CPU {cpu}: {why}"))
                }
            };
            Core { index: index as u32, cpu, notice }
        };
        Daemon {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_us: self.started.elapsed().as_micros() as u64,
            state_dir: self.store.dir().display().to_string(),
            socket: socket.to_owned(),
            cores: self.cores.iter().enumerate().map(core).collect(),
            memory_bytes,
            cpu_us,
            state: if self.stopping { "stopping" } else { "serving" }.to_owned(),
        }
    }

    /// Everything in one answer, with what is wrong first.
    pub fn status(&mut self, daemon: Daemon) -> SystemStatus {
        let arrays = self.arrays();
        let exports = self.exports();
        let mut problems: Vec<Problem> =
            arrays.iter().filter_map(crate::view::problem_of_array).collect();
        problems.extend(arrays.iter().filter_map(crate::view::problem_of_scrub));
        problems.extend(arrays.iter().filter_map(crate::view::problem_of_doubt));
        problems.extend(arrays.iter().filter_map(crate::view::problem_of_copy));
        problems.extend(exports.iter().filter(|e| e.state != "online").map(|e| Problem {
            object: format!("export/{}", e.name),
            severity: "failed".to_owned(),
            what: e.reason.clone(),
            next_action: format!("strake array show {}", e.array),
        }));
        problems.extend(self.state_trouble().map(|why| Problem {
            object: "daemon".to_owned(),
            severity: "degraded".to_owned(),
            what: format!("the state directory cannot be written: {why}"),
            next_action: format!(
                "make room in {}, or make it writable",
                self.store.dir().display()
            ),
        }));
        problems.sort_by_key(|p| p.severity != "failed");
        let health = match problems.first() {
            None => "ok",
            Some(worst) if worst.severity == "failed" => "failed",
            Some(_) => "degraded",
        };
        SystemStatus { health: health.to_owned(), problems, daemon: Some(daemon), arrays, exports }
    }

    /// Why the state directory refuses what is to be written.
    pub(crate) fn state_trouble(&self) -> Option<String> {
        self.store.trouble().map(|e| e.what.clone()).or_else(|| self.events.trouble())
    }

    /// Tells when the state directory begins or ceases to refuse what is to be written.
    pub(crate) fn watch_state_dir(&mut self) {
        if self.store.trouble().is_some() {
            self.store.test(&self.config);
        }
        let trouble = self.state_trouble();
        if trouble == self.reported_trouble {
            return;
        }
        let dir = self.store.dir().display().to_string();
        let note = match &trouble {
            Some(why) => Note::new(
                EventKind::StateTrouble,
                "daemon",
                format!("the state directory {dir} cannot be written"),
            )
            .cause(why.clone())
            .next(format!("make room in {dir}, or make it writable; arrays continue to serve")),
            None => Note::new(
                EventKind::StateDirRecovered,
                "daemon",
                format!("the state directory {dir} can be written again"),
            ),
        };
        self.record(note);
        let dropped = self.events.take_dropped();
        if trouble.is_none() && dropped > 0 {
            let what = format!("{dropped} events were not recorded");
            let cause = "too many happened while the state directory could not be written";
            self.record(Note::new(EventKind::EventsDropped, "daemon", what).cause(cause));
        }
        self.reported_trouble = trouble;
    }

    /// Where in `running` the array named (or identified by) `name` is.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.running.iter().position(|r| r.array.name().as_str() == name || r.uuid() == name)
    }

    /// The same, or why it is not there.
    pub(crate) fn find_running(&self, name: &str) -> Result<usize, ControlError> {
        if let Some(at) = self.find(name) {
            return Ok(at);
        }
        let record = self.config.arrays.iter().find(|a| a.name == name || a.uuid == name);
        if let Some(starting) = record.and_then(|r| self.starting.get(&r.uuid)) {
            return Err(ControlError::state(format!(
                "array {name} cannot be used yet: {}; see how that goes with: strake array show {name}",
                starting.words()
            )));
        }
        match record.and_then(|r| self.offline.get(&r.uuid)) {
            Some(offline) => {
                let why = &offline.why;
                Err(ControlError::state(format!("array {name} is not running: {why}")))
            }
            None => Err(self.no_such_array(name)),
        }
    }

    pub(crate) fn no_such_array(&self, name: &str) -> ControlError {
        self.config.no_such_array(name)
    }

    /// Closes the drives that belong to no running array, are no spares, and that no command works on.
    pub(crate) fn close_unused_drives(&mut self) {
        let mut used: BTreeSet<String> = self
            .running
            .iter()
            .flat_map(Running::all_drives)
            .map(|d| d.device.identity())
            .collect();
        used.extend(self.config.spares.iter().map(|spare| spare.identity.clone()));
        used.extend(self.remote_identities());
        let reserved = &self.reserved;
        self.drives.close_unless(|identity| {
            used.contains(identity) || reserved.contains(&drive_key(identity))
        });
    }
}

/// Commands that hold reservations.
#[derive(Default)]
pub(crate) struct Commands {
    begun: u64,
    /// What each began with, by its number.
    under_way: BTreeMap<u64, String>,
}

impl Commands {
    /// A command begins that holds `keys`.
    pub(crate) fn begin(&mut self, keys: &[String]) -> u64 {
        self.begun += 1;
        let what = keys.first().map_or("drives", String::as_str);
        self.under_way.insert(self.begun, what.to_owned());
        self.begun
    }

    pub(crate) fn end(&mut self, command: u64) {
        self.under_way.remove(&command);
    }

    /// What those under way work on.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.under_way.values().cloned().collect()
    }
}

/// The key that reserves the medium with this identity.
pub(crate) fn drive_key(identity: &str) -> String {
    format!("drive {identity}")
}

/// The key that reserves the array with this name or identity.
pub(crate) fn array_key(array: &str) -> String {
    format!("array {array}")
}

/// A fresh random identifier.
pub(crate) fn fresh_uuid() -> Result<Uuid, ControlError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        ControlError::new(
            ControlErrorKind::Device,
            format!("the kernel gives no random numbers: {e}"),
        )
    })?;
    Ok(Uuid::from_random(bytes))
}

fn start_cores(choice: &CoreChoice) -> Result<Vec<CoreThread>, ControlError> {
    let cpus = match choice {
        CoreChoice::Cpus(cpus) => cpus.clone(),
        CoreChoice::Auto => {
            let allowed = sched_getaffinity(None).unwrap_or_default();
            let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
            let take = (all.len() / 2).clamp(1, CORES_MAX);
            all.iter().rev().take(take).rev().copied().collect()
        }
    };
    // Without a known CPU the core runs on any.
    let cpus: Vec<Option<usize>> =
        if cpus.is_empty() { vec![None] } else { cpus.into_iter().map(Some).collect() };
    let start = |(index, cpu): (usize, Option<usize>)| {
        let config = CoreConfig { cpu, ..CoreConfig::new(CoreIndex(index as u16)) };
        CoreThread::start(config).map_err(|e| {
            let what = format!(
                "cannot start data core {index}: {e}; check the limits on threads and open files"
            );
            ControlError::new(ControlErrorKind::Device, what)
        })
    };
    cpus.into_iter().enumerate().map(start).collect()
}
