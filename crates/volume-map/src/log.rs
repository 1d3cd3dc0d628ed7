//! Records as bytes, and the log of a ring.
//!
//! ```text
//! record: length u32 | ring u8 | number u64 | start u32 | nonce u64 | kind u8 | fields | CRC-32C u32
//! ```
//!
//! The length counts the bytes after it. A log ends at the first record that is torn or that does not continue it.

use crate::blocks::Blocks;
use crate::codec::{Reader, Writer};
use crate::error::{Error, ErrorKind};
use crate::ids::{ClusterId, Number, Ring, Start, VolumeId};
use crate::limits::{GROUP_MAX, RECORD_BYTES_MAX, RINGS_MAX};
use crate::record::{Change, Cut, Record, VolumesChange};
use crate::shape::Shape;

/// Bytes of the length before a record.
const LENGTH_BYTES: usize = 4;

/// The content of the bytes of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogScan {
    /// The records, in order.
    pub records: Vec<Record>,
    /// Bytes of these records.
    pub bytes: usize,
    /// The reason why the log ends here; `None` at the end of the bytes.
    pub end: Option<Error>,
}

/// Reads the log of a ring up to its end.
#[must_use]
pub fn scan_log(mut bytes: &[u8], ring: Ring, shape: Shape) -> LogScan {
    let mut scan = LogScan { records: Vec::new(), bytes: 0, end: None };
    while !bytes.is_empty() {
        let next = decode_record(bytes, shape);
        let next = next.and_then(|(record, used)| {
            check_next(scan.records.last(), &record, ring).map(|()| (record, used))
        });
        match next {
            Ok((record, used)) => {
                scan.records.push(record);
                scan.bytes += used;
                bytes = &bytes[used..];
            }
            Err(error) => {
                scan.end = Some(error);
                break;
            }
        }
    }
    scan
}

/// True if a record continues a log whose last record is `last`. See [`scan_log`].
#[must_use]
pub fn follows(last: Option<&Record>, next: &Record) -> bool {
    check_next(last, next, next.ring).is_ok()
}

/// Checks that a record follows the previous one, or is the first of a later start: numbers that a crash left unused
/// are skipped. A record of a start with the same number and a different nonce does not follow.
pub(crate) fn check_next(last: Option<&Record>, next: &Record, ring: Ring) -> Result<(), Error> {
    let field = |name, recorded| Err(ErrorKind::Field { name, recorded }.into());
    if next.ring != ring {
        return field("ring", u64::from(next.ring.0));
    }
    let Some(last) = last else { return Ok(()) };
    let follows = next.start == last.start && next.number == last.number.next();
    let is_later = next.start.number > last.start.number && next.number > last.number;
    if follows || is_later { Ok(()) } else { field("number", next.number.0) }
}

/// Returns the bytes of a record.
#[must_use]
pub fn encode_record(record: &Record, shape: Shape) -> Vec<u8> {
    let mut out = Writer::default();
    out.u8(record.ring.0);
    out.u64(record.number.0);
    out.u32(record.start.number);
    out.u64(record.start.nonce);
    put_change(&mut out, &record.change, shape);
    let body = out.finish();
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// Reads one record from the start of the bytes. Returns the record, and the number of its bytes.
///
/// # Errors
/// If the record is torn or damaged, or a field has an impossible value: the error has the name of the field.
pub fn decode_record(bytes: &[u8], shape: Shape) -> Result<(Record, usize), Error> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(ErrorKind::Truncated { name: "length" }.into());
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > RECORD_BYTES_MAX {
        return Err(ErrorKind::Field { name: "length", recorded: length as u64 }.into());
    }
    let Some(body) = rest.get(..length) else {
        return Err(ErrorKind::Truncated { name: "record" }.into());
    };
    let mut from = Reader::checked(body)?;
    let ring = Ring(from.u8("ring")?);
    from.require("ring", u64::from(ring.0), ring.0 < RINGS_MAX)?;
    let number = from.number("number")?;
    let start = Start { number: from.u32("start")?, nonce: from.u64("nonce")? };
    let change = get_change(&mut from, shape)?;
    from.end()?;
    Ok((Record { ring, number, start, change }, LENGTH_BYTES + length))
}

fn put_blocks(out: &mut Writer, blocks: Blocks) {
    out.u16(blocks.first);
    out.u16(blocks.count);
}

fn put_change(out: &mut Writer, change: &Change, shape: Shape) {
    match change {
        Change::Map { volume, index, cluster, partial } => {
            out.u8(1);
            out.u32(volume.0);
            out.u32(*index);
            out.u32(cluster.0);
            out.u8(u8::from(partial.is_some()));
            if let Some(partial) = partial {
                out.partial(partial, shape.cluster_blocks);
            }
        }
        Change::Unmap { volume, index } => {
            out.u8(2);
            out.u32(volume.0);
            out.u32(*index);
        }
        Change::Own { cluster, blocks } | Change::Zero { cluster, blocks } => {
            out.u8(if matches!(change, Change::Own { .. }) { 3 } else { 4 });
            out.u32(cluster.0);
            put_blocks(out, *blocks);
        }
        Change::Filled { cluster } => {
            out.u8(5);
            out.u32(cluster.0);
        }
        Change::CopyLeaf { volume, at } | Change::DropLeaf { volume, at } => {
            out.u8(if matches!(change, Change::CopyLeaf { .. }) { 6 } else { 7 });
            out.u32(volume.0);
            out.u32(*at);
        }
        Change::Volumes(change, cut) => {
            put_volumes(out, change);
            out.u8(cut.len() as u8);
            cut.iter().for_each(|number| out.u64(number.0));
        }
    }
}

fn put_volumes(out: &mut Writer, change: &VolumesChange) {
    match change {
        VolumesChange::Create { volume, name, blocks, policy } => {
            out.u8(16);
            out.u32(volume.0);
            out.name(name);
            out.u64(*blocks);
            out.policy(*policy);
        }
        VolumesChange::Snapshot(pairs) => {
            out.u8(17);
            out.u16(pairs.len() as u16);
            for (source, volume, name) in pairs {
                out.u32(source.0);
                out.u32(volume.0);
                out.name(name);
            }
        }
        VolumesChange::Clone { snapshot, volume, name } => {
            out.u8(18);
            out.u32(snapshot.0);
            out.u32(volume.0);
            out.name(name);
        }
        VolumesChange::Delete(volume) | VolumesChange::Gone(volume) => {
            out.u8(if matches!(change, VolumesChange::Delete(_)) { 19 } else { 20 });
            out.u32(volume.0);
        }
        VolumesChange::Rollback { volume, snapshot, old } => {
            out.u8(21);
            out.u32(volume.0);
            out.u32(snapshot.0);
            out.u32(old.0);
        }
        VolumesChange::Size { volume, blocks } => {
            out.u8(22);
            out.u32(volume.0);
            out.u64(*blocks);
        }
        VolumesChange::Policy { volume, policy } => {
            out.u8(23);
            out.u32(volume.0);
            out.policy(*policy);
        }
        VolumesChange::Rename { volume, name } => {
            out.u8(24);
            out.u32(volume.0);
            out.name(name);
        }
    }
}

fn get_blocks(from: &mut Reader<'_>) -> Result<Blocks, Error> {
    Ok(Blocks { first: from.u16("first")?, count: from.u16("count")? })
}

fn get_volume(from: &mut Reader<'_>, name: &'static str) -> Result<VolumeId, Error> {
    from.u32(name).map(VolumeId)
}

fn get_change(from: &mut Reader<'_>, shape: Shape) -> Result<Change, Error> {
    let kind = from.u8("kind")?;
    Ok(match kind {
        1 => {
            let (volume, index) = (get_volume(from, "volume")?, from.u32("index")?);
            let cluster = ClusterId(from.u32("cluster")?);
            let is_partial = from.flag("partial")?;
            let partial = if is_partial { Some(Box::new(from.partial(shape)?)) } else { None };
            Change::Map { volume, index, cluster, partial }
        }
        2 => Change::Unmap { volume: get_volume(from, "volume")?, index: from.u32("index")? },
        3 => Change::Own { cluster: ClusterId(from.u32("cluster")?), blocks: get_blocks(from)? },
        4 => Change::Zero { cluster: ClusterId(from.u32("cluster")?), blocks: get_blocks(from)? },
        5 => Change::Filled { cluster: ClusterId(from.u32("cluster")?) },
        6 => Change::CopyLeaf { volume: get_volume(from, "volume")?, at: from.u32("at")? },
        7 => Change::DropLeaf { volume: get_volume(from, "volume")?, at: from.u32("at")? },
        _ => {
            let change = get_volumes(from, kind)?;
            Change::Volumes(change, get_cut(from)?)
        }
    })
}

fn get_cut(from: &mut Reader<'_>) -> Result<Cut, Error> {
    let rings = from.u8("cut")?;
    from.require("cut", u64::from(rings), rings <= RINGS_MAX)?;
    (0..rings).map(|_| from.number("cut")).collect()
}

fn get_volumes(from: &mut Reader<'_>, kind: u8) -> Result<VolumesChange, Error> {
    Ok(match kind {
        16 => VolumesChange::Create {
            volume: get_volume(from, "volume")?,
            name: from.name()?,
            blocks: from.u64("blocks")?,
            policy: from.policy()?,
        },
        17 => {
            let count = from.u16("snapshots")?;
            from.require("snapshots", u64::from(count), usize::from(count) <= GROUP_MAX)?;
            let mut pairs = Vec::new();
            for _ in 0..count {
                let source = get_volume(from, "source")?;
                pairs.push((source, get_volume(from, "volume")?, from.name()?));
            }
            VolumesChange::Snapshot(pairs)
        }
        18 => VolumesChange::Clone {
            snapshot: get_volume(from, "snapshot")?,
            volume: get_volume(from, "volume")?,
            name: from.name()?,
        },
        19 => VolumesChange::Delete(get_volume(from, "volume")?),
        20 => VolumesChange::Gone(get_volume(from, "volume")?),
        21 => VolumesChange::Rollback {
            volume: get_volume(from, "volume")?,
            snapshot: get_volume(from, "snapshot")?,
            old: get_volume(from, "old")?,
        },
        22 => {
            VolumesChange::Size { volume: get_volume(from, "volume")?, blocks: from.u64("blocks")? }
        }
        23 => VolumesChange::Policy { volume: get_volume(from, "volume")?, policy: from.policy()? },
        24 => VolumesChange::Rename { volume: get_volume(from, "volume")?, name: from.name()? },
        _ => return Err(ErrorKind::Field { name: "kind", recorded: u64::from(kind) }.into()),
    })
}

/// True if the record is in the log of a ring from `floor` on.
pub(crate) fn is_from(floor: Number, record: &Record) -> bool {
    record.number >= floor
}
