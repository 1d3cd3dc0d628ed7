//! A case: an array of one kind, its state, and the few requests that a crash interrupts.

use std::fmt;

use strake_block::VolatileCache;
use strake_engine::Consistency;
use strake_raid::{Geometry, Level, REGION_BYTES_MIN, Regions};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, MemberSet, RegionIndex};

use super::disk::{DiskSpec, Lie, Pace};
use super::jobs::Job;
use super::record::{TALL_BYTES, stripes};
use super::wide;
use crate::placement::{Asked, Placement};
use crate::rng::{Rng, mix};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Write { range: LbaRange, fua: bool },
    Zeroes { range: LbaRange, fua: bool },
    Flush,
}

impl Request {
    /// The same request, moved by this number of blocks.
    fn behind(self, blocks: u64) -> Self {
        let move_on =
            |LbaRange { start, blocks: count }| LbaRange::new(Lba(start.0 + blocks), count);
        match self {
            Self::Write { range, fua } => Self::Write { range: move_on(range), fua },
            Self::Zeroes { range, fua } => Self::Zeroes { range: move_on(range), fua },
            Self::Flush => Self::Flush,
        }
    }
}

/// A step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Simultaneous requests.
    Requests(Vec<Request>),
    /// A number of rounds, not enough to complete anything for certain.
    Rounds(u64),
    /// A wait for all completions.
    Settle,
    /// Ten seconds: dirty bits are cleared, and delayed work completes.
    Rest,
    /// A failure of a member by the operator, without a wait for its completion.
    Fail(u8),
    /// A clean shutdown.
    Stop,
    /// The start of a job, without a wait for its end.
    Job(Job),
}

/// The state of the array when the history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// The array has just been written.
    Busy,
    /// The array was idle, and no region is dirty.
    Rested,
    /// The array was stopped cleanly and started again.
    Restarted,
}

/// A kind of array.
#[derive(Clone, Copy, Debug)]
struct Kind {
    level: Level,
    members: usize,
    mode: Consistency,
    /// Members that were failed before.
    failed: usize,
    cached: bool,
}

impl Kind {
    /// True if every write to it uses the redo log.
    fn logs(&self) -> bool {
        let copies = matches!(self.level, Level::Raid1 | Level::Raid10);
        let always = self.mode == Consistency::Strict;
        !copies && (always || (self.mode == Consistency::Safe && self.failed > 0))
    }
}

/// Level, members, failures tolerated.
const LEVELS: [(Level, usize, usize); 10] = [
    (Level::Raid5, 3, 1),
    (Level::Raid6, 4, 2),
    (Level::Raid5, 4, 1),
    (Level::Raid1, 2, 1),
    (Level::Raid6, 5, 2),
    (Level::Raid10, 4, 1),
    (Level::Raid1, 3, 2),
    (Level::Raid73, 6, 2),
    // Wide enough for small writes, and with enough parity strips for partial-write records.
    (Level::Raid6, 6, 2),
    (Level::Raid73, 8, 2),
];

const MODES: [Consistency; 4] =
    [Consistency::Safe, Consistency::Strict, Consistency::Resync, Consistency::None];

/// The step between cases in the list of kinds, so that few cases cover many kinds. It is coprime to the number of
/// kinds, which is 208.
const STRIDE: u64 = 61;

/// All kinds.
fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for failed in 0..=2 {
        for cached in [true, false] {
            for mode in MODES {
                for (level, members, most) in LEVELS {
                    if failed <= most {
                        kinds.push(Kind { level, members, mode, failed, cached });
                    }
                }
            }
        }
    }
    kinds
}

/// The number of kinds.
pub(super) fn kinds_count() -> u64 {
    kinds().len() as u64
}

/// A case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) level: Level,
    pub(super) members: usize,
    /// Members of a group, if the level has groups.
    pub(super) group_size: Option<u8>,
    pub(super) mode: Consistency,
    pub(super) cached: bool,
    pub(super) strip_bytes: u32,
    pub(super) disk_block: BlockSize,
    pub(super) array_block: BlockSize,
    pub(super) cores: u16,
    pub(super) ground: Ground,
    /// Members that were out before the history begins.
    pub(super) failed: Vec<u8>,
    /// Whether their drives were removed.
    pub(super) pulled: bool,
    pub(super) before: Before,
    pub(super) lie: Lie,
    pub(super) pace: Pace,
    /// Whether the ring of the redo log is about to wrap around when the history begins.
    pub(super) around: bool,
    /// Whether the history always ends with a clean shutdown.
    pub(super) stops: bool,
    /// The job of the array during the requests.
    pub(super) job: Option<Job>,
    pub(super) plot: Plot,
}

/// The position of the stripes that requests address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ground {
    /// The first stripes of the array: one core serves all of them.
    #[default]
    Start,
    /// The first stripe is the last one of a region, so that two cores serve the stripes if there are two. The number
    /// selects the region.
    Border(u64),
}

/// The source of the steps of a history, after the geometry is known.
#[derive(Clone, Debug)]
pub(super) enum Plot {
    /// Drawn at random.
    Drawn(Rng),
    /// From a list.
    Given(fn(&Geometry) -> Vec<Step>),
}

/// The identifier of a case in a run with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CaseName {
    pub(super) seed: u64,
    pub(super) list: List,
    pub(super) number: u64,
}

/// The source of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Drawn cases.
    Drawn,
    /// Drawn cases with a job: [`super::jobs`].
    Jobs,
    /// The cases of [`super::pairs`].
    Pairs,
    /// Drawn cases of the shapes of [`super::wide`].
    Wide,
    /// Drawn cases with several cores that have writes in flight while the array changes: [`super::cores`].
    Cores,
}

impl List {
    /// The prefix of a number in the list.
    pub(super) const fn letter(self) -> &'static str {
        match self {
            Self::Drawn => "",
            Self::Jobs => "j",
            Self::Pairs => "p",
            Self::Wide => "w",
            Self::Cores => "c",
        }
    }
}

impl fmt::Display for CaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.seed, self.list.letter(), self.number)
    }
}

impl Case {
    /// The case of this number in a run with seed `run`.
    pub(super) fn draw(run: u64, number: u64, lie: Lie) -> Self {
        let kinds = kinds();
        let kind = kinds[(number * STRIDE % kinds.len() as u64) as usize];
        let seed = mix(run ^ mix(number.wrapping_add(1)));
        let mut rng = Rng::new(seed);
        let small = !rng.one_in(4);
        let disk_block = if small { BlockSize::B512 } else { BlockSize::B4096 };
        let array_block = if rng.one_in(4) { BlockSize::B4096 } else { disk_block };
        let mut slots: Vec<u8> = (0..kind.members as u8).collect();
        rng.shuffle(&mut slots);
        slots.truncate(kind.failed);
        let (double, pulled) = (rng.one_in(4), rng.one_in(3));
        let around = kind.logs() && rng.one_in(8);
        Self {
            seed,
            level: kind.level,
            members: kind.members,
            group_size: None,
            mode: kind.mode,
            cached: kind.cached,
            strip_bytes: rng.pick(&[4, 4, 4, 8]) << 10,
            disk_block,
            array_block,
            cores: if double && !around { 2 } else { 1 },
            ground: Ground::Start,
            failed: slots,
            pulled,
            before: rng.pick(&[Before::Busy, Before::Rested, Before::Restarted]),
            lie,
            pace: Pace::Even,
            around,
            stops: false,
            job: None,
            plot: Plot::Drawn(rng.fork()),
        }
    }

    pub(super) fn disk_spec(&self) -> DiskSpec {
        let cache = if self.cached { VolatileCache::Present } else { VolatileCache::Absent };
        DiskSpec {
            bytes: self.drive_bytes(),
            block_size: self.disk_block,
            cache,
            lie: self.lie,
            pace: self.pace,
        }
    }

    /// The smallest size of a member; more if the array must be larger than one region.
    fn drive_bytes(&self) -> u64 {
        let least = strake_ondisk::MEMBER_BYTES_MIN;
        match self.ground {
            Ground::Start => least,
            Ground::Border(_) => {
                let placement = self.placement_on(least);
                let capacity = placement.stripes() * placement.data() * placement.strip_bytes();
                least + (REGION_BYTES_MIN << 20).div_ceil(capacity).next_multiple_of(1 << 20)
            }
        }
    }

    /// The expected placement of its bytes.
    pub(super) fn placement(&self) -> Placement {
        self.placement_on(self.drive_bytes())
    }

    fn placement_on(&self, drive_bytes: u64) -> Placement {
        Placement::of(&Asked {
            level: self.level,
            members: self.members,
            group_size: self.group_size,
            strip_bytes: self.strip_bytes,
            drive_bytes,
        })
    }

    /// The first stripe that requests address.
    pub(super) fn first_stripe(&self, geometry: &Geometry) -> u64 {
        let regions = Regions::new(geometry);
        match (self.ground, u64::from(regions.count()) - 1) {
            (Ground::Start, _) | (Ground::Border(_), 0) => 0,
            (Ground::Border(chance), borders) => {
                regions.stripes(RegionIndex((chance % borders) as u32)).end - 1
            }
        }
    }

    /// The number of drives; a spare comes last.
    pub(super) fn drives(&self) -> usize {
        self.members + usize::from(self.spare_slot().is_some())
    }

    /// The slot that the spare fills, if there is one.
    pub(super) fn spare_slot(&self) -> Option<u8> {
        self.job.and_then(Job::slot_of_spare)
    }

    /// The affected slots if the drives of a mask are lost.
    pub(super) fn slots(&self, drives: u64) -> MemberSet {
        let spare = self.spare_slot().filter(|_| drives >> self.members & 1 == 1);
        let members = MemberSet::from_bits(drives) & MemberSet::first_n(self.members);
        members | spare.map(MemberIndex).into_iter().collect()
    }

    /// The members that are failed when the history begins.
    pub(super) fn out(&self) -> MemberSet {
        self.failed.iter().copied().map(MemberIndex).collect()
    }

    /// True if its mode is `strict` at some time.
    pub(super) fn is_ever_strict(&self) -> bool {
        self.mode == Consistency::Strict || self.job == Some(Job::Mode(Consistency::Strict))
    }

    /// The steps of the history.
    pub(super) fn script(&self, geometry: &Geometry) -> Vec<Step> {
        match &self.plot {
            Plot::Drawn(rng) => self.drawn(geometry, rng.clone()),
            Plot::Given(steps) => steps(geometry),
        }
    }

    fn drawn(&self, geometry: &Geometry, mut rng: Rng) -> Vec<Step> {
        let mut steps = Vec::new();
        let first = self.first_stripe(geometry) * geometry.stripe_data_blocks();
        let requests = |rng: &mut Rng| {
            let count = rng.between(1, 3);
            Step::Requests((0..count).map(|_| request(geometry, rng).behind(first)).collect())
        };
        let late = self.pace == Pace::Uneven;
        if late {
            // Some of these requests are still in flight when the array changes.
            steps.extend([requests(&mut rng), Step::Rounds(rng.below(12))]);
        }
        steps.extend(self.job.iter().flat_map(|job| job.steps(&mut rng)));
        let out = self.out();
        for burst in 0..rng.between(1, 3) {
            steps.push(requests(&mut rng));
            let victim = rng.below(self.members as u64) as u8;
            if burst == 0
                && rng.one_in(if late { 2 } else { 4 })
                && !out.contains(MemberIndex(victim))
                && geometry.tolerates(out.with(MemberIndex(victim)))
            {
                steps.push(Step::Rounds(rng.below(12)));
                steps.push(Step::Fail(victim));
            }
            steps.push(if rng.one_in(2) { Step::Settle } else { Step::Rounds(rng.below(16)) });
        }
        steps.push(Step::Settle);
        match if self.stops { 1 } else { rng.below(4) } {
            0 => steps.push(Step::Rest),
            1 => steps.push(Step::Stop),
            2 => steps.extend([Step::Requests(vec![Request::Flush]), Step::Settle]),
            _ => {}
        }
        steps
    }
}

fn request(geometry: &Geometry, rng: &mut Rng) -> Request {
    let (strip, stripe) = (u64::from(geometry.strip_blocks()), geometry.stripe_data_blocks());
    let blocks = match rng.below(8) {
        0..=2 => 1,
        3 => rng.between(1, strip),
        4 => strip,
        5 => stripe,
        _ => rng.between(1, stripe + 1),
    };
    let strip_bytes = u64::from(geometry.strip_bytes());
    if strip_bytes >= TALL_BYTES {
        return wide::request(geometry, rng);
    }
    let ground = stripe * (stripes(strip_bytes) - 1);
    // Few positions, so that requests overlap.
    let start = match rng.below(4) {
        0 => 0,
        1 => rng.below(2) * stripe,
        2 => rng.below(4) * strip,
        _ => rng.below(2 * stripe),
    };
    let range =
        LbaRange::new(Lba(start.min(ground - 1)), blocks.min(ground - start.min(ground - 1)));
    let fua = rng.one_in(3);
    match rng.below(8) {
        0 => Request::Flush,
        1 => Request::Zeroes { range, fua },
        _ => Request::Write { range, fua },
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RAID {} of {}{}, {}, strip {} KiB, blocks {} on {}, {}, {} core(s), {:?}{}, out before: {:?}{}",
            self.level,
            self.members,
            self.group_size.map_or(String::new(), |size| format!(" in groups of {size}")),
            self.mode,
            self.strip_bytes >> 10,
            self.array_block.bytes(),
            self.disk_block.bytes(),
            if self.cached { "volatile cache" } else { "no cache" },
            self.cores,
            self.before,
            if self.around { " at the end of the ring" } else { "" },
            self.failed,
            if self.pulled { " and pulled" } else { "" }
        )?;
        if self.ground != Ground::Start {
            f.write_str(", over a border of regions")?;
        }
        if self.pace == Pace::Uneven {
            f.write_str(", some I/Os slow")?;
        }
        self.job.map_or(Ok(()), |job| write!(f, ", {job:?}"))
    }
}
