//! Images: the content of a root. An image and the log from its floors on form a whole map.

use crate::blocks::{BlockSet, Partial};
use crate::codec::{Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::ids::{ClusterId, LeafId, Number, Ring, VolumeId};
use crate::record::SpacePolicy;
use crate::shape::Shape;
#[cfg(test)]
use crate::state::MapState;
use strake_units::name::NAME_BYTES_MAX;

use crate::clusters::Home;
use crate::tables::{Leaf, Tables, UNMAPPED, Volume, VolumeKind};

const MAGIC: [u8; 8] = *b"STRKVMAP";
const VERSION: u16 = 1;

/// The content of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(crate) sequence: u64,
    pub(crate) start: u32,
    pub(crate) floors: Vec<Number>,
    pub(crate) previous: Option<Vec<Number>>,
    pub(crate) tables: Tables,
}

impl Image {
    /// Returns the image of a map at this time, without the references that records below the floors gave up.
    #[cfg(test)]
    pub(crate) fn of(map: &MapState, floors: &[Number]) -> Self {
        let mut tables = Tables { frozen: None, ..map.tables.clone() };
        tables.clusters.thaw();
        for given_up in map.given_up.iter().flatten() {
            if let crate::state::Reference::Cluster(cluster) = given_up.what {
                tables.release(cluster, given_up.by);
            }
        }
        let (sequence, start) = (map.sequence, map.start.number);
        let previous = map.floors.first().cloned();
        Self { sequence, start, floors: floors.to_vec(), previous, tables }
    }

    /// The sequence of the root. The valid root with the highest sequence is used.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The first record number of a ring that the image lacks. `None` if there is no such ring.
    #[must_use]
    pub fn floor(&self, ring: Ring) -> Option<Number> {
        self.floors.get(ring.at()).copied()
    }

    /// The shape of the pool when the image was written.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.tables.shape
    }

    /// Returns the bytes of the image. Images of equal maps have equal bytes.
    #[cfg(test)]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut tables = self.tables.clone();
        let head = Head { sequence: self.sequence, start: self.start, floors: &self.floors };
        let head = head.encode(self.previous.as_deref(), &tables);
        tables.freeze(head, &self.floors, std::iter::empty());
        let mut bytes = Vec::new();
        while !tables.root_piece(&mut bytes, usize::MAX) {}
        bytes
    }

    /// Reads an image, and recounts its references.
    ///
    /// # Errors
    /// If the image is damaged, or a field has an impossible value: the error has the name of the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::checked(bytes)?;
        if from.array::<8>("magic")? != MAGIC {
            return Err(ErrorKind::Magic.into());
        }
        let version = from.u16("version")?;
        from.require("version", u64::from(version), version == VERSION)?;
        let (sequence, start) = (from.u64("sequence")?, from.u32("start")?);
        let shape = Shape {
            clusters: from.u32("clusters")?,
            cluster_blocks: from.u16("cluster_blocks")?,
            leaf_entries: from.u16("leaf_entries")?,
            rings: from.u8("rings")?,
        };
        let shape = shape.check()?;
        let floors = get_floors(&mut from, shape)?;
        let previous = match from.u8("previous")? {
            0 => None,
            1 => Some(get_floors(&mut from, shape)?),
            flag => return Err(ErrorKind::Field { name: "previous", recorded: flag.into() }.into()),
        };
        let next_volume = from.u32("next_volume")?;
        // This precedes the allocation of any table of this size: the image must contain as many clusters.
        from.require_room("clusters", u64::from(shape.clusters) * CLUSTER_BYTES)?;
        let mut tables = Tables { next_volume, ..Tables::new(shape) };
        get_leaves(&mut from, &mut tables)?;
        get_volumes(&mut from, &mut tables)?;
        get_clusters(&mut from, &mut tables)?;
        from.end()?;
        let image = Self { sequence, start, floors, previous, tables };
        image.check_references()?;
        Ok(image)
    }

    /// Checks that the counts of clusters are exactly the references to them, and that every leaf has a root.
    fn check_references(&self) -> Result<(), Error> {
        let tables = &self.tables;
        let field = |name, recorded| Err(ErrorKind::Field { name, recorded }.into());
        let counted = tables.recount();
        let wrong = (0..)
            .zip(counted.iter().zip(tables.clusters.counts()))
            .find(|(_, (is, has))| is != has);
        if let Some((_, (_, recorded))) = wrong {
            return field("count", u64::from(*recorded));
        }
        let mut leaves = tables.leaves.iter().flatten();
        let wrong = leaves.find(|leaf| leaf.references == 0 || !self.is_below_floor(leaf.id));
        wrong.map_or(Ok(()), |leaf| field("leaf", leaf.id.0))
    }

    /// True if no record from the floors on creates a leaf with this identifier. Leaves of removed rings are below the
    /// floors of that time, and each ring continued above all of these floors.
    fn is_below_floor(&self, leaf: LeafId) -> bool {
        let (ring, number) = leaf.record();
        let most = self.floors.iter().max();
        self.floors.get(ring.at()).or(most).is_some_and(|floor| number < *floor)
    }
}

/// The first fields of an image.
pub(crate) struct Head<'a> {
    pub(crate) sequence: u64,
    /// The number of the start that wrote it.
    pub(crate) start: u32,
    pub(crate) floors: &'a [Number],
}

impl Head<'_> {
    /// Returns the fields before the first leaf. `previous` has the floors of the other root.
    pub(crate) fn encode(&self, previous: Option<&[Number]>, tables: &Tables) -> Vec<u8> {
        let shape = tables.shape;
        let mut out = Writer::default();
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u64(self.sequence);
        out.u32(self.start);
        out.u32(shape.clusters);
        out.u16(shape.cluster_blocks);
        out.u16(shape.leaf_entries);
        out.u8(shape.rings);
        self.floors.iter().for_each(|floor| out.u64(floor.0));
        out.u8(u8::from(previous.is_some()));
        previous.into_iter().flatten().for_each(|floor| out.u64(floor.0));
        out.u32(tables.next_volume);
        out.u32(tables.slots.len() as u32);
        out.into_bytes()
    }
}

/// Bytes of the count and the home of a cluster.
const CLUSTER_BYTES: u64 = 13;

/// Bytes of a volume without its name and its leaf references.
const VOLUME_BYTES: u64 = 32;

/// Bytes of the fields that exist once, without the floors.
const FIXED_BYTES: u64 = 56;

impl Shape {
    /// Maximum bytes of an image of this shape: the bytes of a place for a root.
    #[must_use]
    pub fn image_bytes_max(self) -> u64 {
        let leaf = 8 + 4 * u64::from(self.leaf_entries);
        let partial = 8 + 16 * u64::from(self.cluster_blocks.div_ceil(64));
        FIXED_BYTES
            + 16 * u64::from(self.rings)
            + leaf * self.leaves_max() as u64
            + (VOLUME_BYTES + NAME_BYTES_MAX as u64) * self.volumes_max() as u64
            + 8 * self.root_entries_max() as u64
            + (CLUSTER_BYTES + partial) * u64::from(self.clusters)
    }
}

fn get_floors(from: &mut Reader<'_>, shape: Shape) -> Result<Vec<Number>, Error> {
    let mut floor = || {
        let floor = from.number("floor")?;
        // Record 0 would create leaf 0, which does not exist.
        from.require("floor", floor.0, floor.0 > 0)?;
        Ok(floor)
    };
    (0..shape.rings).map(|_| floor()).collect()
}

fn get_leaves(from: &mut Reader<'_>, tables: &mut Tables) -> Result<(), Error> {
    let entries = usize::from(tables.shape.leaf_entries);
    let leaves = from.u32("leaves")?;
    from.require("leaves", u64::from(leaves), leaves as usize <= tables.leaves_max)?;
    from.require_room("leaves", u64::from(leaves) * (8 + 4 * entries as u64))?;
    for _ in 0..leaves {
        let id = LeafId(from.u64("leaf")?);
        from.require("leaf", id.0, id.0 != 0 && !tables.slots.contains_key(&id))?;
        let mut leaf = vec![UNMAPPED; entries].into_boxed_slice();
        for entry in &mut leaf {
            *entry = from.u32("entry")?;
            let is_known = *entry == UNMAPPED || *entry < tables.shape.clusters;
            from.require("entry", u64::from(*entry), is_known)?;
        }
        tables.insert_leaf(Leaf { id, references: 0, given_up: 0, entries: leaf });
    }
    Ok(())
}

fn get_volumes(from: &mut Reader<'_>, tables: &mut Tables) -> Result<(), Error> {
    let volumes = from.u32("volumes")?;
    let (volumes_max, entries_max) = (tables.shape.volumes_max(), tables.shape.root_entries_max());
    from.require("volumes", u64::from(volumes), volumes as usize <= volumes_max)?;
    for _ in 0..volumes {
        let id = VolumeId(from.u32("volume")?);
        let is_new = id.0 < tables.next_volume && !tables.volumes.contains_key(&id);
        from.require("volume", u64::from(id.0), is_new)?;
        let volume = get_volume(from, tables)?;
        tables.insert_volume(id, volume);
        let entries = tables.root_entries;
        from.require("root", entries as u64, entries <= entries_max)?;
    }
    Ok(())
}

fn get_volume(from: &mut Reader<'_>, tables: &mut Tables) -> Result<Volume, Error> {
    let shape = tables.shape;
    let name = from.name()?;
    let blocks = from.u64("blocks")?;
    from.require("blocks", blocks, blocks > 0 && blocks <= shape.volume_blocks_max())?;
    let is_snapshot = from.flag("kind")?;
    let kind = if is_snapshot { VolumeKind::Snapshot } else { VolumeKind::Writable };
    let is_dying = from.flag("dying")?;
    let policy: SpacePolicy = from.policy()?;
    let seed = from.u32("seed")?;
    let origin = from.u32("origin")?;
    let origin = (origin != 0).then_some(VolumeId(origin));
    let entries = from.u32("root")?;
    from.require("root", u64::from(entries), entries as usize == shape.leaves_of(blocks))?;
    from.require_room("root", u64::from(entries) * 8)?;
    let mut root = Vec::with_capacity(entries as usize);
    let (mut mapped, mut leaves) = (0, 0);
    for _ in 0..entries {
        let id = from.u64("root entry")?;
        let slot = tables.slots.get(&LeafId(id)).copied();
        from.require("root entry", id, id == 0 || slot.is_some())?;
        if let Some(slot) = slot {
            let leaf = tables.leaf_mut(slot);
            leaf.references += 1;
            leaves += 1;
            mapped += leaf.entries.iter().filter(|entry| **entry != UNMAPPED).count() as u32;
        }
        root.push(slot);
    }
    Ok(Volume { name, blocks, kind, is_dying, policy, seed, origin, mapped, leaves, root })
}

fn get_clusters(from: &mut Reader<'_>, tables: &mut Tables) -> Result<(), Error> {
    let shape = tables.shape;
    for at in 0..shape.clusters {
        let count = from.u32("count")?;
        let ring = Ring(from.u8("home ring")?);
        from.require("home ring", u64::from(ring.0), ring.0 < shape.rings)?;
        let number = from.number("home number")?;
        tables.clusters.set_count(ClusterId(at), count);
        tables.clusters.set_home(ClusterId(at), Home { ring, number });
        if count > 0 {
            tables.free.remove(ClusterId(at));
        }
    }
    let partials = from.u32("partials")?;
    for _ in 0..partials {
        let cluster = from.u32("partial cluster")?;
        let in_use = tables.clusters.counts().get(cluster as usize).is_some_and(|count| *count > 0);
        from.require("partial cluster", u64::from(cluster), in_use)?;
        let partial = from.partial(shape)?;
        let is_new =
            tables.clusters.set_partial(ClusterId(cluster), Some(Box::new(partial))).is_none();
        from.require("partial cluster", u64::from(cluster), is_new)?;
    }
    tables.check_bases()
}

impl Tables {
    /// Counts the references to each cluster again.
    pub(crate) fn recount(&self) -> Vec<u32> {
        let mut counted = vec![0; self.shape.clusters as usize];
        let entries = self.leaves.iter().flatten().flat_map(|leaf| leaf.entries.iter());
        let bases = self.clusters.partials().filter_map(|partial| partial.base);
        let mapped = entries.copied().filter(|entry| *entry != UNMAPPED);
        mapped.chain(bases.map(|base| base.0)).for_each(|cluster| counted[cluster as usize] += 1);
        counted
    }

    /// Refuses partial bases: a read must need at most one partial cluster.
    pub(crate) fn check_bases(&self) -> Result<(), Error> {
        let mut bases = self.clusters.partials().filter_map(|partial| partial.base);
        let is_whole = |base: &ClusterId| self.clusters.partial(*base).is_none();
        let wrong = bases.find(|base| !is_whole(base));
        let field = |base: ClusterId| ErrorKind::Field { name: "base", recorded: base.0.into() };
        wrong.map_or(Ok(()), |base| Err(field(base).into()))
    }
}

impl Writer {
    /// Writes the state of a partial cluster.
    pub(crate) fn partial(&mut self, partial: &Partial, cluster_blocks: u16) {
        let words = usize::from(cluster_blocks.div_ceil(64));
        partial.own.0[..words].iter().for_each(|word| self.u64(*word));
        partial.zero.0[..words].iter().for_each(|word| self.u64(*word));
        self.u32(partial.base.map_or(UNMAPPED, |base| base.0));
    }
}

impl Reader<'_> {
    /// Reads the state of a partial cluster: every block has one state, and a base exists.
    pub(crate) fn partial(&mut self, shape: Shape) -> Result<Partial, Error> {
        let words = usize::from(shape.cluster_blocks.div_ceil(64));
        let mut partial = Partial { own: BlockSet::EMPTY, zero: BlockSet::EMPTY, base: None };
        for word in &mut partial.own.0[..words] {
            *word = self.u64("own")?;
        }
        for word in &mut partial.zero.0[..words] {
            *word = self.u64("zero")?;
        }
        let base = self.u32("base")?;
        let is_known = base == UNMAPPED || base < shape.clusters;
        self.require("base", u64::from(base), is_known)?;
        partial.base = (base != UNMAPPED).then_some(ClusterId(base));
        let all = Partial::zeroes(shape.cluster_blocks).zero;
        let both = partial.own.with(&partial.zero);
        let overlap = partial.own.len() + partial.zero.len() - both.len();
        self.require("own", u64::from(partial.own.len()), all.has_all(&both) && overlap == 0)?;
        let is_whole = partial.is_whole(shape.cluster_blocks);
        self.require("own", u64::from(partial.own.len()), !is_whole)?;
        let lacks = !partial.zero.with(&partial.own).has_all(&all);
        self.require("base", u64::from(base), !lacks || partial.base.is_some())?;
        Ok(partial)
    }
}
