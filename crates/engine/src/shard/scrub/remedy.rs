//! Repairs and reports of rows with mismatches.
//!
//! Only a strip that is known to be wrong is rewritten, from the other strips, as in a rebuild of these rows.
//! Afterwards the rows are read again. A strip counts as repaired if it is readable and matches.

use strake_block::{IoError, IoErrorKind};
use strake_raid::{Band, Place, Purpose, Role, Segment, Window};
use strake_units::{LbaRange, PositionSet};

use super::judge::Wrong;
use super::{NONE, Seen, look};
use crate::scrub::{ScrubFinding, ScrubMode, ScrubOrder, ScrubReport, ScrubVerdict};
use crate::shard::Shard;
use crate::shard::maintain::{maintain_window, segment};
use crate::shard::members::Group;
use crate::shard::mend::Ended;

/// Rows of one band, and the positions of their unreadable strips.
#[derive(Clone, Copy)]
struct Rows {
    band: Band,
    window: Window,
    unreadable: PositionSet,
}

/// Repairs the rows of `window` as far as possible, and reports. If a strip is unreadable, the rows have a height of
/// one block.
pub(super) async fn settle(
    shard: &Shard,
    group: Group,
    (band, window): (Band, Window),
    seen: Seen,
    order: ScrubOrder,
    report: &mut ScrubReport,
) -> Result<(), IoError> {
    let mut rows = Rows { band, window, unreadable: seen.unreadable };
    let seen = readable_part(shard, group, &mut rows, seen).await?;
    let mut tried = false;
    for wrong in &seen.wrong {
        tried |= put_right(shard, group, rows, wrong, order.mode).await?;
    }
    if !rows.unreadable.is_empty() {
        // The readable strips must be consistent before other strips are reconstructed from them.
        let left = if tried {
            look(shard, group, (band, window), rows.unreadable).await?
        } else {
            Seen { unreadable: NONE, compared: false, wrong: seen.wrong.clone() }
        };
        if left.unreadable.is_empty() && left.wrong.is_empty() {
            let purpose = Purpose::Rebuild { targets: rows.unreadable };
            tried |= rewrite(shard, group, rows, None, purpose).await?;
        }
    }
    let after = if tried { Some(look(shard, group, (band, window), NONE).await?) } else { None };
    tell(shard, rows, &seen, after.as_ref(), report);
    Ok(())
}

/// Returns the result for the readable strips, and their positions.
async fn readable_part(
    shard: &Shard,
    group: Group,
    rows: &mut Rows,
    seen: Seen,
) -> Result<Seen, IoError> {
    let mut seen = seen;
    while !seen.unreadable.is_empty() {
        rows.unreadable |= seen.unreadable;
        seen = look(shard, group, (rows.band, rows.window), rows.unreadable).await?;
    }
    Ok(seen)
}

/// Repairs mismatching strips as far as `mode` allows. Returns true if blocks were written.
async fn put_right(
    shard: &Shard,
    group: Group,
    rows: Rows,
    wrong: &Wrong,
    mode: ScrubMode,
) -> Result<bool, IoError> {
    let health = shard.health(rows.band);
    let unknown = health.absent | health.unreadable | rows.unreadable;
    let whole =
        shard.geometry.parity_strips() == 0 || !unknown.intersects(shard.data_positions(rows.band));
    let at = Rows { window: wrong.window, ..rows };
    match (wrong.positions, mode) {
        (_, ScrubMode::Check) | (NONE, ScrubMode::Repair) => Ok(false),
        // New parity can be computed only if all data strips were read.
        (NONE, ScrubMode::TrustData) if !whole => Ok(false),
        (NONE, ScrubMode::TrustData) => {
            rewrite(shard, group, at, wrong.strip, Purpose::Resync).await
        }
        (targets, ScrubMode::Repair | ScrubMode::TrustData) => {
            let at = Rows { unreadable: at.unreadable | targets, ..at };
            rewrite(shard, group, at, wrong.strip, Purpose::Rebuild { targets }).await
        }
    }
}

/// Reconstructs strips in these rows from the other strips and writes them. Returns false if nothing was written. If a
/// full list of bad blocks cannot record the change, the rows are read again nevertheless.
async fn rewrite(
    shard: &Shard,
    group: Group,
    Rows { band, window, unreadable }: Rows,
    strip: Option<u8>,
    purpose: Purpose,
) -> Result<bool, IoError> {
    let concerned = |at: &u8| strip.is_none_or(|strip| strip == *at);
    let segments: Vec<Segment> = (0..shard.geometry.data_strips())
        .filter(concerned)
        .map(|strip| segment(shard, band, window, strip))
        .collect();
    let rewritten = maintain_window(shard, group, band, (&segments, unreadable), purpose);
    match Box::pin(rewritten).await {
        Ended::Done(Err(error)) if error.kind == IoErrorKind::Lost => Err(error),
        Ended::Done(Err(error)) if error.kind == IoErrorKind::NoSpace => Ok(true),
        Ended::Done(result) => Ok(result.is_ok()),
        Ended::Stuck(_) => Ok(false),
    }
}

/// Reports the mismatches in `seen`, and whether they were repaired according to `after`.
fn tell(shard: &Shard, rows: Rows, seen: &Seen, after: Option<&Seen>, report: &mut ScrubReport) {
    let gone = |strip: Option<u8>, window: Window, positions: PositionSet| {
        after.is_some_and(|after| {
            let same = |wrong: &&Wrong| {
                wrong.strip == strip
                    && overlap(wrong.window, window)
                    && (wrong.positions.is_empty()
                        || positions.is_empty()
                        || wrong.positions.intersects(positions))
            };
            after.unreadable.is_empty() && after.wrong.iter().find(same).is_none()
        })
    };
    for position in rows.unreadable {
        let repaired =
            gone(None, rows.window, NONE) && gone(copied(shard, position), rows.window, NONE);
        if repaired {
            shard.shared.errors.count_repair(shard.geometry.member(rows.band.stripe, position));
        }
        let verdict = ScrubVerdict::Unreadable;
        let finding = finding(shard, rows.band, rows.window, (verdict, Some(position)), repaired);
        report.findings.push(finding);
    }
    for wrong in &seen.wrong {
        if wrong.positions.is_empty() {
            let verdict = match wrong.strip {
                Some(_) => ScrubVerdict::CopiesDiffer,
                None => ScrubVerdict::ParityDiffers,
            };
            let repaired = gone(wrong.strip, wrong.window, NONE);
            let mut finding = finding(shard, rows.band, wrong.window, (verdict, None), repaired);
            if let Some(strip) = wrong.strip {
                finding.array = of_strip(shard, rows.band, wrong.window, strip);
            }
            report.findings.push(finding);
        }
        for position in wrong.positions {
            let verdict = match shard.geometry.role(rows.band.stripe, position) {
                Role::Data { .. } if wrong.strip.is_some() => ScrubVerdict::CopyWrong,
                Role::Data { .. } => ScrubVerdict::DataWrong,
                Role::Parity { .. } => ScrubVerdict::ParityWrong,
            };
            let repaired = gone(wrong.strip, wrong.window, PositionSet::of(position));
            let who = (verdict, Some(position));
            let finding = finding(shard, rows.band, wrong.window, who, repaired);
            report.findings.push(finding);
        }
    }
}

/// Returns the strip of which the strip at `position` is a copy; none with parity.
fn copied(shard: &Shard, position: u8) -> Option<u8> {
    (shard.geometry.parity_strips() == 0).then(|| position / shard.geometry.copies())
}

const fn overlap(a: Window, b: Window) -> bool {
    a.offset < b.offset + b.blocks && b.offset < a.offset + a.blocks
}

fn of_strip(shard: &Shard, band: Band, window: Window, strip: u8) -> LbaRange {
    let place = Place { stripe: band.stripe, strip, offset: window.offset };
    LbaRange::new(shard.geometry.lba(place), u64::from(window.blocks))
}

fn finding(
    shard: &Shard,
    band: Band,
    window: Window,
    (verdict, position): (ScrubVerdict, Option<u8>),
    repaired: bool,
) -> ScrubFinding {
    let geometry = &shard.geometry;
    let role = position.map(|position| geometry.role(band.stripe, position));
    let array = match role {
        Some(Role::Data { strip, .. }) => of_strip(shard, band, window, strip),
        Some(Role::Parity { .. }) | None => {
            let first = of_strip(shard, band, window, 0);
            let last = of_strip(shard, band, window, geometry.data_strips() - 1);
            LbaRange::new(first.start, last.end().0 - first.start.0)
        }
    };
    let rows = geometry.member_lba(band.stripe, window.offset);
    ScrubFinding {
        verdict,
        member: position.map(|position| geometry.member(band.stripe, position)),
        stripe: band.stripe,
        rows: LbaRange::new(rows, u64::from(window.blocks)),
        array,
        repaired,
    }
}
