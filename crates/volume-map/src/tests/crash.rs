//! Crashes of a world, and the starts after them.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::world::World;
use crate::{Error, Image, Record, Ring, VolumeMap, encode_record, scan_log};

/// A crash: the number of stable records of each ring, the cached blocks that reached the drives, whether the newest
/// root is unreadable, and whether the caches survive.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    pub(crate) upto: Vec<usize>,
    pub(crate) caches: Vec<usize>,
    pub(crate) is_newest_lost: bool,
    pub(crate) is_kill: bool,
}

/// The bytes of both slots of a root.
type Roots = [Option<Vec<u8>>; 2];

impl World {
    /// The number of choices of each part of a crash: records of each ring, cached writes of each block, roots.
    pub(crate) fn crash_choices(&self) -> Vec<usize> {
        let rings =
            (0..self.map.state.rings.len()).map(|ring| self.map.records(Ring(ring as u8)).len());
        let caches = self.cache.values().map(Vec::len);
        rings.chain(caches).map(|most| most + 1).chain([2]).collect()
    }

    pub(crate) fn crash_of(&self, pick: &[usize], is_kill: bool) -> Crash {
        let rings = self.map.state.rings.len();
        let full = self.cache.values().map(Vec::len).collect();
        let caches = pick[rings..pick.len() - 1].to_vec();
        let is_newest_lost = !is_kill && pick[pick.len() - 1] == 1;
        let caches = if is_kill { full } else { caches };
        Crash { upto: pick[..rings].to_vec(), caches, is_newest_lost, is_kill }
    }

    /// Returns the world after a crash and a start.
    pub(crate) fn start(&self, crash: &Crash, rings: u8) -> Result<Self, Error> {
        let mut disk = self.disk.clone();
        for ((at, writes), count) in self.cache.iter().zip(&crash.caches) {
            if *count > 0 {
                disk.insert(*at, writes[count - 1]);
            }
        }
        let mut logs = self.logs.clone();
        for (ring, upto) in crash.upto.iter().enumerate() {
            logs[ring].extend(self.map.records(Ring(ring as u8)).take(*upto).cloned());
        }
        let (image, roots) = self.readable_roots(crash.is_newest_lost)?;
        logs.resize(image.floors.len().max(logs.len()), Vec::new());
        let shape = image.shape();
        let bytes = |log: &Vec<Record>| -> Vec<u8> {
            log.iter().flat_map(|record| encode_record(record, shape)).collect()
        };
        let read: Vec<Vec<Record>> = (0..image.floors.len())
            .map(|ring| scan_log(&bytes(&logs[ring]), Ring(ring as u8), shape).records)
            .collect();
        assert_eq!(read, logs[..image.floors.len()], "records are read as they were written");
        let nonce = self.map.state.start.nonce + 1;
        let map = VolumeMap::open(&image, &read, rings, nonce)?;
        let again = VolumeMap::open(&image, &read, rings, nonce)?;
        assert_eq!(map, again, "a start that is repeated has the same result");
        let (needs, free) = (map.state.needs.total(), u64::from(map.state.tables.free.len()));
        assert!(needs <= free, "{needs} clusters are reserved, {free} are free");
        let tasks = Vec::new();
        let kept = if crash.is_kill { self.oracle.acked } else { self.oracle.durable };
        let (oracle, cache) = (self.oracle.clone(), BTreeMap::new());
        let (failed, faults, root_piece) = (Vec::new(), 0, self.root_piece);
        let mut world =
            Self { map, disk, cache, logs, roots, tasks, oracle, kept, failed, faults, root_piece };
        world.logs.resize(world.logs.len().max(usize::from(rings)), Vec::new());
        Ok(world)
    }

    fn readable_roots(&self, is_newest_lost: bool) -> Result<(Image, Roots), Error> {
        let decode = |bytes: &Vec<u8>| Image::decode(bytes);
        let mut images: Vec<(usize, Image)> = Vec::new();
        for (place, bytes) in self.roots.iter().enumerate() {
            if let Some(bytes) = bytes {
                images.push((place, decode(bytes)?));
            }
        }
        images.sort_by_key(|(_, image)| image.sequence());
        let mut roots = self.roots.clone();
        if is_newest_lost && images.len() > 1 {
            let (place, _) = images.pop().expect("two roots");
            roots[place] = None;
        }
        let (_, image) = images.pop().expect("a root");
        Ok((image, roots))
    }

    /// A hash of the state that survives a crash.
    pub(crate) fn remains(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.disk, &self.cache, &self.logs, &self.roots, &self.oracle).hash(&mut hasher);
        for ring in &self.map.state.rings {
            ring.records.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// A hash of the whole state.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.remains(), &self.tasks, self.faults).hash(&mut hasher);
        self.map.hash_without_woken(&mut hasher);
        hasher.finish()
    }
}
