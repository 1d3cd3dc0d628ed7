//! Plans for `Copies`: every position contains a whole strip, so that nothing is computed.

use strake_units::PositionSet;

use super::{Lost, Plan, Purpose, View, of_segment};

/// Adds the transfers of a query on a scheme of copies to the empty `plan`. The strategy remains direct.
pub(super) fn plan(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    match view.query.purpose {
        Purpose::Read => read(view, plan),
        Purpose::Write => write(view, plan),
        Purpose::Resync => resync(view, plan),
        Purpose::Rebuild { targets } => rebuild(view, targets & view.hidden, plan),
    }
}

/// Reads one copy of each segment. While copies may differ after a crash, always the lowest present copy is read,
/// because a resync writes this copy to the others.
fn read(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    for segment in view.query.segments {
        let copies = present_copies(view, segment.strip)?;
        let wanted = if view.query.health.parity_trusted {
            usize::from(view.query.copy_hint) % copies.len()
        } else {
            0
        };
        let position = copies.iter().nth(wanted).ok_or_else(|| view.lost())?;
        plan.reads.push(of_segment(position, segment));
    }
    Ok(())
}

/// Writes every segment to every writable copy.
fn write(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    for segment in view.query.segments {
        for position in writable_copies(view, segment.strip)? {
            plan.writes.push(of_segment(position, segment));
        }
    }
    Ok(())
}

/// Copies the lowest readable copy of each strip to all other copies. A strip with one remaining copy needs no resync.
fn resync(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    let segments = view.query.segments;
    let concerned = |strip: &u8| segments.is_empty() || segments.iter().any(|s| s.strip == *strip);
    for strip in (0..view.geometry.data_strips()).filter(concerned) {
        let source = lowest_present(view, strip)?;
        let others = writable_copies(view, strip)?.without(source);
        if others.is_empty() {
            continue;
        }
        plan.reads.push(view.over_window(source, strip));
        for position in others {
            plan.writes.push(view.over_window(position, strip));
        }
    }
    Ok(())
}

/// Copies the lowest present copy of the strip of each target to the target. Targets with the same strip share the
/// read.
fn rebuild(view: &View<'_>, targets: PositionSet, plan: &mut Plan) -> Result<(), Lost> {
    let copies_each = view.geometry.copies();
    for position in targets {
        let strip = position / copies_each;
        if plan.reads.last().is_none_or(|read| read.strip != strip) {
            plan.reads.push(view.over_window(lowest_present(view, strip)?, strip));
        }
        plan.writes.push(view.over_window(position, strip));
    }
    Ok(())
}

/// Returns the position of the lowest readable copy of `strip`.
fn lowest_present(view: &View<'_>, strip: u8) -> Result<u8, Lost> {
    present_copies(view, strip)?.first().ok_or_else(|| view.lost())
}

/// Returns the positions of the readable copies of `strip`, or an error if no copy is readable.
fn present_copies(view: &View<'_>, strip: u8) -> Result<PositionSet, Lost> {
    copies_outside(view, strip, view.hidden)
}

/// Returns the positions of the writable copies of `strip`, or an error if no copy is writable.
fn writable_copies(view: &View<'_>, strip: u8) -> Result<PositionSet, Lost> {
    copies_outside(view, strip, view.absent)
}

fn copies_outside(view: &View<'_>, strip: u8, excluded: PositionSet) -> Result<PositionSet, Lost> {
    let copies = view.geometry.positions_of_copies(strip) - excluded;
    if copies.is_empty() { Err(view.lost()) } else { Ok(copies) }
}
