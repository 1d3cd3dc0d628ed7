//! A device, load on it, and samples of what it does.

use std::sync::Arc;
use std::time::Duration;

use strake_block::{BlockDevice, DeviceInfo};
use strake_dev_mem::{Modelled, NullDevice, Profile, RamDevice};
pub use strake_engine::Consistency;
use strake_engine::{Array, Drive};
use strake_raid::{Geometry, Level, Regions};
use strake_units::{BlockSize, ByteSize};

use crate::report::{Drives, size};
use crate::rig::{Rig, Running, Sample, Shape, fail, pass};
use strake_load::{Order, Pattern, Source, Stride};

/// Bytes of a null or modelled drive: enough that no region of an array is everybody's.
const DRIVE_BYTES: u64 = 64 << 30;
/// Bytes of a drive in memory, which has to fit.
const RAM_BYTES: u64 = 256 << 20;
const BLOCK: BlockSize = BlockSize::B4096;

/// What a person may choose about every goal.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only rows whose case has this in it.
    pub filter: Option<String>,
    /// Samples behind every median; by default 5, and more where samples are short.
    pub repeats: Option<usize>,
    /// How long a sample takes.
    pub span: Duration,
    /// What modelled drives are like.
    pub profile: Profile,
    /// Bytes of data that no cache holds.
    pub cold_bytes: usize,
}

/// Samples behind a median.
const REPEATS: usize = 5;

impl Options {
    /// Samples behind a median, where nothing needs more of them.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.repeats.unwrap_or(REPEATS)
    }
}

impl Default for Options {
    /// Samples of 300 ms of everything, on the published drive.
    fn default() -> Self {
        Self {
            filter: None,
            repeats: None,
            span: Duration::from_millis(300),
            profile: Profile::SN861,
            cold_bytes: 256 << 20,
        }
    }
}

/// What a device is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Made {
    /// Of null drives.
    Null,
    /// Of drives in memory.
    Ram,
    /// Of drives with the timing of a profile.
    Model(Profile),
    /// Of files and block devices, which the caller opens.
    Real,
}

impl Made {
    /// What rows call it.
    #[must_use]
    pub const fn drives(self) -> Drives {
        match self {
            Self::Null => Drives::Null,
            Self::Ram => Drives::Ram,
            Self::Model(_) => Drives::Model,
            Self::Real => Drives::Real,
        }
    }

    /// What the names of cases call it: modelled drives other than the usual ones with the name of their profile.
    #[must_use]
    pub fn name(self) -> String {
        let word = self.drives().word();
        match self {
            Self::Model(profile) if profile.name != Profile::SN861.name => {
                format!("{word}:{}", profile.name)
            }
            Self::Null | Self::Ram | Self::Model(_) | Self::Real => word.to_owned(),
        }
    }

    /// Bytes of a drive by default.
    #[must_use]
    pub const fn usual_bytes(self) -> u64 {
        match self {
            Self::Null | Self::Model(_) | Self::Real => DRIVE_BYTES,
            Self::Ram => RAM_BYTES,
        }
    }

    /// A drive of `bytes`, in blocks of 4 KiB.
    ///
    /// # Errors
    /// When the profile contradicts itself, or the drive is real.
    pub fn drive(self, bytes: u64) -> Result<Arc<dyn BlockDevice>, String> {
        let null = || NullDevice::new(bytes >> BLOCK.shift(), BLOCK);
        Ok(match self {
            Self::Null => Arc::new(null()),
            Self::Ram => {
                let ram = RamDevice::new(bytes >> BLOCK.shift(), BLOCK);
                ram.preallocate();
                Arc::new(ram)
            }
            Self::Model(profile) => {
                Arc::new(Modelled::new(null(), profile).map_err(|e| e.to_string())?)
            }
            Self::Real => return Err("files and block devices are opened, not made".to_owned()),
        })
    }
}

/// One thing to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What drives are made of.
    pub made: Made,
    /// `None` for one drive by itself.
    pub level: Option<Level>,
    /// Drives.
    pub count: usize,
    /// Bytes of a strip.
    pub strip: u32,
    /// Members taken out of use before.
    pub out: u8,
    /// How writes are made safe against crashes.
    pub consistency: Consistency,
    /// What of the engine is turned off.
    pub off: Off,
    /// Data cores, each with load of its own.
    pub cores: u16,
    /// Bytes of a request.
    pub bytes: usize,
    /// Writes among 100 requests.
    pub write_percent: u8,
    /// Where requests go.
    pub order: Order,
    /// Requests that each core has out.
    pub depth: u32,
    /// Where written data come from.
    pub source: Source,
    /// What part of the device the cores use.
    pub aim: Aim,
}

/// What of the engine is turned off, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off {
    /// Waiting writes are not merged, and waiting reads of a degraded stripe not done together.
    pub merge: bool,
    /// Reads do not avoid slow members.
    pub steer: bool,
    /// What small writes leave behind is not kept.
    pub cache: bool,
}

impl Off {
    /// Everything is on.
    pub const NOTHING: Self = Self { merge: false, steer: false, cache: false };

    fn words(self) -> String {
        let words = [(self.merge, "merge"), (self.steer, "steer"), (self.cache, "cache")];
        words.iter().filter(|(off, _)| *off).map(|(_, word)| format!(" no-{word}")).collect()
    }
}

/// What part of a device each core uses: how cores get in each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Every core everything.
    Everywhere,
    /// Every core the first stripe.
    OneStripe,
    /// Every core what belongs to the first one.
    OneCore,
    /// The first core everything; the others are silent.
    FirstAlone,
    /// The first core everything, the others the first stripe.
    OthersOnOneStripe,
}

impl Aim {
    const fn words(self) -> &'static str {
        match self {
            Self::Everywhere => "",
            Self::OneStripe => " on one stripe",
            Self::OneCore => " on one core's rows",
            Self::FirstAlone => " from the first core",
            Self::OthersOnOneStripe => " from the first core, others on one stripe,",
        }
    }
}

impl Case {
    /// 4 KiB reads anywhere on one null drive, 128 at a time, from one core.
    pub const RAW: Self = Self {
        made: Made::Null,
        level: None,
        count: 1,
        strip: 128 << 10,
        out: 0,
        consistency: Consistency::Safe,
        off: Off::NOTHING,
        cores: 1,
        bytes: 4096,
        write_percent: 0,
        order: Order::Random,
        depth: 128,
        source: Source::Own,
        aim: Aim::Everywhere,
    };

    /// The same on an array of `count` drives.
    #[must_use]
    pub const fn array(level: Level, count: usize) -> Self {
        Self { level: Some(level), count, ..Self::RAW }
    }

    /// Its name in reports: everything that makes it what it is.
    #[must_use]
    pub fn name(&self) -> String {
        let kind = match (self.order, self.write_percent) {
            (Order::Sequential, 0) => "read".to_owned(),
            (Order::Sequential, 100) => "write".to_owned(),
            (Order::Sequential, percent) => format!("mixed {}/{percent}", 100 - percent),
            (Order::Random, 0) => "randread".to_owned(),
            (Order::Random, 100) => "randwrite".to_owned(),
            (Order::Random, percent) => format!("randrw {}/{percent}", 100 - percent),
            (Order::Zipf(theta), percent) => format!("zipf {theta} {}/{percent}", 100 - percent),
        };
        let source = match self.source {
            Source::Own => "",
            Source::Shared => " hot",
            Source::Cold(_) => " cold",
        };
        let out = if self.out > 0 { format!(" {} out", self.out) } else { String::new() };
        let mode = match self.consistency {
            Consistency::Safe => String::new(),
            mode => format!(" {mode}"),
        };
        let off = self.off.words();
        let (bytes, depth) = (size(self.bytes).replace(' ', ""), self.depth);
        let (drives, cores, aim) = (self.made.name(), self.cores, self.aim.words());
        format!(
            "{}{out}{mode}{off} {kind} {bytes} qd{depth}{source}{aim} {drives} cores={cores}",
            self.shape()
        )
    }

    /// The level with its numbers of drives.
    fn shape(&self) -> String {
        let count = self.count;
        match self.level {
            None => "raw".to_owned(),
            Some(Level::Raid5) => format!("raid5 {}+1", count - 1),
            Some(Level::Raid6) => format!("raid6 {}+2", count - 2),
            Some(Level::Raid73) => format!("raid7.3 {}+3", count - 3),
            Some(level) => format!("raid{level} x{count}"),
        }
    }

    /// How parity is kept true across a crash: as far as this case has parity and writes.
    #[must_use]
    pub const fn protection(&self) -> &'static str {
        let copies = matches!(self.level, Some(Level::Raid1 | Level::Raid10));
        match (self.level, self.write_percent, self.consistency) {
            (None | Some(Level::Raid0), _, _) | (_, 0, _) | (_, _, Consistency::None) => "none",
            (_, _, Consistency::Resync) => "intent bitmap",
            (_, _, Consistency::Safe | Consistency::Strict) if copies => "intent bitmap",
            (_, _, Consistency::Safe) if self.out == 0 => "intent bitmap",
            (_, _, Consistency::Safe | Consistency::Strict) => "intent bitmap, redo log",
        }
    }

    /// A pattern for each core that has load, on a device of `info`, which is an array of `geometry` if it is one.
    fn patterns(&self, info: &DeviceInfo, geometry: Option<&Geometry>) -> Vec<Pattern> {
        let loaded = if self.aim == Aim::FirstAlone { 1 } else { self.cores };
        (0..loaded).map(|core| self.narrowed(self.pattern(info, core), core, geometry)).collect()
    }

    /// `pattern` of `core` within what [`Aim`] leaves of the device. One drive by itself is all one part.
    fn narrowed(&self, pattern: Pattern, core: u16, geometry: Option<&Geometry>) -> Pattern {
        let Some(geometry) = geometry else { return pattern };
        let places_of = |stripes: u64| {
            (stripes * geometry.stripe_data_blocks() / u64::from(pattern.blocks).max(1)).max(1)
        };
        let one_stripe = Pattern { places: places_of(1), ..pattern };
        match self.aim {
            Aim::Everywhere | Aim::FirstAlone => pattern,
            Aim::OneStripe => one_stripe,
            Aim::OthersOnOneStripe if core == 0 => pattern,
            Aim::OthersOnOneStripe => one_stripe,
            Aim::OneCore => {
                let (per_region, cores) =
                    (Regions::new(geometry).stripes_per_region(), u64::from(self.cores));
                let run = places_of(per_region);
                // Regions belong to the cores in turns, and the first to the first.
                let regions = (geometry.stripes() / per_region).div_ceil(cores).max(1);
                let stride = Some(Stride { run, every: run * cores });
                Pattern { places: run * regions, stride, ..pattern }
            }
        }
    }

    /// What `core` asks of a device of `info`.
    pub(crate) fn pattern(&self, info: &DeviceInfo, core: u16) -> Pattern {
        let request = (self.bytes >> info.block_size.shift()) as u64;
        let all = info.blocks / request.max(1);
        let share = all / u64::from(self.cores);
        let (first, places) = match self.order {
            Order::Sequential => (share * u64::from(core) * request, share),
            Order::Random | Order::Zipf(_) => (0, all),
        };
        Pattern {
            write_percent: self.write_percent,
            blocks: request as u32,
            block_bytes: info.block_size.bytes(),
            order: self.order,
            depth: self.depth,
            first,
            places,
            stride: None,
            source: self.source,
            verify: false,
            seed: 77 + u64::from(core),
        }
    }
}

#[cfg(test)]
mod tests;

/// A case with everything it needs, ready to be sampled again and again. Its cores sleep in between.
pub struct Subject {
    // Dropped before the cores it runs on.
    array: Option<Array>,
    device: Arc<dyn BlockDevice>,
    patterns: Vec<Pattern>,
    rig: Rig,
}

impl Subject {
    /// Makes drives and array.
    ///
    /// # Errors
    /// What is wrong with the case, or with the machine.
    pub fn new(case: &Case) -> Result<Self, String> {
        let drive = |at| {
            let device = case.made.drive(case.made.usual_bytes())?;
            Ok(Drive { device, path: format!("drive{at}") })
        };
        let drives = (0..case.count).map(drive).collect::<Result<_, String>>()?;
        Self::over(case, drives, true)
    }

    /// Makes the case's array over `drives`, which are overwritten whatever they hold when `overwrite` says so.
    ///
    /// # Errors
    /// What is wrong with the case, with the drives, or with the machine.
    pub fn over(case: &Case, drives: Vec<Drive>, overwrite: bool) -> Result<Self, String> {
        let rig = Rig::start(case.cores)?;
        let (array, device) = match case.level {
            None => (None, drives.into_iter().next().ok_or("a case needs a drive")?.device),
            Some(level) => {
                let shape = Shape {
                    level,
                    strip_bytes: case.strip,
                    overwrite,
                    consistency: case.consistency,
                    off: case.off,
                };
                let array = rig.array(&shape, drives)?;
                (0..case.out).try_for_each(|member| fail(&array, member))?;
                let device = array.device();
                (Some(array), device)
            }
        };
        let info = device.info();
        let geometry = array.as_ref().map(|array: &Array| array.status().geometry);
        let patterns = case.patterns(&info, geometry.as_ref());
        if patterns.iter().any(|pattern| pattern.places == 0 || pattern.blocks == 0) {
            let (request, all) = (size(case.bytes), ByteSize(info.bytes()));
            return Err(format!(
                "requests of {request} do not fit on {all} with blocks of {}",
                info.block_size
            ));
        }
        Ok(Self { array, device, patterns, rig })
    }

    /// The same with data that are compared when they are read. Every core then has places of its own.
    #[must_use]
    pub fn verified(mut self) -> Self {
        let cores = self.patterns.len() as u64;
        for (core, pattern) in (0..).zip(&mut self.patterns) {
            // The number of times each place was written is kept in memory.
            const PLACES_MAX: u64 = 1 << 24;
            pattern.verify = true;
            pattern.places =
                (pattern.places.min(PLACES_MAX) / cores).max(u64::from(pattern.depth) + 1);
            pattern.first = core * pattern.places * u64::from(pattern.blocks);
        }
        self
    }

    /// The array, when there is one.
    #[must_use]
    pub const fn array(&self) -> Option<&Array> {
        self.array.as_ref()
    }

    /// Memory that the load takes for its buffers, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.patterns.iter().map(Pattern::memory).sum()
    }

    /// Writes all of it once, in order: what was never written, a file system may not even read.
    ///
    /// # Errors
    /// When a request fails, or nothing moves.
    pub fn fill(&self) -> Result<(), String> {
        const REQUEST: u32 = 128 << 10;
        const LOOK: Duration = Duration::from_millis(2);
        let info = self.device.info();
        let block_bytes = info.block_size.bytes();
        let blocks = REQUEST / block_bytes;
        let places = info.blocks / u64::from(blocks);
        let order = Order::Sequential;
        let pattern = Pattern {
            write_percent: 100,
            blocks,
            block_bytes,
            order,
            depth: 32,
            places,
            ..Pattern::default()
        };
        let running = self.rig.load(&self.device, &[pattern])?;
        while running.done() < places {
            running.sample(LOOK)?;
        }
        match running.stop()? {
            0 => Ok(()),
            failed => Err(format!("{failed} requests failed")),
        }
    }

    /// Puts load on it.
    ///
    /// # Errors
    /// When the device has no queue.
    pub fn load(&self) -> Result<Running, String> {
        self.rig.load(&self.device, &self.patterns)
    }

    /// Puts load on it for a third of `span`, so that it is warm, and then takes a sample. Writes to an array warm up
    /// for longer: after a rest regions are marked again, which is the cost of a rest and not of a write.
    ///
    /// # Errors
    /// When requests fail or do not come back: such a run has no number.
    pub fn sample(&self, span: Duration) -> Result<Sample, String> {
        let running = self.load()?;
        let writes = self.patterns.iter().any(|pattern| pattern.write_percent > 0);
        pass(if self.array.is_some() && writes { span * 2 } else { span / 3 });
        let sample = running.sample(span)?;
        match running.stop()? {
            0 => Ok(sample),
            failed => Err(format!("{failed} requests failed")),
        }
    }
}

/// Samples every case, in turns, and another one begins each round, so that whatever else the machine does meets all
/// of them alike. A case that cannot be measured says why.
pub fn in_turns(
    cases: &[Case],
    options: &Options,
    mut progress: impl FnMut(&str),
) -> Vec<Result<Vec<Sample>, String>> {
    progress("preparing");
    let subjects: Vec<_> = cases.iter().map(Subject::new).collect();
    let mut found: Vec<Result<Vec<Sample>, String>> =
        subjects.iter().map(|s| s.as_ref().map(|_| Vec::new()).map_err(Clone::clone)).collect();
    let repeats = options.repeats();
    for round in 0..repeats {
        for turn in 0..cases.len() {
            let at = (round + turn) % cases.len();
            let (Ok(samples), Ok(subject)) = (&mut found[at], &subjects[at]) else { continue };
            progress(&format!("{} of {repeats}: {}", round + 1, cases[at].name()));
            match subject.sample(options.span) {
                Ok(sample) => samples.push(sample),
                Err(why) => found[at] = Err(why),
            }
        }
    }
    found
}
