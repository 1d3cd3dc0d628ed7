//! Plans for `Copies`: every strip is whole wherever it is, so nothing is ever computed.

use super::{Lost, Plan, Purpose, View, bits, copy_position, low_bits, of_segment};

/// Adds to the empty `plan` what a query on a scheme of copies takes. The strategy stays direct.
pub(super) fn plan(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    match view.query.purpose {
        Purpose::Read => read(view, plan),
        Purpose::Write => write(view, plan),
        Purpose::Resync => resync(view, plan),
        Purpose::Rebuild { targets } => rebuild(view, targets & view.hidden, plan),
    }
}

/// One copy of each segment. While copies may disagree after a crash, always the lowest one present: the one that a
/// resync writes to the others.
fn read(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    for segment in view.query.segments {
        let copies = present_copies(view, segment.strip)?;
        let wanted = if view.query.health.parity_trusted {
            view.query.copy_hint % copies.count_ones() as u8
        } else {
            0
        };
        let copy = bits(copies).nth(wanted.into()).ok_or_else(|| view.lost())?;
        let position = copy_position(view.geometry, view.stripe(), segment.strip, copy);
        plan.reads.push(of_segment(position, segment));
    }
    Ok(())
}

/// Every segment to every copy that can be written.
fn write(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    for segment in view.query.segments {
        for copy in bits(writable_copies(view, segment.strip)?) {
            let position = copy_position(view.geometry, view.stripe(), segment.strip, copy);
            plan.writes.push(of_segment(position, segment));
        }
    }
    Ok(())
}

/// The lowest readable copy of each strip to all the others. A strip with one copy left has nothing to agree
/// with.
fn resync(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    let segments = view.query.segments;
    let concerned = |strip: &u8| segments.is_empty() || segments.iter().any(|s| s.strip == *strip);
    for strip in (0..view.geometry.data_strips()).filter(concerned) {
        let source = present_copies(view, strip)?.trailing_zeros() as u8;
        let others = writable_copies(view, strip)? & !(1 << source);
        if others == 0 {
            continue;
        }
        let at = |copy| copy_position(view.geometry, view.stripe(), strip, copy);
        plan.reads.push(view.over_window(at(source), strip));
        for copy in bits(others) {
            plan.writes.push(view.over_window(at(copy), strip));
        }
    }
    Ok(())
}

/// The lowest present copy of each target's strip, to the target. Targets that share a strip share the read.
fn rebuild(view: &View<'_>, targets: u64, plan: &mut Plan) -> Result<(), Lost> {
    let copies_each = view.geometry.copies();
    for position in bits(targets) {
        let strip = position / copies_each;
        if plan.reads.last().is_none_or(|read| read.strip != strip) {
            let copy = present_copies(view, strip)?.trailing_zeros() as u8;
            let source = copy_position(view.geometry, view.stripe(), strip, copy);
            plan.reads.push(view.over_window(source, strip));
        }
        plan.writes.push(view.over_window(position, strip));
    }
    Ok(())
}

/// The copies of `strip` that can be read, as a mask that is never zero.
fn present_copies(view: &View<'_>, strip: u8) -> Result<u64, Lost> {
    copies_outside(view, strip, view.hidden)
}

/// The copies of `strip` that can be written, as a mask that is never zero.
fn writable_copies(view: &View<'_>, strip: u8) -> Result<u64, Lost> {
    copies_outside(view, strip, view.absent)
}

fn copies_outside(view: &View<'_>, strip: u8, excluded: u64) -> Result<u64, Lost> {
    let first = copy_position(view.geometry, view.stripe(), strip, 0);
    let copies = !(excluded >> first) & low_bits(view.geometry.copies());
    if copies == 0 { Err(view.lost()) } else { Ok(copies) }
}
