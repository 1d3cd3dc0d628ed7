//! The parameters of a world, drawn from its seed.

use strake_block::{DeallocateReads, VolatileCache};
use strake_engine::Consistency;
use strake_raid::Level;
use strake_units::{BlockSize, Nanos};

use crate::drive::DriveSpec;
use crate::faults::Rates;
use crate::placement::{Asked, Placement};
use crate::rng::Rng;
use crate::world::Limits;

/// The parameters of one world.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Members of all groups.
    pub members: usize,
    /// Members per group for 50, 60, 70.
    pub group_size: Option<u8>,
    /// Strip in bytes.
    pub strip_bytes: u32,
    /// Requested block size, if any.
    pub block_size: Option<BlockSize>,
    /// The properties of each member's drive.
    pub drives: Vec<DriveSpec>,
    /// The consistency mode.
    pub consistency: Consistency,
    /// Shards.
    pub cores: u16,
    /// Whether waiting writes are merged.
    pub merge: bool,
    /// Whether reads prefer the fastest member.
    pub steer: bool,
    /// Whether the parity cache is enabled.
    pub cache: bool,
    /// Clients, each with a queue on core `i % cores`.
    pub clients: usize,
    /// Largest number of outstanding requests per client.
    pub depth: usize,
    /// Fault rates.
    pub rates: Rates,
    /// Host requests of the whole run, without the final check.
    pub requests: u64,
    /// Average number of requests between two control actions.
    pub calm: u64,
}

/// Level; smallest and largest width of a group; smallest and largest number of groups.
const LEVELS: [(Level, [u64; 2], [u64; 2]); 12] = [
    (Level::Raid0, [2, 5], [1, 1]),
    (Level::Raid1, [2, 4], [1, 1]),
    (Level::Raid10, [2, 2], [2, 3]),
    (Level::Raid5, [3, 6], [1, 1]),
    (Level::Raid5, [3, 6], [1, 1]),
    (Level::Raid6, [4, 8], [1, 1]),
    (Level::Raid6, [4, 8], [1, 1]),
    (Level::Raid73, [5, 8], [1, 1]),
    (Level::Parity(4), [6, 10], [1, 1]),
    (Level::Raid50, [3, 4], [2, 3]),
    (Level::Raid60, [4, 5], [2, 2]),
    (Level::Raid70, [5, 6], [2, 2]),
];

/// One of this many worlds has remote drives.
const REMOTE_IN: u64 = 4;

impl Shape {
    /// Draws a shape.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        // Later additions draw from a separate generator.
        let mut later = rng.beside();
        let (level, widths, groups) = rng.pick(&LEVELS);
        // Wide arrays cost most and add few cases.
        let width = rng.between(widths[0], widths[1]).min(rng.between(widths[0], widths[1]));
        let members = width * rng.between(groups[0], groups[1]);
        let large = rng.one_in(8);
        let strip_bytes = Self::strip(rng, large);
        let mixed = rng.one_in(5);
        let small = rng.one_in(2);
        let rows = Self::rows(rng, strip_bytes, large, members);
        let deallocate =
            if rng.one_in(4) { DeallocateReads::Unspecified } else { DeallocateReads::Zeroes };
        let cached = rng.below(4);
        let drive = |rng: &mut Rng| DriveSpec {
            bytes: strake_ondisk::HEAD_BYTES
                + strake_ondisk::TAIL_BYTES
                + rows * u64::from(strip_bytes)
                + 4096 * rng.below(4),
            block_size: if small != (mixed && rng.one_in(2)) {
                BlockSize::B512
            } else {
                BlockSize::B4096
            },
            cache: if cached == 0 || (cached == 1 && rng.one_in(2)) {
                VolatileCache::Absent
            } else {
                VolatileCache::Present
            },
            deallocate,
            settle_time: Nanos(0),
        };
        let mut drives: Vec<DriveSpec> = (0..members).map(|_| drive(rng)).collect();
        if later.one_in(REMOTE_IN) {
            drives.iter_mut().for_each(|drive| drive.settle_time = Self::settle_time(&mut later));
        }
        let cores = rng.between(1, 3) as u16;
        let merge = !rng.one_in(4);
        let clients = usize::from(cores) + rng.below(2) as usize;
        let depth = rng.pick(&[1, 4, 8, 16]);
        let rates = Self::rates(rng);
        // Most histories are short and eventful; rare long sequences are left to the others.
        let requests = if rng.one_in(20) { rng.between(200, 400) } else { rng.between(20, 60) };
        Self {
            level,
            members: members as usize,
            group_size: level.is_grouped().then_some(width as u8),
            strip_bytes,
            block_size: rng.one_in(5).then_some(BlockSize::B4096),
            drives,
            // The value follows from another number of the seed, as below.
            consistency: match requests % 5 {
                0 => Consistency::Resync,
                1 | 2 => Consistency::Strict,
                _ => Consistency::Safe,
            },
            cores,
            merge,
            // The value follows from another number of the seed, so that the worlds of kept seeds do not change.
            steer: !requests.is_multiple_of(3),
            cache: requests.is_multiple_of(3) != requests.is_multiple_of(2),
            clients,
            depth,
            rates,
            requests,
            calm: rng.pick(&[3, 6, 16]),
        }
    }

    /// The shape reduced to `limits`.
    #[must_use]
    pub fn within(self, limits: &Limits) -> Self {
        Self {
            requests: self.requests.min(limits.requests.unwrap_or(u64::MAX)),
            clients: self.clients.min(limits.clients.unwrap_or(usize::MAX)).max(1),
            cores: self.cores.min(limits.cores.unwrap_or(u16::MAX)).max(1),
            ..self
        }
    }

    fn strip(rng: &mut Rng, large: bool) -> u32 {
        let usual = if rng.one_in(16) { [256; 5] } else { [4, 8, 16, 32, 64] };
        let sizes = if large { [32, 64, 64, 128, 256] } else { usual };
        rng.pick(&sizes) << 10
    }

    /// The minimum keeps a rebuild short; `large` worlds have several regions.
    fn rows(rng: &mut Rng, strip_bytes: u32, large: bool, members: u64) -> u64 {
        let fewest = (1u64 << 20).div_ceil(u64::from(strip_bytes));
        if large {
            let bytes = rng.between(20, 64) << 20;
            return (bytes / (members * u64::from(strip_bytes))).max(fewest);
        }
        rng.between(fewest, 2 * fewest)
    }

    fn rates(rng: &mut Rng) -> Rates {
        let rate =
            |rng: &mut Rng, most: u64| if rng.one_in(2) { 0 } else { rng.below(most) as u32 };
        Rates {
            medium: rate(rng, 80_000),
            device: rate(rng, 9_000),
            vanish: rate(rng, 1_800),
            hang: rate(rng, 3_600),
            delay: rate(rng, 27_000),
        }
    }

    /// The settle time of a drive's target: most drives of such a world are remote.
    fn settle_time(rng: &mut Rng) -> Nanos {
        let most = strake_block::SETTLE_TIME_MAX.0 / Nanos::MILLI.0;
        let millis = if rng.one_in(4) { 0 } else { rng.between(1, most) };
        Nanos::MILLI.times(millis)
    }

    /// The expected placement of the array's bytes.
    #[must_use]
    pub fn placement(&self) -> Placement {
        Placement::of(&Asked {
            level: self.level,
            members: self.members,
            group_size: self.group_size,
            strip_bytes: self.strip_bytes,
            drive_bytes: self.drives.iter().map(|drive| drive.bytes).min().unwrap_or(0),
        })
    }

    /// A short description.
    #[must_use]
    pub fn describe(&self) -> String {
        let group = self.group_size.map_or(String::new(), |g| format!(" in groups of {g}"));
        let remote = self.drives.iter().filter(|drive| drive.settle_time > Nanos(0)).count();
        let remote = if remote > 0 { format!(" ({remote} remote)") } else { String::new() };
        format!(
            "RAID {} of {}{group}{remote}, {}, strip {} KiB, {} core(s), {} client(s) of depth {}, merge {}, steer {}, \
             cache {}, {} requests, {:?}",
            self.level,
            self.members,
            self.consistency,
            self.strip_bytes >> 10,
            self.cores,
            self.clients,
            self.depth,
            self.merge,
            self.steer,
            self.cache,
            self.requests,
            self.rates
        )
    }
}
