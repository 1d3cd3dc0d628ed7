//! Creates, finds and opens pools, one I/O at a time, on a control thread.

use std::sync::Arc;

use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut, DeviceInfo, Sg};
use strake_ondisk::{
    LogStart, POOL_BLOCK_BYTES, POOL_HEADER_BYTES, PoolHeader, PoolSlot, RootHeader,
    decode_pool_header, decode_root_header, device_mark, encode_pool_header, encode_root_header,
    newest_pool_header,
};
use strake_units::{CoreIndex, LbaRange, Name, Nanos, Uuid};
use strake_volume_map::{Image, Progress, Request, Step, VolumeMap};

use crate::error::{PoolError, PoolErrorKind};
use crate::layout::Layout;
use crate::limits::{LOG_SEQUENCE_MAX, TRANSFER_BYTES};
use crate::log::{LOG_WRITE_BLOCKS, Log, LogReader};

/// A new pool.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// The name of the pool.
    pub name: Name,
    /// The identity of the pool, drawn at random.
    pub pool: Uuid,
    /// A random number that no other start of the pool has used.
    pub nonce: u64,
}

/// A pool whose map is in memory, ready to start.
pub struct Opened {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) layout: Layout,
    pub(crate) map: VolumeMap,
    pub(crate) log: Log,
}

impl Opened {
    /// The header of the pool.
    #[must_use]
    pub fn header(&self) -> &PoolHeader {
        &self.layout.header
    }
}

/// Waits for a short time and returns the time, or `None` to stop waiting. See [`Blocking::new`].
pub type Wait<'a> = &'a mut dyn FnMut() -> Option<Nanos>;

/// Creates a pool on a device, whose former content is lost, and returns it ready to start. The headers are written
/// last: an interrupted creation leaves no pool.
///
/// # Errors
/// If the device is not suitable or too small, or an I/O fails.
pub fn create(
    device: Arc<dyn BlockDevice>,
    spec: &PoolSpec,
    wait: Wait<'_>,
) -> Result<Opened, PoolError> {
    let layout = Layout::new(&device.info(), &spec.name, spec.pool)?;
    create_as(device, layout, spec.nonce, wait)
}

pub(crate) fn create_as(
    device: Arc<dyn BlockDevice>,
    layout: Layout,
    nonce: u64,
    wait: Wait<'_>,
) -> Result<Opened, PoolError> {
    let name = layout.header.name.as_str().to_owned();
    let map = VolumeMap::create(layout.shape, nonce);
    let mut map = map.map_err(|error| damaged(&name, &error))?;
    let mut io = Disk::open(&*device, &name, wait)?;
    while map.needs_roots() {
        let id = map.begin(Request::Checkpoint).map_err(|error| damaged(&name, &error))?;
        let Progress::Do(Step::WriteRoot { place, sequence, .. }) = map.advance(id) else {
            let what = "a new map waits for records";
            return Err(PoolError::new(PoolErrorKind::Damaged, name, what));
        };
        let mut image = Vec::new();
        while !map.root_piece(&mut image, usize::MAX) {}
        let root = root_bytes(&layout, sequence, &image);
        io.write(&layout, layout.root(place), &root, "write a root")?;
        map.completed(id);
        map.advance(id);
    }
    for sequence in 0..2 {
        let slot = encode_pool_header(&layout.header, sequence);
        let at = sequence * POOL_BLOCK_BYTES as u64;
        io.write(&layout, at, &slot, "write the header")?;
    }
    let start = LogStart { number: map.start().number, nonce };
    let reader = LogReader::new(layout.header.pool, layout.shape, 0);
    let (_, log) = reader.finish(layout.header.log_blocks(), start, 0);
    Ok(Opened { device, layout, map, log })
}

/// Returns the header of the pool on a device, or `None` without a pool.
///
/// # Errors
/// If the header is damaged or of a later version, or an I/O fails.
pub fn find(device: &dyn BlockDevice, wait: Wait<'_>) -> Result<Option<PoolHeader>, PoolError> {
    let info = device.info();
    if info.bytes() < POOL_HEADER_BYTES {
        return Ok(None);
    }
    let mut io = Disk::open(device, &info.identity, wait)?;
    let bytes = io.read(info.block_size, 0, POOL_HEADER_BYTES as usize, "read the header")?;
    let (even, odd) = bytes.as_slice().split_at(POOL_BLOCK_BYTES);
    let refuse = |kind, what: String| Err(PoolError::new(kind, info.identity.clone(), what));
    match newest_pool_header([decode_pool_header(even), decode_pool_header(odd)]) {
        PoolSlot::Nothing => Ok(None),
        // A pool of an earlier array on the same drives is none of this array.
        PoolSlot::Header(header) if header.record.device != device_mark(&info.identity) => Ok(None),
        PoolSlot::Header(header) => Ok(Some(header.record)),
        PoolSlot::Damaged(field) => refuse(
            PoolErrorKind::Damaged,
            format!("both headers of its pool are damaged (field {field})"),
        ),
        PoolSlot::Newer { version, features } => refuse(
            PoolErrorKind::Newer,
            format!(
                "its pool has version {version} and features {features:#x} of a later release; \
                 install that release"
            ),
        ),
    }
}

/// Removes the headers of the pool on a device. The volumes are lost.
///
/// # Errors
/// If an I/O fails.
pub fn erase(device: &dyn BlockDevice, wait: Wait<'_>) -> Result<(), PoolError> {
    let info = device.info();
    let mut io = Disk::open(device, &info.identity, wait)?;
    let blocks = POOL_HEADER_BYTES >> info.block_size.shift();
    let range = LbaRange::new(strake_units::Lba(0), blocks);
    let erased = io.queue.write_zeroes(range).and_then(|()| io.queue.flush());
    erased.map_err(|error| PoolError::io(&info.identity, "erase the header", error))
}

/// Opens the pool on a device: reads the newest readable root, and the log from there on. Nothing is written, so an
/// interrupted start changes nothing. The nonce is a random number that no other start of the pool has used.
///
/// # Errors
/// If there is no pool, if its records are damaged, or if an I/O fails.
pub fn open(device: Arc<dyn BlockDevice>, nonce: u64, wait: Wait<'_>) -> Result<Opened, PoolError> {
    let info = device.info();
    let Some(header) = find(&*device, wait)? else {
        return Err(PoolError::new(PoolErrorKind::NoPool, &info.identity, "it has no pool"));
    };
    let layout = Layout::recorded(header, &info)?;
    let name = layout.header.name.as_str().to_owned();
    let mut io = Disk::open(&*device, &name, wait)?;
    // Caches may still have writes of a start that ended without a power loss. A snapshot must not depend on them.
    io.queue.flush().map_err(|error| PoolError::io(&name, "flush the caches", error))?;
    let mut roots = Vec::new();
    for place in 0..2 {
        roots.extend(io.root(&layout, place)?);
    }
    roots.sort_by_key(|(root, _)| std::cmp::Reverse(root.sequence));
    let oldest = roots.iter().map(|(root, _)| root.log_from).min();
    let Some(((root, image), oldest)) = roots.into_iter().next().zip(oldest) else {
        return Err(PoolError::new(
            PoolErrorKind::Damaged,
            name,
            "neither of its roots is readable",
        ));
    };
    // The part of the log that only the older root needs is kept if it is readable.
    let whole = io.log(&layout, oldest).ok().filter(|reader| reader.end() >= root.log_from);
    let (reader, tail) = match whole {
        Some(reader) => (reader, oldest),
        None => (io.log(&layout, root.log_from)?, root.log_from),
    };
    let blocks = layout.header.log_blocks();
    let (records, log) = reader.finish(blocks, LogStart::default(), tail);
    let map = VolumeMap::open(&image, &[records], layout.shape.rings, nonce);
    let map = map.map_err(|error| damaged(&name, &error))?;
    let start = LogStart { number: map.start().number, nonce: map.start().nonce };
    Ok(Opened { device, layout, map, log: log.of_start(start) })
}

/// Returns the header of a root of a new pool and its image, padded to whole blocks.
fn root_bytes(layout: &Layout, sequence: u64, image: &[u8]) -> Vec<u8> {
    // An image ends with its CRC-32C.
    let image_crc = image.last_chunk::<4>().map_or(0, |crc| u32::from_le_bytes(*crc));
    let root = RootHeader { sequence, bytes: image.len() as u64, image_crc, log_from: 0 };
    let mut out = encode_root_header(layout.header.pool, &root).to_vec();
    out.extend_from_slice(image);
    out.resize(out.len().next_multiple_of(POOL_BLOCK_BYTES), 0);
    out
}

fn damaged(name: &str, error: &strake_volume_map::Error) -> PoolError {
    PoolError::new(PoolErrorKind::Damaged, name, format!("its records are damaged: {error}"))
}

/// Returns the bytes of one I/O of a start or a checkpoint: whole blocks of the pool.
pub(crate) fn transfer_bytes(info: &DeviceInfo) -> usize {
    let most = (info.io_bytes_max as usize).min(TRANSFER_BYTES);
    most / POOL_BLOCK_BYTES * POOL_BLOCK_BYTES
}

/// A device, one I/O at a time.
struct Disk<'a> {
    queue: Blocking<'a>,
    name: &'a str,
    /// Bytes of one I/O.
    bytes_max: usize,
}

impl<'a> Disk<'a> {
    fn open(device: &dyn BlockDevice, name: &'a str, wait: Wait<'a>) -> Result<Self, PoolError> {
        let queue = device.open_queue(CoreIndex(0), 1);
        let queue = queue.map_err(|error| PoolError::device(name, &error))?;
        let bytes_max = transfer_bytes(&device.info());
        Ok(Self { queue: Blocking::new(queue, wait), name, bytes_max })
    }

    fn write(
        &mut self,
        layout: &Layout,
        mut at: u64,
        bytes: &[u8],
        doing: &str,
    ) -> Result<(), PoolError> {
        for chunk in bytes.chunks(self.bytes_max) {
            let mut buffer = BufMut::alone(chunk.len());
            buffer.as_mut_slice().copy_from_slice(chunk);
            let written = self.queue.write_stable(layout.lba(at), Sg::from(buffer.freeze()));
            written.map_err(|error| PoolError::io(self.name, doing, error))?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    fn read(
        &mut self,
        size: strake_units::BlockSize,
        at: u64,
        bytes: usize,
        doing: &str,
    ) -> Result<BufMut, PoolError> {
        let at = strake_units::Lba(at >> size.shift());
        let read = self.queue.read(at, BufMut::alone(bytes));
        read.map_err(|error| PoolError::io(self.name, doing, error))
    }

    /// Returns the root at a place, or `None` if the place has no whole root. Blocks that cannot be read count as
    /// damaged: the other root exists for this.
    fn root(
        &mut self,
        layout: &Layout,
        place: u8,
    ) -> Result<Option<(RootHeader, Image)>, PoolError> {
        let (size, at) = (layout.block_size, layout.root(place));
        let Ok(head) = self.read(size, at, POOL_BLOCK_BYTES, "read a root") else {
            return Ok(None);
        };
        let Some(root) = decode_root_header(head.as_slice(), layout.header.pool) else {
            return Ok(None);
        };
        let is_possible = root.bytes <= layout.shape.image_bytes_max()
            && root.bytes <= layout.header.root_bytes - POOL_BLOCK_BYTES as u64
            && root.log_from <= LOG_SEQUENCE_MAX;
        if !is_possible {
            return Ok(None);
        }
        let padded = (root.bytes as usize).next_multiple_of(POOL_BLOCK_BYTES);
        let mut image = Vec::with_capacity(padded);
        while image.len() < padded {
            let bytes = self.bytes_max.min(padded - image.len());
            let from = at + (POOL_BLOCK_BYTES + image.len()) as u64;
            let Ok(read) = self.read(size, from, bytes, "read a root") else { return Ok(None) };
            image.extend_from_slice(read.as_slice());
        }
        image.truncate(root.bytes as usize);
        let crc = image.last_chunk::<4>().map(|crc| u32::from_le_bytes(*crc));
        if crc != Some(root.image_crc) {
            return Ok(None);
        }
        let image = Image::decode(&image).ok();
        Ok(image.filter(|image| image.sequence() == root.sequence).map(|image| (root, image)))
    }

    /// Reads the log from a block on.
    fn log(&mut self, layout: &Layout, from: u64) -> Result<LogReader, PoolError> {
        let mut reader = LogReader::new(layout.header.pool, layout.shape, from);
        let blocks = layout.header.log_blocks();
        loop {
            // A read ends at the end of the log, and after one lap nothing can follow.
            let left = (from + blocks).saturating_sub(reader.next());
            let line = blocks - reader.next() % blocks;
            let count = left.min(line).min((self.bytes_max / POOL_BLOCK_BYTES) as u64);
            if count == 0 {
                return Ok(reader);
            }
            let bytes = count as usize * POOL_BLOCK_BYTES;
            let at = layout.log_block(reader.next());
            let read = self.read(layout.block_size, at, bytes, "read the log")?;
            if !read.as_slice().chunks_exact(POOL_BLOCK_BYTES).all(|block| reader.take(block)) {
                self.check_end(layout, &reader)?;
                return Ok(reader);
            }
        }
    }

    /// Refuses a log that goes on after its end: then a stable block is damaged, not torn.
    fn check_end(&mut self, layout: &Layout, reader: &LogReader) -> Result<(), PoolError> {
        for sequence in (reader.end() + 1..).take(LOG_WRITE_BLOCKS) {
            let (size, at) = (layout.block_size, layout.log_block(sequence));
            let read = self.read(size, at, POOL_BLOCK_BYTES, "read the log")?;
            if reader.is_continued_at(sequence, read.as_slice()) {
                let what = format!(
                    "block {} of its log is damaged, but block {sequence} is not; changes after it would be lost",
                    reader.end()
                );
                return Err(PoolError::new(PoolErrorKind::Damaged, self.name, what));
            }
        }
        Ok(())
    }
}
