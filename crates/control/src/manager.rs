//! The objects of the control plane, and its start and stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_alerts::Programs;
use strake_api::v1::GetStatusRequest;
use strake_dev_nvme::Binder;
use strake_dev_uring::{Machine, inherit_nothing};
use strake_engine::IoLimits;
use strake_ondisk::Superblock;
use strake_reactor::{CoreHandle, CoreThread, monotonic};
use strake_wording::{say, show};

use crate::audit::Audit;
use crate::cores::{CoreChoice, start_cores};
use crate::drives::Drives;
use crate::drives::listed::Listed;
use crate::drives::maintenance::apart::Formatter;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Events, Note, WallClock};
use crate::exports::limits_in_use::LimitsInUse;
use crate::exports::offered::Exports;
use crate::hooks::Hooks;
use crate::limits::{BIND_LIMIT, FIRMWARE_LIMIT};
use crate::measures::Measure;
use crate::names::{drive_key, is_called};
use crate::policy::returns::Returns;
use crate::policy::sick::Sick;
use crate::policy::slow::Slow;
use crate::policy::spares::Spares;
use crate::record::files::StateFolder;
use crate::record::store::{Settings, Store};
use crate::remedy::state_remedy;
use crate::remote::connections::Remotes;
use crate::remote::past::Past;
use crate::state::entry::Entries;
use crate::state::late_takes::LateTakes;
use crate::state::lights::Lights;
use crate::state::maintenance::Maintenance;
use crate::state::newest::Newest;
use crate::state::records::Records;
use crate::state::running::Running;

/// Options of the manager.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CPUs of the data cores.
    pub cores: CoreChoice,
    /// Time for which an array waits for missing members before it is started without them; `None` without a limit.
    pub assemble_timeout: Option<Duration>,
    /// Time limits of one I/O.
    pub io_limits: IoLimits,
    /// The clock of events.
    pub clock: WallClock,
    /// The host of the drives. A test simulates a host in a folder.
    pub machine: Machine,
    /// The binder of NVMe drives. A test simulates the kernel.
    pub binder: Binder,
    /// Maximum wait of a command for the binder, and for the end of a format.
    pub bind_limit: Duration,
    /// Maximum wait of a command for the end of a firmware update.
    pub firmware_limit: Duration,
    /// The measures that contain this process.
    pub measures: Vec<Measure>,
    /// The programs that hooks may start.
    pub programs: Programs,
    /// The program that formats drives of the kernel; without it, this process formats them.
    pub formatter: Option<Formatter>,
}

impl Default for Options {
    /// Automatic cores, no assemble timeout, and the clock and drives of the host.
    fn default() -> Self {
        Self {
            cores: CoreChoice::Auto,
            assemble_timeout: None,
            io_limits: IoLimits::default(),
            clock: WallClock::default(),
            machine: Machine::default(),
            binder: Binder::default(),
            bind_limit: BIND_LIMIT,
            firmware_limit: FIRMWARE_LIMIT,
            measures: Vec::new(),
            programs: Programs::default(),
            formatter: None,
        }
    }
}

impl Options {
    /// Returns the engine options of an array with `settings`.
    pub(crate) fn of_array(&self, settings: &Settings) -> strake_engine::Options {
        let maintenance = settings.maintenance();
        strake_engine::Options { io_limits: self.io_limits, maintenance, ..Default::default() }
    }
}

/// The control plane under its lock. [`Control`](crate::Control) shares it, and waits for drives.
pub struct Manager {
    // Without a stop, the fields are dropped in this order: first servers, then arrays, then cores.
    pub(crate) exports: Exports,
    pub(crate) running: Vec<Running>,
    pub(crate) drives: Drives,
    pub(crate) cores: Vec<CoreThread>,
    pub(crate) records: Records,
    pub(crate) options: Options,
    /// The state of each array.
    pub(crate) entries: Entries,
    /// The state of each spare, by the identity of its medium.
    pub(crate) spares: Spares,
    /// Keys that commands and actions in progress have reserved.
    pub(crate) reserved: BTreeSet<String>,
    /// Commands in progress, for which a stop waits.
    pub(crate) commands: Commands,
    pub(crate) hooks: Hooks,
    pub(crate) remotes: Remotes,
    /// Requests of an earlier daemon that may still be in progress at remote drives.
    pub(crate) past: Past,
    /// The last list of the host's drives.
    pub(crate) listed: Listed,
    /// Identities of files that serve as drives and had their full size at the last check.
    pub(crate) whole_files: BTreeSet<String>,
    /// The newest known label of each recorded array.
    pub(crate) newest: Newest,
    events: Arc<Events>,
    audit: Arc<Audit>,
    /// The last reported problem of the state directory.
    reported_trouble: Option<String>,
    pub(crate) started: Instant,
    pub(crate) sick: Sick,
    pub(crate) slow: Slow,
    /// Automatically re-added members.
    pub(crate) returns: Returns,
    pub(crate) late_takes: LateTakes,
    /// Formats and sanitize operations of drives.
    pub(crate) maintenance: Maintenance,
    /// The LEDs of slots.
    pub(crate) lights: Lights,
    /// True after the start of a stop. Commands and starts are then refused.
    pub(crate) stopping: bool,
    /// Names of arrays whose start was interrupted by a stop of the daemon after it had changed labels.
    pub(crate) cut_short: Vec<String>,
    /// The last time the states of pools were read.
    pub(crate) pools_watched: Option<Instant>,
}

impl Manager {
    /// Locks the state directory and starts the data cores. Recorded objects are not started yet.
    ///
    /// # Errors
    /// If the state directory or the host does not allow a daemon.
    pub(crate) fn open(state: StateFolder, options: Options) -> Result<Self, ControlError> {
        let (store, config) = Store::open_in(state.clone())?;
        let cores = start_cores(&options.cores)?;
        let events = Arc::new(Events::open_in(state.clone(), options.clock.clone())?);
        if let Err(reason) = inherit_nothing() {
            tracing::warn!(%reason, "programs of hooks inherit what straked was started with");
        }
        let hooks = Hooks::start(&config, &events, options.programs.clone())?;
        let audit = Arc::new(Audit::open_in(state.clone(), &events, options.clock.clone()));
        let started = Note::new(EventKind::DaemonStarted, "daemon", "the daemon started");
        events.record(started.cause(format!("version {}", env!("CARGO_PKG_VERSION"))));
        if store.was_unclean() {
            let what = "the previous daemon was not shut down cleanly";
            let note = Note::new(EventKind::DaemonUncleanStart, "daemon", what)
                .cause("the daemon was killed, the daemon crashed, or the host lost power")
                .next(GetStatusRequest {});
            events.record(note);
        }
        let (mut newest, unknown) = Newest::read(&state);
        if store.was_new() {
            newest.note_lost();
        }
        let lost = newest.lost(&store.file(), &config);
        let lost =
            lost.map(|what| Note::new(EventKind::StateLost, "daemon", what).next(state_remedy()));
        for note in unknown.into_iter().chain(lost) {
            events.record(note);
        }
        let handles = cores.iter().map(CoreThread::handle).collect();
        let limits = LimitsInUse::start(handles, &config);
        Ok(Self {
            exports: Exports::new(options.clock.clone(), limits),
            running: Vec::new(),
            drives: Drives::of(options.machine.clone()),
            cores,
            records: Records { store, config },
            options,
            entries: Entries::default(),
            spares: Spares::default(),
            reserved: BTreeSet::new(),
            commands: Commands::default(),
            hooks,
            remotes: Remotes::default(),
            past: Past::open(state.clone(), monotonic()),
            listed: Listed::default(),
            whole_files: BTreeSet::new(),
            newest,
            events,
            audit,
            reported_trouble: None,
            started: Instant::now(),
            sick: Sick::default(),
            slow: Slow::default(),
            returns: Returns::default(),
            late_takes: LateTakes::default(),
            maintenance: Maintenance::default(),
            lights: Lights::default(),
            stopping: false,
            cut_short: Vec::new(),
            pools_watched: None,
        })
    }

    /// Returns the events, which do not need the lock.
    #[must_use]
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// Returns the audit log, which does not need the lock.
    #[must_use]
    pub fn audit(&self) -> Arc<Audit> {
        Arc::clone(&self.audit)
    }

    pub(crate) fn record(&self, note: Note) {
        self.events.record(note);
    }

    pub(crate) fn core_handles(&self) -> Vec<CoreHandle> {
        self.cores.iter().map(CoreThread::handle).collect()
    }

    /// Refuses commands after the start of a [stop](crate::Control::stop).
    pub(crate) fn check_open(&self) -> Result<(), ControlError> {
        if self.stopping {
            return Err(ControlError::new(
                ControlErrorKind::Stopped,
                "the daemon is stopping; start it again first",
            ));
        }
        Ok(())
    }

    /// Removes and returns the data cores, for a stop.
    pub(crate) fn take_cores(&mut self) -> Vec<CoreThread> {
        std::mem::take(&mut self.cores)
    }

    /// Describes the loss of the configuration before this start, until all arrays are recorded again.
    pub(crate) fn state_lost(&self) -> Option<String> {
        self.newest.lost(&self.records.store.file(), &self.records)
    }

    /// Returns the reason why the state directory refuses writes, if any.
    #[must_use]
    pub fn state_trouble(&self) -> Option<String> {
        let store = self.records.store.trouble().map(|e| e.what.clone());
        store.or_else(|| self.events.trouble()).or_else(|| self.audit.trouble())
    }

    /// Reports the start and the end of refused writes to the state directory.
    pub(crate) fn watch_state_dir(&mut self) {
        if self.records.store.is_doubtful() {
            self.records.store.test(&self.records.config);
        }
        let trouble = self.state_trouble();
        if trouble == self.reported_trouble {
            return;
        }
        let dir = self.records.store.dir().display().to_string();
        let note = match &trouble {
            Some(why) => Note::new(
                EventKind::StateTrouble,
                "daemon",
                format!("the state directory {dir} cannot be written"),
            )
            .cause(why.clone())
            .next(format!("free space in {dir}, or make it writable; arrays continue to serve")),
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
            let cause = "too many events occurred while the state directory could not be written";
            self.record(Note::new(EventKind::EventsDropped, "daemon", what).cause(cause));
        }
        self.reported_trouble = trouble;
    }

    /// Returns the index in `running` of the array that a client calls `asked`, see [`is_called`].
    pub(crate) fn find(&self, asked: &str) -> Option<usize> {
        self.running.iter().position(|r| is_called(asked, r.array.name().as_str(), &r.uuid()))
    }

    /// Returns the index in `running` of the array with this UUID.
    pub(crate) fn position_of(&self, uuid: &str) -> Option<usize> {
        self.running.iter().position(|running| running.uuid() == uuid)
    }

    /// Returns the running array with this identity.
    pub(crate) fn running_of(&self, uuid: &str) -> Option<&Running> {
        self.running.iter().find(|running| running.uuid() == uuid)
    }

    /// Returns the slot and the name of the running array of a medium.
    pub(crate) fn place_of(&self, identity: &str) -> Option<(usize, String)> {
        self.running.iter().find_map(|r| Some((r.slot_of(identity)?, r.array.name().to_string())))
    }

    /// True if the drive with this label left a running array, see [`Running::is_left_by`].
    pub(crate) fn is_other_half(&self, found: &Superblock) -> bool {
        let running = self.running.iter().find(|r| r.array.uuid() == found.array);
        running.is_some_and(|running| running.is_left_by(found))
    }

    /// Returns the index in `running`, or the reason why the array is not running.
    pub(crate) fn find_running(&self, name: &str) -> Result<usize, ControlError> {
        if let Some(at) = self.find(name) {
            return Ok(at);
        }
        let record = self.records.arrays.iter().find(|a| is_called(name, &a.name, &a.uuid));
        let entry = record.map(|record| self.entries.get(&record.uuid));
        if let Some(starting) = entry.and_then(|entry| entry.starting.as_ref()) {
            let what = format!(
                "array {name} cannot be used yet: {}; watch the array with: ",
                starting.words()
            );
            return Err(ControlError::state(say(what).run(show(name))));
        }
        match entry.and_then(|entry| entry.offline.as_ref()) {
            Some(offline) => {
                let why = &offline.why;
                Err(ControlError::state(format!("array {name} is not running: {why}")))
            }
            None => Err(self.no_such_array(name)),
        }
    }

    pub(crate) fn no_such_array(&self, name: &str) -> ControlError {
        self.records.no_such_array(name)
    }

    /// Closes drives that no running array, spare or command uses.
    pub(crate) fn close_unused_drives(&mut self) {
        let mut used: BTreeSet<String> = self
            .running
            .iter()
            .flat_map(Running::all_drives)
            .map(|d| d.device.identity())
            .collect();
        used.extend(self.records.spares.iter().map(|spare| spare.identity.clone()));
        let is_recorded = |address: &str| self.records.is_recorded(address);
        used.extend(self.drives.remote_identities(is_recorded));
        let (reserved, maintenance) = (&self.reserved, &self.maintenance);
        self.drives.close_unless(|identity| {
            used.contains(identity)
                || reserved.contains(&drive_key(identity))
                || maintenance.keeps_open(identity)
        });
    }
}

/// Commands that hold reservations.
#[derive(Default)]
pub(crate) struct Commands {
    begun: u64,
    /// The first key of each command, by its number.
    under_way: BTreeMap<u64, String>,
}

impl Commands {
    /// Records the start of a command with `keys`.
    pub(crate) fn begin(&mut self, keys: &[String]) -> u64 {
        self.begun += 1;
        let what = keys.first().map_or("drives", String::as_str);
        self.under_way.insert(self.begun, what.to_owned());
        self.begun
    }

    pub(crate) fn end(&mut self, command: u64) {
        self.under_way.remove(&command);
    }

    /// Returns the objects of the commands in progress.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.under_way.values().cloned().collect()
    }
}
