//! Interprets a plan on bytes, as the engine does, and panics if the plan is incomplete.

use strake_units::{PositionSet, StripeIndex};

use super::gf;
use super::oracle::{World, decode, encode, strip_position};
use crate::{Geometry, Plan, Purpose, Query, Role, Scheme, Strategy, Transfer, Window};

/// The known blocks of each strip of a band during a plan. A read of an unknown block is an error of the plan.
struct Sheet {
    top: u32,
    height: usize,
    bytes: Vec<Option<u8>>,
}

impl Sheet {
    fn new(geometry: &Geometry, query: &Query<'_>) -> Self {
        let height = geometry.band_blocks() as usize;
        let strips = usize::from(geometry.data_strips() + geometry.parity_strips());
        let top = geometry.band_offset(query.band);
        Self { top, height, bytes: vec![None; strips * height] }
    }

    fn at(&mut self, strip: u8, offset: u32) -> &mut Option<u8> {
        &mut self.bytes[usize::from(strip) * self.height + (offset - self.top) as usize]
    }

    fn get(&mut self, strip: u8, offset: u32) -> u8 {
        self.at(strip, offset)
            .unwrap_or_else(|| panic!("strip {strip} block {offset} is not known"))
    }
}

/// Executes `plan`. New data for the segments of a write comes from `new`. For a read, returns one byte per block of
/// the segments, in order.
pub(super) fn run(
    world: &mut World,
    query: &Query<'_>,
    plan: &Plan,
    new: impl Fn(u64) -> u8,
) -> Vec<u8> {
    let geometry = world.geometry;
    let stripe = query.band.stripe;
    check_shape(&geometry, query, plan);
    let mut sheet = Sheet::new(&geometry, query);
    for read in plan.reads.iter() {
        for offset in offsets(read) {
            *sheet.at(read.strip, offset) = Some(world.at(stripe, read.position, offset));
        }
    }
    recover(&geometry, plan, &mut sheet);
    match query.purpose {
        Purpose::Read => return answer(query, &mut sheet),
        Purpose::Write => match plan.strategy {
            Strategy::ReadModifyWrite => update_parity(&geometry, query, plan, &mut sheet, &new),
            Strategy::Direct => overlay(query, &mut sheet, &new),
            Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => {
                overlay(query, &mut sheet, &new);
                encode_window(&geometry, plan, &mut sheet);
            }
        },
        Purpose::Resync => encode_window(&geometry, plan, &mut sheet),
        Purpose::Rebuild { targets: _ } => {}
    }
    for write in plan.writes.iter() {
        for offset in offsets(write) {
            let byte = sheet.get(write.strip, offset);
            world.set(stripe, write.position, offset, byte);
        }
    }
    Vec::new()
}

fn offsets(transfer: &Transfer) -> std::ops::Range<u32> {
    transfer.offset..transfer.offset + transfer.blocks
}

fn window(plan: &Plan) -> std::ops::Range<u32> {
    plan.window.offset..plan.window.offset + plan.window.blocks
}

fn recover(geometry: &Geometry, plan: &Plan, sheet: &mut Sheet) {
    if plan.recover.is_empty() {
        return;
    }
    for offset in window(plan) {
        let known: Vec<(u8, u8)> =
            plan.reads.iter().map(|read| (read.strip, sheet.get(read.strip, offset))).collect();
        let data = decode(geometry, &known);
        for strip in plan.recover.iter() {
            *sheet.at(*strip, offset) = Some(match strip.checked_sub(geometry.data_strips()) {
                Some(index) => encode(geometry, index, &data),
                None => data[usize::from(*strip)],
            });
        }
    }
}

fn answer(query: &Query<'_>, sheet: &mut Sheet) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in query.segments {
        bytes.extend(
            (0..segment.blocks).map(|block| sheet.get(segment.strip, segment.offset + block)),
        );
    }
    bytes
}

fn overlay(query: &Query<'_>, sheet: &mut Sheet, new: &impl Fn(u64) -> u8) {
    for segment in query.segments {
        for block in 0..segment.blocks {
            let byte = new(segment.lba.0 + u64::from(block));
            *sheet.at(segment.strip, segment.offset + block) = Some(byte);
        }
    }
}

/// Adds the difference between old and new data to the old parity.
fn update_parity(
    geometry: &Geometry,
    query: &Query<'_>,
    plan: &Plan,
    sheet: &mut Sheet,
    new: &impl Fn(u64) -> u8,
) {
    let (k, m) = (geometry.data_strips(), geometry.parity_strips());
    for segment in query.segments {
        for block in 0..segment.blocks {
            let offset = segment.offset + block;
            let change = sheet.get(segment.strip, offset) ^ new(segment.lba.0 + u64::from(block));
            for parity in plan.reads.iter().filter(|read| read.strip >= k) {
                let factor =
                    gf::coefficient(m.into(), (parity.strip - k).into(), segment.strip.into());
                let updated = sheet.get(parity.strip, offset) ^ gf::multiply(factor, change);
                *sheet.at(parity.strip, offset) = Some(updated);
            }
        }
    }
    overlay(query, sheet, new);
}

/// Encodes every parity that the plan writes, which needs all data of the window.
fn encode_window(geometry: &Geometry, plan: &Plan, sheet: &mut Sheet) {
    let k = geometry.data_strips();
    for parity in plan.writes.iter().filter(|write| write.strip >= k) {
        for offset in window(plan) {
            let data: Vec<u8> = (0..k).map(|strip| sheet.get(strip, offset)).collect();
            *sheet.at(parity.strip, offset) = Some(encode(geometry, parity.strip - k, &data));
        }
    }
}

/// Checks the properties of every plan.
fn check_shape(geometry: &Geometry, query: &Query<'_>, plan: &Plan) {
    let absent = query.health.absent;
    let hidden = absent | query.health.unreadable;
    let stripe = query.band.stripe;
    let writable = match query.purpose {
        Purpose::Read => PositionSet::EMPTY,
        Purpose::Write | Purpose::Resync => geometry.all_positions() - absent,
        Purpose::Rebuild { targets } => targets & hidden,
    };
    check_transfers(geometry, stripe, plan, &plan.reads, geometry.all_positions() - hidden);
    check_transfers(geometry, stripe, plan, &plan.writes, writable);
    check_columns(query, plan, &plan.reads);
    check_columns(query, plan, &plan.writes);
    if !plan.recover.is_empty() {
        assert_eq!(plan.strategy, Strategy::Degraded, "{plan:?}");
        assert_eq!(plan.reads.len(), usize::from(geometry.data_strips()), "{plan:?}");
        let whole = |read: &Transfer| {
            offsets(read).start <= plan.window.offset && offsets(read).end >= window(plan).end
        };
        assert!(plan.reads.iter().all(whole), "{plan:?}");
    }
    if plan.strategy == Strategy::ReadModifyWrite {
        assert!(query.health.parity_trusted, "{query:?}");
    }
}

/// Checks that transfers are in the window or, for a read, between the window and their own segment.
fn check_columns(query: &Query<'_>, plan: &Plan, transfers: &[Transfer]) {
    for transfer in transfers {
        let own = query.segments.iter().find(|segment| segment.strip == transfer.strip);
        let hull = match own {
            Some(own) if query.purpose == Purpose::Read => plan.window.with(Window::of(own)),
            Some(_) | None => plan.window,
        };
        let (start, end) = (hull.offset, hull.offset + hull.blocks);
        let Transfer { offset, blocks, .. } = *transfer;
        assert!(blocks > 0 && offset >= start && offset + blocks <= end, "{plan:?}");
    }
}

/// Checks that transfers are on `allowed` positions, each position at most once and with its own strip.
fn check_transfers(
    geometry: &Geometry,
    stripe: StripeIndex,
    plan: &Plan,
    transfers: &[Transfer],
    allowed: PositionSet,
) {
    let mut left = allowed;
    for transfer in transfers {
        let Transfer { position, strip, .. } = *transfer;
        assert!(left.contains(position), "{transfer:?} of {plan:?}");
        left.remove(position);
        match geometry.scheme() {
            Scheme::Parity(_) => assert_eq!(strip_position(geometry, stripe, strip), position),
            Scheme::Copies(_) => match geometry.role(stripe, position) {
                Role::Data { strip: held, copy: _ } => assert_eq!(held, strip),
                Role::Parity { index: _ } => panic!("parity among copies"),
            },
        }
    }
}
