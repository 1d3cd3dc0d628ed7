//! The control plane's reads and writes of labels, bitmaps and signatures of one drive.

use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut, DeallocateReads, IoError, IoErrorKind, Op, Patience, Sg};
use strake_ondisk::{
    AreaLayout, Copy, FOREIGN_HEAD_BYTES, FOREIGN_TAIL_BYTES, Foreign, OnDrive, RingScan,
    Superblock,
};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos, Uuid};

use crate::drive::Drive;
use crate::error::{ArrayError, ArrayErrorKind};
use crate::limits::{ZEROED_FIRST, ZEROED_MOST, ZEROING_LIMIT};

/// Callback with which the control plane waits for a drive. The callback runs while no request has completed. It
/// returns the time, or `None` to stop waiting.
pub type Wait<'a> = &'a mut dyn FnMut() -> Option<Nanos>;

/// Bytes at the end of a drive that contain Strake's partition table, if any.
const TABLE_BYTES: u64 = 64 << 10;

/// Size of a read if some blocks may be unreadable.
pub(crate) const READ_BYTES: usize = 4096;

/// Largest single transfer of the control plane.
pub(crate) const TRANSFER_BYTES: u64 = 256 << 10;

/// Contents of a drive before the engine changes the drive.
#[derive(Debug)]
pub struct Inspection {
    /// The newest valid label if the drive is a member of an array.
    pub label: Option<Superblock>,
    /// Foreign content: a partition table, a filesystem, or another RAID.
    pub foreign: Option<Foreign>,
}

/// The relevant labels of one drive.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// The newest label.
    pub(crate) newest: Option<Superblock>,
    /// Generation and epoch of the newest label in the tail ring.
    pub(crate) in_tail: Option<(u64, Uuid)>,
    /// The newest label in the tail ring, if the head ring has a newer one, and if the tail ring cannot have lost a
    /// later label.
    pub(crate) before: Option<Box<Superblock>>,
}

/// Text for messages about reads of label rings.
pub(crate) const READING_LABELS: &str = "reading its labels";

impl Labels {
    /// Evaluates the rings of the drive at `path`; the head ring is the first.
    ///
    /// # Errors
    /// If the drive has a newer label than this program supports.
    pub(crate) fn of(path: &str, [head, tail]: [RingScan; 2]) -> Result<Self, ArrayError> {
        let understood = |scan: RingScan| {
            // An older label must not replace a label that this program does not support.
            let Some(refused) = scan.refused else { return Ok(scan) };
            let error = ArrayError::refused(format!("{path}: {refused}"));
            Err(ArrayError { array: refused.array, ..error })
        };
        let (head, tail) = (understood(head)?, understood(tail)?);
        let generation = |label: &Superblock| label.generation;
        let in_head = head.newest.as_ref().map(generation);
        // A damaged slot may have contained a later label.
        let unwritten =
            |from: u64| in_head.is_some_and(|to| from < to && !tail.may_have_lost(from, to));
        let before = tail.newest.as_ref().filter(|label| unwritten(label.generation));
        Ok(Self {
            in_tail: tail.newest.as_ref().map(|label| (label.generation, label.epoch)),
            before: before.cloned().map(Box::new),
            newest: strake_ondisk::newer(head.newest, tail.newest, generation),
        })
    }
}

/// Returns the ring in which labels of our own updates are missing. An update writes to the head ring first, and starts
/// after the end of the previous update. Therefore an empty head ring was overwritten, and so was a tail ring that
/// lacks more than the newest label. `claimed` is true if the partition table after the tail ring is still ours. After
/// a truncation, or after an overwrite up to the end of the drive, the table is never ours.
fn overwritten(head: &RingScan, tail: &RingScan, claimed: bool, members: usize) -> Option<Copy> {
    if head.valid == 0 {
        return (tail.valid > 0).then_some(Copy::Head);
    }
    let generation = |scan: &RingScan| scan.newest.as_ref().map(|label| label.generation);
    let lags = u32::from(generation(head) != generation(tail));
    let emptied = tail.valid == 0 && (!claimed || head.valid as usize > members);
    let thinned = !claimed && head.valid.saturating_sub(tail.valid) > lags;
    (emptied || thinned).then_some(Copy::Tail)
}

/// I/O on one drive with byte addresses. One operation is in progress at a time.
pub struct MemberIo<'a> {
    io: Blocking<'a>,
    device: &'a dyn BlockDevice,
    path: &'a str,
    block_size: BlockSize,
    bytes: u64,
    deallocate: DeallocateReads,
    io_bytes_max: u64,
}

impl<'a> MemberIo<'a> {
    /// Opens a queue of `drive` for the calling thread.
    ///
    /// # Errors
    /// If the drive cannot be opened.
    pub fn open(drive: &'a Drive, wait: Wait<'a>) -> Result<Self, ArrayError> {
        let info = drive.device.info();
        let queue = drive.device.open_queue(CoreIndex(0), 1)?;
        Ok(Self {
            io: Blocking::patient(queue, wait, Patience::of(drive.device.hold())),
            device: &*drive.device,
            path: &drive.path,
            block_size: info.block_size,
            bytes: info.bytes(),
            deallocate: info.deallocate,
            io_bytes_max: u64::from(info.io_bytes_max),
        })
    }

    fn failed(&self, doing: &str, error: IoError) -> ArrayError {
        ArrayError::io(self.path, doing, error)
    }

    fn layout(&self) -> Result<AreaLayout, ArrayError> {
        AreaLayout::of(self.bytes).ok_or_else(|| {
            ArrayError::usage(format!("{} is too small to be a member of any array", self.path))
        })
    }

    /// Byte offset of the control plane's record with the sequence number `sequence`.
    pub(crate) fn config_offset(&self, sequence: u64) -> Result<u64, ArrayError> {
        Ok(self.layout()?.config_offset(sequence))
    }

    fn lba(&self, bytes: u64) -> Lba {
        Lba(bytes >> self.block_size.shift())
    }

    /// Reads `bytes` bytes, a multiple of 4 KiB, from `offset`, a multiple of the block size.
    pub(crate) fn read(
        &mut self,
        offset: u64,
        bytes: u64,
        doing: &str,
    ) -> Result<Vec<u8>, ArrayError> {
        let mut out = vec![0; bytes as usize];
        self.read_pieces(offset, bytes, doing, |at, piece| {
            out[(at - offset) as usize..][..piece.len()].copy_from_slice(piece);
        })?;
        Ok(out)
    }

    /// Reads as `read` does, in pieces with their offsets. Each piece is a multiple of 4 KiB. Ranges that read as
    /// zeroes according to the device are left out.
    pub(crate) fn read_pieces(
        &mut self,
        offset: u64,
        bytes: u64,
        doing: &str,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<(), ArrayError> {
        // The transfer limit of a drive need not be a multiple of 4 KiB.
        let most = TRANSFER_BYTES.min(self.io_bytes_max & !4095).max(4096);
        let (mut at, end) = (offset, offset + bytes);
        let mut last: Option<BufMut> = None;
        while let Some((from, to)) = self.data_within(at, end) {
            let bytes = (to - from).min(most) as usize;
            let buffer = last.take().filter(|last| last.len() == bytes);
            let buffer = buffer.unwrap_or_else(|| BufMut::alone(bytes));
            let lba = self.lba(from);
            let buffer = self.io.read(lba, buffer).map_err(|e| self.failed(doing, e))?;
            each(from, buffer.as_slice());
            at = from + buffer.len() as u64;
            last = Some(buffer);
        }
        Ok(())
    }

    /// Reads as `read` does. Unreadable blocks of 4 KiB become zeroes and are marked with false.
    ///
    /// # Errors
    /// If the drive fails in another way.
    pub(crate) fn read_around(
        &mut self,
        offset: u64,
        bytes: u64,
        doing: &str,
    ) -> Result<(Vec<u8>, Vec<bool>), ArrayError> {
        let (mut out, mut readable) = (Vec::with_capacity(bytes as usize), Vec::new());
        let mut at = offset;
        while at < offset + bytes {
            let read = self.io.read(self.lba(at), BufMut::alone(READ_BYTES));
            let medium = |e: &IoError| e.kind == IoErrorKind::Medium;
            readable.push(read.is_ok());
            match read {
                Ok(block) => out.extend_from_slice(block.as_slice()),
                Err(error) if medium(&error) => out.resize(out.len() + READ_BYTES, 0),
                Err(error) => return Err(self.failed(doing, error)),
            }
            at += READ_BYTES as u64;
        }
        Ok((out, readable))
    }

    /// Reads as `read` does, with zeroes for unreadable blocks of 4 KiB. The callers read structures with several
    /// copies and checksums.
    fn read_what_can_be(
        &mut self,
        offset: u64,
        bytes: u64,
        doing: &str,
    ) -> Result<Vec<u8>, ArrayError> {
        match self.read(offset, bytes, doing) {
            Ok(found) => Ok(found),
            Err(_) => Ok(self.read_around(offset, bytes, doing)?.0),
        }
    }

    /// The first range of bytes between `from` and `to` that may contain data. Its bounds are page-aligned, except for
    /// `from` and `to`.
    fn data_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        if from >= to {
            return None;
        }
        let range = LbaRange::new(self.lba(from), (to - from) >> self.block_size.shift());
        let data = self.device.data_within(range)?;
        let start = data.start.bytes(self.block_size);
        let end = start + (data.blocks << self.block_size.shift());
        Some(((start & !4095).max(from), end.next_multiple_of(4096).min(to)))
    }

    /// Writes `bytes` at `offset`, stable.
    pub(crate) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        doing: &str,
    ) -> Result<(), ArrayError> {
        let step = TRANSFER_BYTES.min(self.io_bytes_max) as usize;
        for (at, part) in bytes.chunks(step).enumerate() {
            let mut buf = BufMut::alone(part.len());
            buf.as_mut_slice().copy_from_slice(part);
            let lba = self.lba(offset + (at * step) as u64);
            self.io.write_stable(lba, Sg::from(buf.freeze())).map_err(|e| self.failed(doing, e))?;
        }
        Ok(())
    }

    /// Returns the newest label of both rings, and any foreign content.
    ///
    /// # Errors
    /// If the drive cannot be read, or has a newer label than this program supports.
    pub fn inspect(&mut self) -> Result<Inspection, ArrayError> {
        let label = self.newest_label()?;
        Ok(Inspection { label, foreign: self.look()?.named() })
    }

    /// Returns all known contents of the drive, of any origin. Reads 4 MiB.
    ///
    /// # Errors
    /// If the drive cannot be read.
    pub fn look(&mut self) -> Result<OnDrive, ArrayError> {
        let (head, tail) = self.ends(Self::read)?;
        Ok(OnDrive::read(&head, &tail))
    }

    /// Reads the areas at both ends of the drive that may contain a signature. With `read` as the function, an
    /// unreadable block is an error, because it may be the signature.
    fn ends(
        &mut self,
        read: impl Fn(&mut Self, u64, u64, &str) -> Result<Vec<u8>, ArrayError>,
    ) -> Result<(Vec<u8>, Vec<u8>), ArrayError> {
        // The offset of a signature does not depend on the size of the drive. A drive that is too small for a member is
        // read too.
        let bytes = self.bytes & !4095;
        let head = FOREIGN_HEAD_BYTES.min(bytes);
        let tail = FOREIGN_TAIL_BYTES.min(bytes);
        let doing = "inspecting its content";
        Ok((read(self, 0, head, doing)?, read(self, self.bytes - tail, tail, doing)?))
    }

    /// The usual name of foreign content that was written since the drive became a member. The search covers only areas
    /// outside the data area, because the data area contains data of clients. Reads 4 MiB.
    ///
    /// # Errors
    /// If the drive cannot be read.
    pub fn written_over(&mut self) -> Result<Option<&'static str>, ArrayError> {
        let (head, tail) = self.ends(Self::read_what_can_be)?;
        Ok(strake_ondisk::written_over(&head, &tail, self.bytes, self.block_size.bytes()))
    }

    /// The end of the drive whose labels were overwritten, for example by zeroes, while labels at the other end are
    /// intact. The data between the ends are then unreliable. Reads 0.5 MiB.
    ///
    /// After a drive has grown, its tail ring has another offset, so only the head ring is checked.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn overwritten(&mut self) -> Result<Option<Copy>, ArrayError> {
        let Some([head, tail]) = self.rings()? else { return Ok(None) };
        let head = strake_ondisk::newest(&head, Copy::Head);
        let tail = strake_ondisk::newest(&tail, Copy::Tail);
        let (in_head, in_tail) = (head.newest.as_ref(), tail.newest.as_ref());
        let newest = strake_ondisk::newer(in_head, in_tail, |label| label.generation);
        let Some(label) = newest else { return Ok(None) };
        let end = self.bytes - TABLE_BYTES;
        let table = self.read(end, TABLE_BYTES, "reading its partition table")?;
        let claimed = strake_ondisk::is_claimed_behind(&table);
        let found = overwritten(&head, &tail, claimed, label.members.len());
        let grown = label.own_record().is_none_or(|own| own.bytes != self.bytes);
        Ok(found.filter(|end| *end == Copy::Head || !grown))
    }

    /// Returns true if a drive that had `bytes` bytes, and is larger now, lost its former end: the drive was truncated
    /// before it was enlarged. Returns false if the former end is unknown, or if it is also the present location of
    /// labels.
    ///
    /// # Errors
    /// If the drive cannot be read.
    pub fn was_cut(&mut self, bytes: u64) -> Result<bool, ArrayError> {
        let block = u64::from(self.block_size.bytes());
        if bytes >= self.bytes || !bytes.is_multiple_of(block) || bytes < TABLE_BYTES {
            return Ok(false);
        }
        let (ring, length) = self.layout()?.ring_range(Copy::Tail);
        if bytes > ring && bytes - TABLE_BYTES < ring + length {
            return Ok(false);
        }
        let tail = self.read(bytes - TABLE_BYTES, TABLE_BYTES, "reading its partition table")?;
        Ok(!strake_ondisk::is_claimed_behind(&tail))
    }

    /// The newest label of both rings, or `None` if the drive is not a member of an array. Reads 512 KiB.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn newest_label(&mut self) -> Result<Option<Superblock>, ArrayError> {
        Ok(self.labels()?.newest)
    }

    /// Evaluates both rings.
    pub(crate) fn labels(&mut self) -> Result<Labels, ArrayError> {
        let Some([head, tail]) = self.rings()? else { return Ok(Labels::default()) };
        let scans =
            [strake_ondisk::newest(&head, Copy::Head), strake_ondisk::newest(&tail, Copy::Tail)];
        Labels::of(self.path, scans)
    }

    /// Reads both rings, the head ring first; `None` if the drive is too small for rings.
    fn rings(&mut self) -> Result<Option<[Vec<u8>; 2]>, ArrayError> {
        let Ok(layout) = self.layout() else { return Ok(None) };
        let mut ring = |copy| {
            let (offset, bytes) = layout.ring_range(copy);
            self.read_what_can_be(offset, bytes, READING_LABELS)
        };
        Ok(Some([ring(Copy::Head)?, ring(Copy::Tail)?]))
    }

    /// Returns every valid label of both rings.
    pub(crate) fn all_labels(&mut self) -> Result<Vec<Superblock>, ArrayError> {
        let Some([head, tail]) = self.rings()? else { return Ok(Vec::new()) };
        let head = strake_ondisk::ring_labels(&head, Copy::Head);
        Ok(head.chain(strake_ondisk::ring_labels(&tail, Copy::Tail)).flatten().collect())
    }

    /// Erases a label.
    pub(crate) fn erase_label(&mut self, generation: u64) -> Result<(), ArrayError> {
        let layout = self.layout()?;
        for copy in [Copy::Head, Copy::Tail] {
            let offset = layout.slot_offset(copy, generation);
            self.write(offset, &[0; strake_ondisk::SLOT_BYTES], "erasing a label")?;
        }
        Ok(())
    }

    /// Writes a label to the head ring or the tail ring.
    pub(crate) fn write_label(&mut self, label: &Superblock, copy: Copy) -> Result<(), ArrayError> {
        let offset = self.layout()?.slot_offset(copy, label.generation);
        self.write(offset, &label.encode(copy, offset), "writing its label")
    }

    /// Clears the label rings and every other record that is found by its sequence number. Writes a partition table, so
    /// that other tools see that the drive is in use.
    pub(crate) fn claim(&mut self, member: Uuid) -> Result<(), ArrayError> {
        let layout = self.layout()?;
        for copy in [Copy::Head, Copy::Tail] {
            let (offset, bytes) = layout.ring_range(copy);
            self.write(offset, &vec![0; bytes as usize], "clearing its labels")?;
        }
        // Sequences are compared across members. A drive that continued alone may have higher sequences than the array.
        for (offset, bytes) in layout.notes_ranges() {
            self.write(offset, &vec![0; bytes as usize], "clearing its notes")?;
        }
        let block = self.block_size.bytes();
        let head = strake_ondisk::protective_head(self.bytes, block, member);
        self.write(0, &head, "writing its partition table")?;
        self.claim_behind(member)
    }

    fn claim_behind(&mut self, member: Uuid) -> Result<(), ArrayError> {
        let tail = strake_ondisk::protective_tail(self.bytes, self.block_size.bytes(), member);
        self.write(self.bytes - tail.len() as u64, &tail, "writing its partition table")
    }

    /// Claims the new end of a member that has become larger: writes a partition table at the end, and then the table
    /// at the start, which records the end.
    pub(crate) fn claim_end(&mut self, member: Uuid) -> Result<(), ArrayError> {
        self.claim_behind(member)?;
        let head = strake_ondisk::protective_head(self.bytes, self.block_size.bytes(), member);
        self.write(0, &head, "writing its partition table")
    }

    /// Writes zeroes to `bytes` bytes from `offset`. If deallocated blocks read as zeroes, the blocks are deallocated
    /// instead.
    pub(crate) fn make_zeroes(
        &mut self,
        offset: u64,
        bytes: u64,
        doing: &str,
    ) -> Result<(), ArrayError> {
        let range = LbaRange::new(self.lba(offset), bytes >> self.block_size.shift());
        let zeroed = match self.deallocate {
            DeallocateReads::Zeroes => self.io.run(Op::Deallocate { range }).map(drop),
            DeallocateReads::Unsupported | DeallocateReads::Unspecified => {
                self.io.write_zeroes(range)
            }
        };
        zeroed.map_err(|e| self.failed(doing, e))
    }

    pub(crate) fn flush(&mut self, doing: &str) -> Result<(), ArrayError> {
        self.io.flush().map_err(|e| self.failed(doing, e))
    }

    /// Erases the areas with foreign signatures, if any. Otherwise, this program would refuse the drive as a spare, and
    /// other programs might assemble an md array from a member.
    pub(crate) fn erase_foreign(&mut self) -> Result<(), ArrayError> {
        self.layout()?;
        if self.look()?.other.is_none() {
            return Ok(());
        }
        let zeroes = vec![0; FOREIGN_HEAD_BYTES.max(FOREIGN_TAIL_BYTES) as usize];
        self.write(0, &zeroes[..FOREIGN_HEAD_BYTES as usize], "erasing its content")?;
        let tail = &zeroes[..FOREIGN_TAIL_BYTES as usize];
        self.write(self.bytes - FOREIGN_TAIL_BYTES, tail, "erasing its content")
    }

    /// Removes the claim and the labels, so that the drive contains nothing of Strake. The partition tables are removed
    /// last: as long as a label exists, other tools see that the drive is in use.
    ///
    /// # Errors
    /// If a write fails. The remaining structures are still recognized.
    pub fn disown(&mut self) -> Result<(), ArrayError> {
        let layout = self.layout()?;
        for copy in [Copy::Head, Copy::Tail] {
            let (offset, bytes) = layout.ring_range(copy);
            self.write(offset, &vec![0; bytes as usize], "removing its labels")?;
        }
        let block = self.block_size.bytes();
        let head = strake_ondisk::protective_head(self.bytes, block, Uuid::NIL).len();
        self.write(0, &vec![0; head], "removing its partition table")?;
        let tail = strake_ondisk::protective_tail(self.bytes, block, Uuid::NIL).len();
        self.write(self.bytes - tail as u64, &vec![0; tail], "removing its partition table")
    }

    /// Makes the data area read as zeroes if the drive guarantees zeroes after deallocation and is fast. Returns false
    /// if the drive is slow, for example if it needs one command for each few hundred kilobytes. The array is then
    /// initialized in the background.
    pub(crate) fn zero_data(&mut self) -> Result<bool, ArrayError> {
        if self.deallocate != DeallocateReads::Zeroes {
            return Ok(false);
        }
        let layout = self.layout()?;
        let (mut at, end) = (layout.data_offset(), layout.data_offset() + layout.data_bytes());
        let (mut most, start) = (ZEROED_FIRST, self.io.waited());
        while at < end {
            if self.io.waited().since(start) > ZEROING_LIMIT {
                return Ok(false);
            }
            let bytes = (end - at).min(most);
            let range = LbaRange::new(self.lba(at), bytes >> self.block_size.shift());
            self.io
                .run(Op::Deallocate { range })
                .map_err(|e| self.failed("deallocating its data area", e))?;
            (at, most) = (at + bytes, (most * 2).min(ZEROED_MOST));
        }
        self.io.flush().map_err(|e| self.failed("flushing it", e))?;
        Ok(true)
    }
}

/// The error for drives that are not empty.
pub(crate) fn occupied(path: &str, what: &str) -> ArrayError {
    ArrayError::new(
        ArrayErrorKind::Refused,
        format!(
            "{path} holds {what}; use another drive, or erase it first if its content is not needed"
        ),
    )
}
