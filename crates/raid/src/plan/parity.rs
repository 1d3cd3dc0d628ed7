//! Plans for `Parity`.

use strake_units::{PositionSet, StripSet};

use super::{Lost, Plan, Purpose, Strategy, View, Window, of_segment};

/// Adds the transfers of a query on a parity scheme to the empty `plan`.
pub(super) fn plan(view: &View<'_>, plan: &mut Plan) -> Result<(), Lost> {
    let strips = Strips::new(view);
    match view.query.purpose {
        Purpose::Read => strips.read(plan),
        Purpose::Write => strips.write(plan),
        Purpose::Resync => strips.resync(plan),
        Purpose::Rebuild { targets } => strips.rebuild(targets, plan),
    }
}

/// The stripe as sets of strips.
struct Strips<'a> {
    view: &'a View<'a>,
    /// Strips that cannot be read.
    hidden: StripSet,
    /// Hidden strips that also cannot be written.
    absent: StripSet,
    /// All data strips.
    data: StripSet,
    /// Parity strips that can be written and must therefore be updated.
    kept: StripSet,
    /// Data strips with a segment.
    touched: StripSet,
    /// Data strips whose segment covers the whole window.
    covered: StripSet,
}

impl<'a> Strips<'a> {
    fn new(view: &'a View<'a>) -> Self {
        let geometry = view.geometry;
        let hidden = geometry.strips_of_positions(view.stripe(), view.hidden);
        let absent = geometry.strips_of_positions(view.stripe(), view.absent);
        let data = geometry.all_data_strips();
        let kept = geometry.all_strips() - data - absent;
        let (mut touched, mut covered) = (StripSet::EMPTY, StripSet::EMPTY);
        for segment in view.query.segments {
            touched.insert(segment.strip);
            if segment.blocks == view.window.blocks {
                covered.insert(segment.strip);
            }
        }
        Self { view, hidden, absent, data, kept, touched, covered }
    }

    /// Reads the segments directly if their strips are readable. Otherwise reads survivors: each survivor is read once,
    /// over the columns in which strips are recovered and the columns of its own segment.
    fn read(&self, plan: &mut Plan) -> Result<(), Lost> {
        let wanted = self.touched & self.hidden;
        if wanted.is_empty() {
            self.read_segments(plan);
            return Ok(());
        }
        let segments = self.view.query.segments;
        let lost = segments.iter().filter(|segment| wanted.contains(segment.strip));
        plan.window = lost.map(Window::of).reduce(Window::with).unwrap_or_default();
        let narrowed = View { window: plan.window, ..*self.view };
        Strips { view: &narrowed, ..*self }.recover(wanted, plan)?;
        for read in plan.reads.iter_mut() {
            if let Some(segment) = segments.iter().find(|segment| segment.strip == read.strip) {
                let longer = plan.window.with(Window::of(segment));
                (read.offset, read.blocks) = (longer.offset, longer.blocks);
            }
        }
        Ok(())
    }

    /// Chooses a write strategy in the order of the documentation of [`super`].
    fn write(&self, plan: &mut Plan) -> Result<(), Lost> {
        if self.absent.len() > self.view.geometry.parity_strips().into() {
            return Err(self.view.lost());
        }
        if self.view.query.segments.is_empty() {
            return Ok(());
        }
        if self.kept.is_empty() {
            plan.strategy = Strategy::Direct;
        } else if self.covered == self.data {
            plan.strategy = Strategy::FullStripe;
        } else {
            match self.cheaper_update() {
                Some(Update::ReadModifyWrite) => self.read_modify_write(plan),
                Some(Update::ReconstructWrite) => self.reconstruct_write(plan),
                None => self.recover((self.data & self.hidden) - self.covered, plan)?,
            }
        }
        for segment in self.view.query.segments {
            if !self.absent.contains(segment.strip) {
                plan.writes.push(of_segment(self.position(segment.strip), segment));
            }
        }
        self.write_parity(plan);
        Ok(())
    }

    /// Returns the update with fewer reads, or `None` if both need a strip that is hidden or not trusted.
    fn cheaper_update(&self) -> Option<Update> {
        let modify_possible = self.view.query.health.parity_trusted
            && !(self.touched | self.kept).intersects(self.hidden);
        let reconstruct_possible = !self.around().intersects(self.hidden);
        match (modify_possible, reconstruct_possible) {
            (false, false) => None,
            (true, false) => Some(Update::ReadModifyWrite),
            (false, true) => Some(Update::ReconstructWrite),
            (true, true) if self.reconstruct_cost() < self.modify_cost() => {
                Some(Update::ReconstructWrite)
            }
            (true, true) => Some(Update::ReadModifyWrite),
        }
    }

    /// Returns the data strips that are not new over the whole window.
    fn around(&self) -> StripSet {
        self.data - self.covered
    }

    fn modify_cost(&self) -> Cost {
        let segments = self.view.query.segments;
        let parities = self.kept.len();
        let blocks = segments.iter().map(|s| u64::from(s.blocks)).sum::<u64>()
            + parities as u64 * u64::from(self.view.window.blocks);
        Cost { transfers: segments.len() + parities, blocks }
    }

    fn reconstruct_cost(&self) -> Cost {
        let transfers = self.around().len();
        Cost { transfers, blocks: transfers as u64 * u64::from(self.view.window.blocks) }
    }

    /// Reads the old data of every segment and the old parity of the window.
    fn read_modify_write(&self, plan: &mut Plan) {
        plan.strategy = Strategy::ReadModifyWrite;
        self.read_segments(plan);
        self.read_window(plan, self.kept);
    }

    /// Reads all data strips that the write does not replace over the whole window.
    fn reconstruct_write(&self, plan: &mut Plan) {
        plan.strategy = Strategy::ReconstructWrite;
        self.read_window(plan, self.around());
    }

    /// Encodes the parity of the whole band from its data. Hidden data is recovered from parity even if the parity is
    /// not trusted, because no other source exists. The recovered data is also written: another parity may contain
    /// different data, and a hidden strip may become readable again.
    fn resync(&self, plan: &mut Plan) -> Result<(), Lost> {
        let data_hidden = self.data & self.hidden;
        if !data_hidden.is_empty() {
            self.recover(data_hidden, plan)?;
            self.write_window(plan, data_hidden - self.absent);
        } else if !self.kept.is_empty() {
            plan.strategy = Strategy::ReconstructWrite;
            self.read_window(plan, self.data);
        }
        self.write_parity(plan);
        Ok(())
    }

    /// Recovers the strips of the target positions over the whole band and writes them there.
    fn rebuild(&self, targets: PositionSet, plan: &mut Plan) -> Result<(), Lost> {
        let targets = targets & self.view.hidden;
        let targets = self.view.geometry.strips_of_positions(self.view.stripe(), targets);
        if targets.is_empty() {
            return Ok(());
        }
        self.recover(targets, plan)?;
        self.write_window(plan, targets);
        Ok(())
    }

    /// Reads k survivors over the window, data first and then the lowest parities, and recovers `wanted`.
    fn recover(&self, wanted: StripSet, plan: &mut Plan) -> Result<(), Lost> {
        let parities_needed = (self.data & self.hidden).len();
        let parity = self.parity_readable();
        if parity.len() < parities_needed {
            return Err(self.view.lost());
        }
        plan.strategy = Strategy::Degraded;
        self.read_window(plan, self.data - self.hidden);
        for strip in parity.iter().take(parities_needed) {
            plan.reads.push(self.view.over_window(self.position(strip), strip));
        }
        for strip in wanted {
            plan.recover.push(strip);
        }
        Ok(())
    }

    /// Returns the readable parity strips: the updated ones that are not hidden.
    fn parity_readable(&self) -> StripSet {
        self.kept - self.hidden
    }

    fn read_segments(&self, plan: &mut Plan) {
        for segment in self.view.query.segments {
            plan.reads.push(of_segment(self.position(segment.strip), segment));
        }
    }

    fn read_window(&self, plan: &mut Plan, strips: StripSet) {
        for strip in strips {
            plan.reads.push(self.view.over_window(self.position(strip), strip));
        }
    }

    fn write_parity(&self, plan: &mut Plan) {
        self.write_window(plan, self.kept);
    }

    fn write_window(&self, plan: &mut Plan, strips: StripSet) {
        for strip in strips {
            plan.writes.push(self.view.over_window(self.position(strip), strip));
        }
    }

    fn position(&self, strip: u8) -> u8 {
        self.view.geometry.position_of_strip(self.view.stripe(), strip)
    }
}

/// The two methods to update parity without a recovery.
enum Update {
    ReadModifyWrite,
    ReconstructWrite,
}

/// The reads of an update. The derived order is the policy: fewer transfers first, then fewer blocks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    transfers: usize,
    blocks: u64,
}
