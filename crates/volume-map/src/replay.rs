//! A start: the newest root, and the log from its floors on.

use crate::clusters::Home;
use crate::error::{Error, ErrorKind};
use crate::ids::{ClusterId, Number, Ring, Start};
use crate::image::Image;
use crate::limits::{ROOTS, START_NUMBER_MAX};
use crate::log::{check_next, is_from};
use crate::record::{Change, Record};
use crate::shape::Shape;
use crate::state::MapState;
use crate::tables::Tables;
use crate::volume_map::VolumeMap;

/// The records of one ring that are not yet applied.
struct Pending<'a> {
    records: std::iter::Peekable<std::slice::Iter<'a, Record>>,
}

impl Pending<'_> {
    /// Applies the records below `upto`, except those of the leader.
    fn forward(&mut self, tables: &mut Tables, upto: Number) -> Result<(), Error> {
        while let Some(record) = self.records.next_if(|record| record.number < upto) {
            if !matches!(record.change, Change::Volumes(..)) {
                apply(tables, record)?;
            }
        }
        Ok(())
    }
}

/// Applies a record of an earlier start. References that it gives up end now: no I/O of that start remains.
fn apply(tables: &mut Tables, record: &Record) -> Result<(), Error> {
    let home = Home { ring: record.ring, number: record.number };
    let dropped = tables.apply(record)?;
    dropped.clusters.into_iter().for_each(|cluster: ClusterId| tables.release(cluster, home));
    Ok(())
}

fn check_log(image: &Image, ring: Ring, log: &[Record]) -> Result<(), Error> {
    let floor = image.floors[ring.at()];
    let begins_late =
        log.first().filter(|first| first.number > floor && first.start.number <= image.start);
    if let Some(first) = begins_late {
        return Err(ErrorKind::Field { name: "number", recorded: first.number.0 }.into());
    }
    let mut last = None;
    for record in log {
        check_next(last, record, ring)?;
        last = Some(record);
    }
    Ok(())
}

fn check_cut(record: &Record, rings: usize) -> Result<Option<&[Number]>, Error> {
    let Change::Volumes(_, cut) = &record.change else { return Ok(None) };
    let is_right = record.ring == Ring::LEADER && cut.len() == rings;
    let name = "cut";
    let wrong = ErrorKind::Field { name, recorded: cut.len() as u64 }.into();
    if is_right { Ok(Some(cut)) } else { Err(wrong) }
}

/// Applies logs to the tables of an image. A record of the leader is applied after all records below its cut in every
/// ring.
fn replay(image: &Image, logs: &[Vec<Record>]) -> Result<Tables, Error> {
    let mut tables = image.tables.clone();
    let rings = image.floors.len();
    let mut pending = Vec::with_capacity(rings);
    for (at, log) in logs.iter().enumerate() {
        let ring = Ring(at as u8);
        check_log(image, ring, log)?;
        let floor = image.floors[at];
        let from = log.iter().position(|record| is_from(floor, record)).unwrap_or(log.len());
        pending.push(Pending { records: log[from..].iter().peekable() });
    }
    let floor = image.floors[0];
    for record in logs[0].iter().filter(|record| is_from(floor, record)) {
        if let Some(cut) = check_cut(record, rings)? {
            for (ring, upto) in pending.iter_mut().zip(cut) {
                ring.forward(&mut tables, *upto)?;
            }
            apply(&mut tables, record)?;
        }
    }
    for (at, ring) in pending.iter_mut().enumerate() {
        for record in &logs[at] {
            check_cut(record, rings)?;
        }
        ring.forward(&mut tables, Number(u64::MAX))?;
    }
    // A record shows the references to a cluster, but not which of them are of bases.
    tables.check_bases()?;
    Ok(tables)
}

/// Refuses numbers that a start could use up.
fn check_numbers(sequence: u64, next: &[Number]) -> Result<(), Error> {
    let next = next.iter().map(|number| ("number", number.0));
    let mut all = next.chain([("sequence", sequence)]);
    let wrong = all.find(|(_, number)| *number >= START_NUMBER_MAX);
    wrong.map_or(Ok(()), |(name, recorded)| Err(ErrorKind::Field { name, recorded }.into()))
}

/// Returns the first number of each ring that no record and no cut has used.
fn next_numbers(image: &Image, logs: &[Vec<Record>]) -> Vec<Number> {
    let mut next = image.floors.clone();
    for (ring, log) in logs.iter().enumerate() {
        if let Some(last) = log.last() {
            next[ring] = next[ring].max(last.number.next());
        }
    }
    // A cut may be above the stable records of its ring. A later record below the cut would be applied before the cut.
    for record in &logs[0] {
        if let Change::Volumes(_, cut) = &record.change {
            next.iter_mut().zip(cut).for_each(|(next, cut)| *next = (*next).max(*cut));
        }
    }
    next
}

impl VolumeMap {
    /// Starts a pool from its newest valid root and the records of each ring. The start writes nothing, so that a start
    /// after an interrupted one has the same tables. If the number of rings changes, two checkpoints must be written
    /// before anything else.
    ///
    /// No two starts of a pool may have the same `nonce`: the driver draws it at random. Otherwise records of a start
    /// that crashed may be read as those of the next one.
    ///
    /// # Errors
    /// If a record contradicts the map: the error has the name of the field.
    pub fn open(image: &Image, logs: &[Vec<Record>], rings: u8, nonce: u64) -> Result<Self, Error> {
        let recorded = logs.len() as u64;
        if logs.len() != image.floors.len() {
            return Err(ErrorKind::Field { name: "rings", recorded }.into());
        }
        let mut tables = replay(image, logs)?;
        let mut next = next_numbers(image, logs);
        check_numbers(image.sequence, &next)?;
        let starts = logs.iter().filter_map(|log| log.last()).map(|record| record.start.number);
        let last = starts.chain([image.start]).max().unwrap_or(0);
        let number = last
            .checked_add(1)
            .ok_or(ErrorKind::Field { name: "start", recorded: u64::from(last) })?;
        let start = Start { number, nonce };
        let mut floors = vec![image.floors.clone()];
        floors.extend(image.previous.clone());
        if rings != tables.shape.rings {
            tables.shape = Shape { rings, ..tables.shape }.check()?;
            // Every ring continues above all numbers, so that no two leaves get the same identifier.
            let most = next.iter().copied().max().unwrap_or(Number(1));
            next = vec![most; usize::from(rings)];
            floors.clear();
            // No record of an earlier ring is replayed over the roots that must be written first.
            tables.clusters.reset_homes();
        }
        let mut map = MapState::of(tables, &next, floors, (image.sequence + 1, start));
        map.roots_due = ROOTS - map.floors.len();
        Ok(Self::from_state(map))
    }
}
