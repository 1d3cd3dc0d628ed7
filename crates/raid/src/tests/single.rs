//! Tests of the direct path: it must be allowed exactly under its rules, and must then do the same as the plan of the
//! same request.

use strake_units::{
    Lba, LbaRange, MemberIndex, MemberSet, PositionSet, Set, StripSet, StripeIndex,
};

use super::oracle::{World, decode, mix, strip_position};
use super::{SMALL, every_set, geometry};
use crate::{
    Access, Geometry, GeometrySpec, Level, Logged, MemberFacts, PARTS_MAX, Plan, Purpose, Query,
    Role, Scheme, Sets, Single, Spot, Strategy, StripeHealth, Transfer, plan, single,
};

/// A fault of a member in the range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Absent,
    /// The member is rebuilding and lacks the region.
    Lacking,
    /// The member is rebuilding and already has the region.
    Filled,
    Silent,
    Lagging,
    SittingOut,
    Paired,
    /// Writes to the stripes of the member are logged.
    Logged,
    Bad,
    /// The sender of the read avoids the member.
    Avoided,
}

const FAULTS: [Fault; 10] = [
    Fault::Absent,
    Fault::Lacking,
    Fault::Filled,
    Fault::Silent,
    Fault::Lagging,
    Fault::SittingOut,
    Fault::Paired,
    Fault::Logged,
    Fault::Bad,
    Fault::Avoided,
];

/// Members with at most one fault each, and the other inputs of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    faults: [(Fault, MemberSet); 2],
    trusted: bool,
    /// The read is not a probe.
    handed_out: bool,
    /// The read has a request.
    by_request: bool,
    /// Only groups with a member that is not in sync or has a replacement are logged.
    pub(super) impaired: bool,
    copies_may_differ: bool,
    /// Every shard has applied the absence of members.
    settled: bool,
}

impl Known {
    pub(super) fn with(&self, fault: Fault) -> MemberSet {
        let of = self.faults.iter().filter(|(other, _)| *other == fault);
        of.fold(MemberSet::EMPTY, |all, (_, members)| all | *members)
    }

    fn any(&self, member: MemberIndex, faults: &[Fault]) -> bool {
        faults.iter().any(|fault| self.with(*fault).contains(member))
    }

    pub(super) fn sets(&self, geometry: &Geometry) -> Sets {
        let rebuilding = self.with(Fault::Lacking) | self.with(Fault::Filled);
        let facts = MemberFacts {
            in_sync: geometry.all_members() - self.with(Fault::Absent) - rebuilding,
            rebuilding,
            silent: self.with(Fault::Silent),
            lagging: self.with(Fault::Lagging),
            sitting_out: self.with(Fault::SittingOut),
            paired: self.with(Fault::Paired),
            unsettled: if self.settled { MemberSet::EMPTY } else { self.with(Fault::Absent) },
            logged: match self.impaired {
                true => Logged::Impaired,
                false => Logged::With(self.with(Fault::Logged)),
            },
            copies_may_differ: self.copies_may_differ,
            write_blocks_max: WRITE_BLOCKS_MAX,
        };
        let mut sets = Sets::of(geometry, &facts);
        assert_eq!(sets.rebuilding(), rebuilding);
        if self.by_request {
            sets = sets.by_request();
        }
        if self.handed_out {
            sets = sets.without_probes();
        }
        if !self.trusted {
            sets = sets.untrusted();
        }
        sets.bad(self.with(Fault::Bad))
            .lacking(self.with(Fault::Lacking))
            .lacking(self.with(Fault::Avoided))
    }

    /// The rule for one member: true if the member accepts a read of its own data.
    fn answers(&self, member: MemberIndex) -> bool {
        use Fault::{Absent, Avoided, Bad, Filled, Lacking, Lagging, Silent, SittingOut};
        let avoided = !self.by_request && self.any(member, &[Silent, SittingOut]);
        !avoided && !self.any(member, &[Absent, Lacking, Filled, Lagging, Bad, Avoided])
    }

    /// Returns true if parity is trusted and the read may use other members.
    pub(super) fn trusts(&self) -> bool {
        self.trusted && !self.by_request
    }

    /// The rule for one member: true if its data must be recovered.
    fn hides(&self, member: MemberIndex) -> bool {
        use Fault::{Absent, Avoided, Lacking, Lagging, SittingOut};
        self.any(member, &[Absent, Lacking, Lagging, SittingOut, Avoided])
    }

    /// The rule for one member: true if it accepts a part of a small write.
    pub(super) fn takes_part(&self, geometry: &Geometry, member: MemberIndex) -> bool {
        self.is_plain(member) && !self.logs(geometry, member)
    }

    /// The rule for one member: true if it is in sync, without a replacement and without bad blocks.
    fn is_plain(&self, member: MemberIndex) -> bool {
        use Fault::{Absent, Bad, Filled, Lacking, Paired};
        !self.any(member, &[Absent, Lacking, Filled, Paired, Bad])
    }

    /// True if writes to the member are recorded completely.
    fn logs(&self, geometry: &Geometry, member: MemberIndex) -> bool {
        use Fault::{Absent, Filled, Lacking, Logged, Paired};
        let width = usize::from(geometry.width());
        let group = |other: &usize| other / width == member.at() / width;
        let not_plain =
            |other: usize| self.any(MemberIndex(other as u8), &[Absent, Lacking, Filled, Paired]);
        match self.impaired {
            true => (0..geometry.members()).filter(group).any(not_plain),
            false => self.any(member, &[Logged]),
        }
    }

    /// True if no rule forbids that a small write leaves out absent members.
    fn may_leave_out(&self) -> bool {
        let none = |fault| self.with(fault).is_empty();
        none(Fault::Paired) && (self.settled || none(Fault::Absent))
    }

    /// Returns the corresponding input of the planner.
    fn health(&self, geometry: &Geometry, stripe: StripeIndex) -> StripeHealth {
        let hides = |at: &usize| self.hides(MemberIndex(*at as u8));
        let hidden: MemberSet = (0..geometry.members()).filter(hides).collect();
        let at = |members| geometry.positions_of_members(stripe, members);
        let absent = self.with(Fault::Absent);
        StripeHealth {
            absent: at(absent),
            unreadable: at(hidden - absent),
            parity_trusted: self.trusted,
        }
    }
}

/// A band of the geometries of these tests has 8 blocks, so that this limit has an effect.
const WRITE_BLOCKS_MAX: u32 = 7;

/// One request.
struct Case<'a> {
    world: &'a World,
    range: LbaRange,
    known: Known,
}

impl Case<'_> {
    fn what(&self) -> String {
        format!("{:?} {:?} {:?}", self.world.geometry, self.range, self.known)
    }

    /// Returns the position of the range, computed with the functions that tasks use.
    fn spot(&self) -> Option<Spot> {
        let geometry = &self.world.geometry;
        let inside = self.range.blocks > 0 && self.range.end().0 <= geometry.capacity_blocks();
        let one = inside && geometry.pieces(self.range).count() == 1;
        let spot = geometry.spot(self.range);
        assert_eq!(spot.is_some(), one, "{}", self.what());
        let (spot, piece) = (spot?, geometry.pieces(self.range).next()?);
        assert_eq!(spot.band(), piece.band);
        assert_eq!(
            (spot.place.strip, spot.place.offset),
            (piece.segment.strip, piece.segment.offset)
        );
        assert_eq!(spot.blocks, piece.segment.blocks);
        assert_eq!(spot.member_lba(), geometry.member_lba(spot.place.stripe, spot.place.offset));
        assert_eq!(spot.own_member(geometry), geometry.data_member(spot.place, 0));
        Some(spot)
    }

    /// Returns the members whose role in the stripe satisfies `test`.
    fn members(&self, spot: &Spot, test: impl Fn(Role) -> bool) -> Vec<MemberIndex> {
        let geometry = &self.world.geometry;
        let (stripe, positions) = (spot.place.stripe, 0..geometry.width());
        let role = |position: &u8| test(geometry.role(stripe, *position));
        positions.filter(role).map(|position| geometry.member(stripe, position)).collect()
    }

    fn own(&self, spot: &Spot) -> Vec<MemberIndex> {
        let mine = |role| matches!(role, Role::Data { strip, .. } if strip == spot.place.strip);
        self.members(spot, mine)
    }

    fn plan(&self, spot: &Spot, purpose: Purpose, copy_hint: u8) -> Option<Plan> {
        let geometry = &self.world.geometry;
        let health = self.known.health(geometry, spot.place.stripe);
        let segments = &geometry.segments(spot.band(), self.range);
        let query = Query { band: spot.band(), health, segments, purpose, copy_hint };
        plan(geometry, &query).ok()
    }

    fn check(&self) {
        let Some(spot) = self.spot() else { return };
        let sets = self.known.sets(&self.world.geometry);
        let ask = |access| single(&self.world.geometry, &spot, access, &sets);
        let answer = ask(Access::Read);
        match self.expected_read(&spot) {
            Some(members) => assert_eq!(answer, Some(Single::Read { members }), "{}", self.what()),
            None => self.check_recover(&spot, answer),
        }
        if let Some(Single::Read { members }) = answer {
            self.check_read(&spot, members);
        }
        let (plain, logged) = (ask(Access::Write), ask(Access::LoggedWrite));
        assert!(plain.is_none() || logged.is_none(), "{}", self.what());
        self.check_write(&spot, plain.or(logged));
    }

    /// Returns the expected members of a read.
    fn expected_read(&self, spot: &Spot) -> Option<MemberSet> {
        if self.world.geometry.copies() > 1 && self.known.copies_may_differ {
            return None;
        }
        let members = self.own(spot).into_iter().filter(|member| self.known.answers(*member));
        let members: MemberSet = members.collect();
        (!members.is_empty()).then_some(members)
    }

    /// Checks that the planner may read every one of the members, and that every one has the written data.
    fn check_read(&self, spot: &Spot, members: MemberSet) {
        let geometry = &self.world.geometry;
        let stripe = spot.place.stripe;
        let hints = 0..geometry.copies();
        let reads = hints.filter_map(|hint| self.plan(spot, Purpose::Read, hint));
        let reads: PositionSet = reads
            .filter(|plan| plan.strategy == Strategy::Direct)
            .map(|plan| plan.reads[0].position)
            .collect();
        let positions = geometry.positions_of_members(stripe, members);
        assert_eq!(positions.len(), members.len(), "{}", self.what());
        if self.known.trusts() {
            assert!(positions.is_subset(reads), "{}: {reads:?}", self.what());
        }
        for position in positions {
            let held = self.world.at(stripe, position, spot.place.offset);
            assert_eq!(held, mix(self.range.start.0), "{}", self.what());
        }
    }

    /// Checks that a recovery has the reads of the plan and returns the written data, and that it is refused if a rule
    /// forbids it.
    fn check_recover(&self, spot: &Spot, answer: Option<Single>) {
        let geometry = &self.world.geometry;
        let planned = self.plan(spot, Purpose::Read, 0);
        let degraded = planned.filter(|plan| plan.strategy == Strategy::Degraded);
        let member_of = |read: &Transfer| geometry.member(spot.place.stripe, read.position);
        let able = |read: &Transfer| {
            let member = member_of(read);
            self.known.answers(member) && !self.known.any(member, &[Fault::Paired])
        };
        let probe = !self.known.handed_out
            && self.known.any(spot.own_member(geometry), &[Fault::SittingOut]);
        let wanted =
            degraded.filter(|plan| self.known.trusts() && !probe && plan.reads.iter().all(able));
        let Some(plan) = wanted else {
            assert_eq!(answer, None, "{}", self.what());
            return;
        };
        let strips: StripSet = plan.reads.iter().map(|read| read.strip).collect();
        assert_eq!(answer, Some(Single::Recover { strips }), "{}", self.what());
        let (stripe, offset) = (spot.place.stripe, spot.place.offset);
        let known: Vec<(u8, u8)> = strips
            .iter()
            .map(|strip| (strip, strip_position(geometry, stripe, strip)))
            .map(|(strip, position)| (strip, self.world.at(stripe, position, offset)))
            .collect();
        assert_eq!(known.len(), usize::from(geometry.data_strips()));
        let strip = usize::from(spot.place.strip);
        assert_eq!(decode(geometry, &known)[strip], mix(self.range.start.0), "{}", self.what());
    }

    /// Checks that a small write has the writes of the plan in the same order, and that it is refused if a rule forbids
    /// it.
    fn check_write(&self, spot: &Spot, answer: Option<Single>) {
        let geometry = &self.world.geometry;
        let parity = |role| matches!(role, Role::Parity { .. });
        let mut wanted = self.own(spot);
        let mut parities = self.members(spot, parity);
        parities.sort_by_key(|member| {
            match geometry.role(spot.place.stripe, member.0 % geometry.width()) {
                Role::Parity { index } => index,
                Role::Data { .. } => unreachable!("these are parities"),
            }
        });
        wanted.extend(parities);
        let plain = wanted.iter().all(|member| self.known.takes_part(geometry, *member));
        let records = !plain && geometry.parity_strips() > 0;
        if records {
            // Absent parities are left out.
            let absent = self.known.with(Fault::Absent);
            let own = wanted[0];
            wanted.retain(|member| *member == own || !absent.contains(*member));
        }
        let logged = |member: &MemberIndex| {
            self.known.is_plain(*member) && self.known.logs(geometry, *member)
        };
        let recorded = records && wanted.len() > 1 && self.known.may_leave_out();
        let able = plain || recorded && wanted.iter().all(logged);
        let small = geometry.has_small_writes() && spot.blocks <= WRITE_BLOCKS_MAX;
        let kept = geometry.tolerates(self.known.with(Fault::Absent));
        if !(self.known.trusts() && able && small && kept) {
            assert_eq!(answer, None, "{}", self.what());
            return;
        }
        let parts = match (geometry.scheme(), answer) {
            (Scheme::Copies(_), Some(Single::Mirror(parts))) => parts,
            (Scheme::Parity(_), Some(Single::Update(parts))) if plain => parts,
            (Scheme::Parity(_), Some(Single::Record(parts))) if !plain => parts,
            (_, other) => panic!("{}: {other:?}", self.what()),
        };
        assert_eq!(parts.members(), wanted, "{}", self.what());
        assert_eq!(usize::from(parts.count()), wanted.len());
        assert!((0..parts.count()).map(|part| parts.member(part)).eq(wanted.iter().copied()));
        if geometry.parity_strips() > 0 {
            let role = |member: &MemberIndex| match geometry
                .role(spot.place.stripe, member.0 % geometry.width())
            {
                Role::Parity { index } => index,
                Role::Data { .. } => unreachable!("only the first part is data"),
            };
            assert!(parts.parities().eq(wanted[1..].iter().map(role)), "{}", self.what());
        }
        // Members that only reads avoid are written, and their old data is read.
        let known = Known {
            faults: self.known.faults.map(|(fault, members)| match fault {
                Fault::Lagging | Fault::SittingOut | Fault::Avoided => (fault, MemberSet::EMPTY),
                _ => (fault, members),
            }),
            ..self.known
        };
        let plan =
            Case { world: self.world, range: self.range, known }.plan(spot, Purpose::Write, 0);
        let plan = plan.unwrap_or_else(|| panic!("{}", self.what()));
        let members = |transfers: &[Transfer]| -> Vec<MemberIndex> {
            transfers.iter().map(|t| geometry.member(spot.place.stripe, t.position)).collect()
        };
        assert_eq!(members(&plan.writes), wanted, "{}: {plan:?}", self.what());
        match plan.strategy {
            Strategy::Direct => assert!(plan.reads.is_empty() && geometry.parity_strips() == 0),
            Strategy::ReadModifyWrite => assert_eq!(members(&plan.reads), wanted, "{plan:?}"),
            other => panic!("{}: {other:?}", self.what()),
        }
    }
}

/// Returns all pairs of disjoint sets of members with two different faults.
pub(super) fn every_known(members: u8) -> impl Iterator<Item = Known> {
    let pairs = FAULTS
        .into_iter()
        .enumerate()
        .flat_map(|(at, one)| FAULTS[at + 1..].iter().map(move |other| (one, *other)));
    let sets = move || {
        every_set(members).flat_map(move |one: MemberSet| {
            let other = every_set(members).filter(move |other: &MemberSet| !other.intersects(one));
            other.map(move |other| (one, other))
        })
    };
    pairs
        .flat_map(move |(one, other)| {
            sets().map(move |(these, those)| [(one, these), (other, those)])
        })
        .enumerate()
        .map(|(at, faults)| Known {
            faults,
            trusted: !at.is_multiple_of(7),
            handed_out: at % 2 == 0,
            by_request: at % 5 == 0,
            impaired: at % 3 == 0,
            copies_may_differ: at % 11 == 0,
            settled: at % 13 != 0,
        })
}

/// Checks all inputs, with the strips and stripes in turn.
fn check_level(level: Level, members: usize, group_size: Option<u8>) {
    let width = group_size.unwrap_or(members as u8);
    let geometry = geometry(level, members, group_size, 8, width.into());
    let world = World::consistent(geometry);
    let strips = geometry.stripes() * u64::from(geometry.data_strips());
    // Each set uses another strip and another offset in it.
    for (at, known) in every_known(members.min(6) as u8).enumerate() {
        let at = at as u64;
        let (strip, offset) = (at * 5 % strips, at % 8);
        let start = Lba(strip * 8 + offset);
        let blocks = 1 + at / 8 % (8 - offset);
        Case { world: &world, range: LbaRange::new(start, blocks), known }.check();
    }
}

#[test]
fn exhaustive_faults_of_members_allow_the_direct_way_as_the_rules_say() {
    SMALL.into_iter().for_each(|(level, members, group)| check_level(level, members, group));
}

pub(super) const WELL: Known = Known {
    faults: [(Fault::Absent, Set::EMPTY), (Fault::Bad, Set::EMPTY)],
    trusted: true,
    handed_out: false,
    by_request: false,
    impaired: false,
    copies_may_differ: false,
    settled: true,
};

#[test]
fn exhaustive_ranges_go_the_direct_way_if_they_are_in_one_strip_of_one_band() {
    for (level, members, group_size) in SMALL {
        let width = group_size.unwrap_or(members as u8);
        let geometry = geometry(level, members, group_size, 8, width.into());
        let world = World::consistent(geometry);
        let capacity = geometry.capacity_blocks();
        for start in 0..capacity + 2 {
            for blocks in 0..=10 {
                let range = LbaRange::new(Lba(start), blocks);
                Case { world: &world, range, known: WELL }.check();
                let lost = [(Fault::Absent, MemberSet::of(0usize)), WELL.faults[1]];
                Case { world: &world, range, known: Known { faults: lost, ..WELL } }.check();
            }
        }
    }
}

/// A range over two bands of a strip cannot be recovered with one plan.
#[test]
fn a_range_of_two_bands_is_none() {
    let spec = GeometrySpec {
        level: Level::Raid6,
        members: 8,
        group_size: None,
        strip_bytes: 256 << 10,
        block_size: strake_units::BlockSize::B4096,
        member_blocks: 512,
    };
    let geometry = Geometry::new(&spec).expect("a geometry");
    let spot = |start, blocks| geometry.spot(LbaRange::new(Lba(start), blocks));
    assert_eq!(spot(0, 32).map(|spot| spot.index), Some(0));
    assert_eq!(spot(32, 32).map(|spot| spot.index), Some(1));
    assert_eq!(spot(31, 2), None);
    assert_eq!(spot(0, 33), None);
}

/// A layout has small writes if the plan updates parity or writes copies, and has few enough parts.
#[test]
fn small_writes_are_what_the_planner_would_do() {
    let check = |level, members, group_size| {
        let geometry = geometry(level, members, group_size, 8, members as u64);
        let world = World::consistent(geometry);
        for start in (0..geometry.capacity_blocks()).step_by(7) {
            let range = LbaRange::new(Lba(start), 1);
            let case = Case { world: &world, range, known: WELL };
            let spot = case.spot().expect("one block is in one strip");
            let plan = case.plan(&spot, Purpose::Write, 0).expect("nothing is missing");
            let changes = match plan.strategy {
                Strategy::Direct | Strategy::ReadModifyWrite => true,
                Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => false,
            };
            let small = changes && plan.writes.len() <= PARTS_MAX;
            assert_eq!(geometry.has_small_writes(), small, "{geometry:?}");
            case.check();
        }
    };
    for members in 2..=12 {
        check(Level::Raid0, members, None);
        if members <= 8 {
            check(Level::Raid1, members, None);
        }
        for (level, parities) in [
            (Level::Raid5, 1),
            (Level::Raid6, 2),
            (Level::Raid73, 3),
            (Level::Parity(4), 4),
            (Level::Parity(5), 5),
        ] {
            if members > parities + 1 {
                check(level, members, None);
            }
        }
    }
    check(Level::Raid10, 8, None);
    check(Level::Raid60, 16, Some(8));
    check(Level::Raid73, 63, None);
    check(Level::Raid6, 64, None);
}
