//! Tests with every level, every set of absent members, and every request on small strips: the bytes must be correct,
//! or the result must be [`Lost`].

use strake_units::{Lba, LbaRange, MemberSet, PositionSet, StripeIndex};

use super::interpret::run;
use super::oracle::{World, encode, mix, strip_position};
use super::{SMALL, every_set, geometry};
use crate::{
    Band, Geometry, Level, Lost, Place, Plan, Purpose, Query, Role, Scheme, Segment, SegmentList,
    StripeHealth, plan, plan_into,
};

/// Returns the new data of a write.
fn new(lba: u64) -> u8 {
    mix(lba ^ 0xbeef << 40)
}

/// One stripe in one condition, for which all requests are checked.
struct Case<'a> {
    world: &'a World,
    band: Band,
    health: StripeHealth,
}

impl Case<'_> {
    fn query<'a>(&self, segments: &'a [Segment], purpose: Purpose, copy_hint: u8) -> Query<'a> {
        Query { band: self.band, health: self.health, segments, purpose, copy_hint }
    }

    fn geometry(&self) -> &Geometry {
        &self.world.geometry
    }

    /// Returns the positions that cannot be read.
    fn hidden(&self) -> PositionSet {
        self.health.absent | self.health.unreadable
    }

    /// Returns true if every copy of data strip `strip` is in `positions`.
    fn all_copies_in(&self, strip: u8, positions: PositionSet) -> bool {
        (0..self.geometry().copies()).all(|copy| {
            let role = Role::Data { strip, copy };
            positions.contains(self.geometry().position(self.band.stripe, role))
        })
    }

    /// Returns true if `positions` has more elements than the stripe has parities.
    fn too_many(&self, positions: PositionSet) -> bool {
        positions.len() > self.geometry().parity_strips().into()
    }

    /// Returns true if no plan can write the segments such that all of them remain readable.
    fn write_is_lost(&self, segments: &[Segment]) -> bool {
        let StripeHealth { absent, unreadable: _, parity_trusted } = self.health;
        let Scheme::Parity(m) = self.geometry().scheme() else {
            return segments.iter().any(|s| self.all_copies_in(s.strip, absent));
        };
        let k = self.geometry().data_strips();
        let at = |strip| strip_position(self.geometry(), self.band.stripe, strip);
        let kept = (k..k + m).map(at).collect::<PositionSet>() - absent;
        if segments.is_empty() || self.too_many(absent) || kept.is_empty() {
            return self.too_many(absent);
        }
        let first = segments.iter().map(|s| s.offset).min();
        let end = segments.iter().map(|s| s.offset + s.blocks).max();
        let whole = |s: &Segment| Some(s.offset) == first && Some(s.offset + s.blocks) == end;
        let new_strips: Vec<u8> = segments.iter().filter(|s| whole(s)).map(|s| s.strip).collect();
        let around_known =
            (0..k).filter(|s| !new_strips.contains(s)).all(|s| !self.hidden().contains(at(s)));
        let touched = segments.iter().fold(kept, |set, s| set.with(at(s.strip)));
        let updatable = parity_trusted && !touched.intersects(self.hidden());
        !around_known && !updatable && self.too_many(self.hidden())
    }

    /// Checks that reads return the content, or `Lost` exactly if a part of the content is lost.
    fn check_read(&self, segments: &[Segment], copy_hint: u8) {
        let query = self.query(segments, Purpose::Read, copy_hint);
        let lost = segments.iter().any(|segment| {
            self.all_copies_in(segment.strip, self.hidden())
                && match self.geometry().scheme() {
                    Scheme::Copies(_) => true,
                    Scheme::Parity(_) => self.too_many(self.hidden()),
                }
        });
        let Some(plan) = self.plan(&query, lost) else { return };
        let want: Vec<u8> = segments
            .iter()
            .flat_map(|s| (0..s.blocks).map(|block| s.lba.plus(block.into())))
            .map(|lba| self.world.content(lba, self.hidden()).expect("the plan says so"))
            .collect();
        assert_eq!(run(&mut self.world.clone(), &query, &plan, new), want, "{query:?}\n{plan:?}");
    }

    /// Checks that a write stores the new data and, over the window, consistent redundancy, and changes nothing else.
    fn check_write(&self, segments: &[Segment]) {
        let query = self.query(segments, Purpose::Write, 0);
        let lost = self.write_is_lost(segments);
        let Some(plan) = self.plan(&query, lost) else { return };
        let mut after = self.world.clone();
        run(&mut after, &query, &plan, new);
        let mut want = self.world.clone();
        let fresh = |place: Place| {
            let inside = |s: &&Segment| {
                s.strip == place.strip && (s.offset..s.offset + s.blocks).contains(&place.offset)
            };
            segments.iter().find(inside).map(|_| new(self.geometry().lba(place).0))
        };
        let columns = plan.window.offset..plan.window.offset + plan.window.blocks;
        self.expect(&mut want, columns, fresh);
        assert_eq!(after, want, "{query:?}\n{plan:?}");
    }

    /// Checks that a resync makes the present members of the whole band consistent with its data, and that hidden data
    /// is recovered from the parity.
    fn check_resync(&self) {
        let query = self.query(&[], Purpose::Resync, 0);
        let lost = match self.geometry().scheme() {
            Scheme::Copies(_) => (0..self.geometry().data_strips())
                .any(|strip| self.all_copies_in(strip, self.hidden())),
            Scheme::Parity(_) => self.too_many(self.hidden()),
        };
        let Some(plan) = self.plan(&query, lost) else { return };
        let mut after = self.world.clone();
        run(&mut after, &query, &plan, new);
        let mut want = self.world.clone();
        match self.geometry().scheme() {
            Scheme::Parity(_) => {
                self.expect(&mut want, self.columns(), |place| Some(self.old(place)));
            }
            Scheme::Copies(_) => {
                self.expect(&mut want, self.columns(), |_| None);
                let written = self.geometry().all_positions() - self.health.absent;
                self.copy_lowest(&mut want, written);
            }
        }
        assert_eq!(after, want, "{query:?}\n{plan:?}");
        self.check_pieces(Purpose::Resync, self.world.clone(), &after);
    }

    /// Checks that an operation on single pieces, one after the other, has the same result as on the whole band.
    fn check_pieces(&self, purpose: Purpose, mut world: World, want: &World) {
        let (geometry, stripe) = (*self.geometry(), self.band.stripe);
        let top = geometry.band_offset(self.band);
        let strips = match geometry.scheme() {
            Scheme::Copies(_) => geometry.data_strips(),
            Scheme::Parity(_) => 1,
        };
        for (offset, blocks) in [(top, 1), (top + 1, geometry.band_blocks() - 1)] {
            for strip in 0..strips {
                let lba = geometry.lba(Place { stripe, strip, offset });
                let segments = [Segment { strip, offset, blocks, lba }];
                let query = self.query(&segments, purpose, 0);
                let Some(plan) = self.plan(&query, false) else { return };
                let columns = (plan.window.offset, plan.window.blocks);
                assert_eq!(columns, (offset, blocks), "{query:?}");
                run(&mut world, &query, &plan, new);
            }
        }
        assert_eq!(world, *want, "{purpose:?} of {:?} by pieces", self.health);
    }

    /// Checks that a rebuild fills its targets with the correct content and changes nothing else.
    fn check_rebuild(&self, targets: PositionSet) {
        let query = self.query(&[], Purpose::Rebuild { targets }, 0);
        let lost = match self.geometry().scheme() {
            Scheme::Copies(_) => (0..self.geometry().data_strips()).any(|strip| {
                self.all_copies_in(strip, self.hidden())
                    && targets.iter().any(|position| position / self.geometry().copies() == strip)
            }),
            Scheme::Parity(_) => !targets.is_empty() && self.too_many(self.hidden()),
        };
        let Some(plan) = self.plan(&query, lost) else { return };
        let mut after = self.world.clone();
        // The new member contains random bytes at the positions of the old data.
        for (position, offset) in self.blocks_of(targets) {
            let garbage = !after.at(self.band.stripe, position, offset);
            after.set(self.band.stripe, position, offset, garbage);
        }
        let before = after.clone();
        run(&mut after, &query, &plan, new);
        assert_eq!(after, *self.world, "{query:?}\n{plan:?}");
        self.check_pieces(Purpose::Rebuild { targets }, before, self.world);
    }

    /// Returns the plan of `query`. The plan must be `Lost` exactly if `lost` is true.
    fn plan(&self, query: &Query<'_>, lost: bool) -> Option<Plan> {
        match plan(self.geometry(), query) {
            Ok(plan) => {
                assert!(!lost, "{query:?} should be lost: {plan:?}");
                Some(plan)
            }
            Err(error) => {
                assert!(lost, "{query:?} should not be lost");
                assert_eq!(error, Lost { band: self.band, absent: self.hidden() });
                None
            }
        }
    }

    fn columns(&self) -> std::ops::Range<u32> {
        let top = self.geometry().band_offset(self.band);
        top..top + self.geometry().band_blocks()
    }

    fn blocks_of(&self, positions: PositionSet) -> impl Iterator<Item = (u8, u32)> {
        let columns = self.columns();
        positions
            .iter()
            .flat_map(move |position| columns.clone().map(move |offset| (position, offset)))
    }

    /// Writes the expected content of the writable positions of the stripe into `want`: new data if the request has new
    /// data, and parity that is consistent over `columns`.
    fn expect(
        &self,
        want: &mut World,
        columns: std::ops::Range<u32>,
        fresh: impl Fn(Place) -> Option<u8>,
    ) {
        let (geometry, stripe) = (*self.geometry(), self.band.stripe);
        for offset in columns {
            let place = |strip: u8| Place { stripe, strip, offset };
            let data: Vec<Option<u8>> =
                (0..geometry.data_strips()).map(|s| fresh(place(s))).collect();
            for position in geometry.all_positions() - self.health.absent {
                match geometry.role(stripe, position) {
                    Role::Data { strip, copy: _ } => {
                        if let Some(byte) = data[usize::from(strip)] {
                            want.set(stripe, position, offset, byte);
                        }
                    }
                    Role::Parity { index } => {
                        let column: Vec<u8> = (0..geometry.data_strips())
                            .map(|s| data[usize::from(s)].unwrap_or_else(|| self.old(place(s))))
                            .collect();
                        want.set(stripe, position, offset, encode(&geometry, index, &column));
                    }
                }
            }
        }
    }

    /// Returns the old content of the block. If too many positions are hidden to determine it, returns the initial
    /// content: a read-modify-write needs trusted parity, and such a block remains recoverable after a return of its
    /// member.
    fn old(&self, place: Place) -> u8 {
        let lba = self.geometry().lba(place);
        self.world.content(lba, self.hidden()).unwrap_or_else(|| mix(lba.0))
    }

    /// Copies the lowest present copy of each strip of the band over the others in `positions`.
    fn copy_lowest(&self, want: &mut World, positions: PositionSet) {
        for (position, offset) in self.blocks_of(positions) {
            if let Role::Data { strip, copy: _ } = self.geometry().role(self.band.stripe, position)
            {
                let old = self.old(Place { stripe: self.band.stripe, strip, offset });
                want.set(self.band.stripe, position, offset, old);
            }
        }
    }
}

/// Returns all combinations of at most one segment per strip in strips of two blocks: none, first, second, both.
fn every_combination(geometry: &Geometry, stripe: StripeIndex) -> Vec<Vec<Segment>> {
    let strips = geometry.data_strips();
    (0..1u32 << (2 * strips))
        .map(|choice| {
            (0..strips)
                .filter_map(|strip| {
                    let (offset, blocks) = match choice >> (2 * strip) & 3 {
                        0 => return None,
                        1 => (0, 1),
                        2 => (1, 1),
                        _ => (0, 2),
                    };
                    let lba = geometry.lba(Place { stripe, strip, offset });
                    Some(Segment { strip, offset, blocks, lba })
                })
                .collect()
        })
        .collect()
}

/// Returns every contiguous range of the stripe, as segments.
fn every_span(geometry: &Geometry, stripe: StripeIndex) -> Vec<Vec<Segment>> {
    let start = geometry.lba(Place { stripe, strip: 0, offset: 0 });
    let blocks = geometry.stripe_data_blocks();
    let band = Band { stripe, index: 0 };
    (0..blocks)
        .flat_map(|first| (1..=blocks - first).map(move |count| (first, count)))
        .map(|(first, count)| {
            geometry.segments(band, LbaRange::new(start.plus(first), count)).to_vec()
        })
        .collect()
}

/// Checks all requests on a stripe, with consistent redundancy and after a torn write.
fn check_stripe(worlds: &[World; 2], stripe: StripeIndex, out: Out, requests: &[Vec<Segment>]) {
    let Out { absent, unreadable } = out;
    let [consistent, torn] =
        worlds.each_ref().map(|world| world.without(stripe, absent | unreadable));
    for (world, parity_trusted) in [(&consistent, true), (&consistent, false), (&torn, false)] {
        let band = Band { stripe, index: 0 };
        let health = StripeHealth { absent, unreadable, parity_trusted };
        let case = Case { world, band, health };
        for (at, segments) in requests.iter().enumerate() {
            case.check_read(segments, at as u8);
            case.check_write(segments);
        }
        case.check_resync();
    }
    let band = Band { stripe, index: 0 };
    let health = StripeHealth { absent, unreadable, parity_trusted: true };
    let case = Case { world: &worlds[0], band, health };
    let hidden = absent | unreadable;
    let subsets = every_set(worlds[0].geometry.width()).filter(|targets| targets.is_subset(hidden));
    subsets.for_each(|targets| case.check_rebuild(targets));
}

/// The positions that are out: absent or unreadable.
#[derive(Clone, Copy)]
struct Out {
    absent: PositionSet,
    unreadable: PositionSet,
}

impl Out {
    /// Returns true if all positions that are out have the same condition.
    fn is_plain(self) -> bool {
        self.absent.is_empty() || self.unreadable.is_empty()
    }
}

/// Returns all combinations of readable, absent and unreadable positions of a stripe.
fn every_out(width: u8) -> impl Iterator<Item = Out> {
    every_set(width).flat_map(move |hidden: PositionSet| {
        every_set(width)
            .filter(move |absent: &PositionSet| absent.is_subset(hidden))
            .map(move |absent| Out { absent, unreadable: hidden - absent })
    })
}

/// Checks `level` on `members`: every stripe of a full rotation of the layout and every absent set with every
/// combination of segments on strips of two blocks, then every contiguous range on strips of eight blocks.
fn check_level(level: Level, members: usize, group_size: Option<u8>) {
    let width = group_size.unwrap_or(members as u8);
    let small = geometry(level, members, group_size, 2, width.into());
    let worlds = [World::consistent(small), World::torn(small)];
    for stripe in (0..small.stripes()).map(StripeIndex) {
        let requests = every_combination(&small, stripe);
        for out in every_out(width).filter(|out| members <= 4 || out.is_plain()) {
            check_stripe(&worlds, stripe, out, &requests);
        }
    }
    let tall = geometry(level, members, group_size, 8, width.into());
    let worlds = [World::consistent(tall), World::torn(tall)];
    for (at, out) in every_out(width).enumerate() {
        // Each set uses a different stripe, so that the sets cover all rotations of the layout.
        let stripe = StripeIndex(at as u64 * 5 % tall.stripes());
        check_stripe(&worlds, stripe, out, &every_span(&tall, stripe));
    }
}

fn check_levels(wanted: impl Fn(Level) -> bool) {
    for (level, members, group_size) in SMALL {
        if wanted(level) {
            check_level(level, members, group_size);
        }
    }
}

#[test]
fn copies_never_answer_wrong() {
    check_levels(|level| level.parity_strips() == 0);
}

#[test]
fn single_parity_never_answers_wrong() {
    check_levels(|level| level.parity_strips() == 1);
}

#[test]
fn double_parity_never_answers_wrong() {
    check_levels(|level| level.parity_strips() == 2);
}

#[test]
fn triple_and_more_parity_never_answers_wrong() {
    check_levels(|level| level.parity_strips() >= 3);
}

/// Tests ranges over several stripes, divided as in the engine, with every survivable set of absent members.
#[test]
fn ranges_over_stripes_read_back_what_was_written() {
    for (level, members, group_size) in SMALL {
        let geometry = geometry(level, members, group_size, 2, 2);
        let before = World::consistent(geometry);
        for absent in every_set(members as u8).filter(|absent| geometry.tolerates(*absent)) {
            let capacity = geometry.capacity_blocks();
            let start = absent.bits() % capacity;
            for blocks in 0..=capacity - start {
                check_range(&before, absent, LbaRange::new(Lba(start), blocks));
            }
        }
    }
}

fn check_range(before: &World, absent: MemberSet, range: LbaRange) {
    let geometry = before.geometry;
    let mut world = before.clone();
    // These values are reused for every band, as on the data path. No content of the previous band may remain in them.
    let (mut segments, mut reused) = (SegmentList::new(), Plan::new());
    for band in geometry.bands(range) {
        let absent = geometry.positions_of_members(band.stripe, absent);
        geometry.segments_into(band, range, &mut segments);
        assert_eq!(segments, geometry.segments(band, range));
        let health = StripeHealth { absent, unreadable: PositionSet::EMPTY, parity_trusted: true };
        let query =
            Query { band, health, segments: &segments, purpose: Purpose::Write, copy_hint: 0 };
        let fresh = plan(&geometry, &query).unwrap_or_else(|lost| panic!("{lost}: {query:?}"));
        assert_eq!(plan_into(&geometry, &query, &mut reused), Ok(()));
        assert_eq!(reused, fresh);
        run(&mut world, &query, &reused, new);
    }
    for lba in (0..geometry.capacity_blocks()).map(Lba) {
        let absent = geometry.positions_of_members(geometry.place(lba).stripe, absent);
        let want = if range.overlaps(LbaRange::new(lba, 1)) { new(lba.0) } else { mix(lba.0) };
        assert_eq!(world.content(lba, absent), Some(want), "{geometry:?} {range:?} at {lba}");
    }
}

/// A test of the oracle: an oracle that does not detect wrong parity would prove nothing.
#[test]
fn the_oracle_notices_stale_parity() {
    let geometry = geometry(Level::Raid5, 3, None, 2, 3);
    let stripe = StripeIndex(0);
    let mut world = World::consistent(geometry);
    let data = strip_position(&geometry, stripe, 0);
    world.set(stripe, data, 0, !world.at(stripe, data, 0));
    let absent = PositionSet::of(strip_position(&geometry, stripe, 1));
    assert_ne!(world.content(Lba(2), absent), Some(mix(2)));
}
