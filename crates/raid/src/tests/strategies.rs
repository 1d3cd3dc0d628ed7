//! Tests of the strategies of requests. Plans are data, so that tests can print and compare them.

use strake_units::{LbaRange, PositionSet, StripeIndex};

use super::geometry;
use crate::{
    Band, Geometry, Level, Place, Plan, Purpose, Query, Segment, StripeHealth, Transfer, plan,
};

/// Prints a plan. `D0[2+4]` means four blocks from block 2 of data strip 0; copies have their position, as in `D0@1`.
fn print(geometry: &Geometry, plan: &Plan) -> String {
    let name = |strip: u8| match strip.checked_sub(geometry.data_strips()) {
        None => format!("D{strip}"),
        Some(index) => ["P", "Q", "R", "S"][usize::from(index)].to_string(),
    };
    let transfer = |t: &Transfer| {
        let at =
            if geometry.parity_strips() == 0 { format!("@{}", t.position) } else { String::new() };
        format!(" {}{at}[{}+{}]", name(t.strip), t.offset, t.blocks)
    };
    let mut text = format!("{:?}:", plan.strategy);
    let mut part = |verb: &str, items: Vec<String>| {
        if !items.is_empty() {
            text += &format!(" {verb}{}", items.concat());
        }
    };
    part("read", plan.reads.iter().map(transfer).collect());
    part("recover", plan.recover.iter().map(|strip| format!(" {}", name(*strip))).collect());
    part("write", plan.writes.iter().map(transfer).collect());
    text
}

/// Checks of plans for stripe 0 of an array with strips of eight blocks. Absent strips are given as (data, parity).
struct Check {
    geometry: Geometry,
    health: StripeHealth,
}

impl Check {
    fn new(level: Level, members: usize) -> Self {
        let health = StripeHealth { parity_trusted: true, ..StripeHealth::default() };
        Self { geometry: geometry(level, members, None, 8, 4), health }
    }

    fn untrusted(mut self) -> Self {
        self.health.parity_trusted = false;
        self
    }

    fn without(mut self, strips: &[u8]) -> Self {
        for strip in strips {
            let position = super::oracle::strip_position(&self.geometry, StripeIndex(0), *strip);
            self.health.absent.insert(position);
        }
        self
    }

    fn cannot_read(mut self, strips: &[u8]) -> Self {
        for strip in strips {
            let position = super::oracle::strip_position(&self.geometry, StripeIndex(0), *strip);
            self.health.unreadable.insert(position);
        }
        self
    }

    fn plan(&self, segments: &[Segment], purpose: Purpose, copy_hint: u8) -> String {
        let band = Band { stripe: StripeIndex(0), index: 0 };
        let query = Query { band, health: self.health, segments, purpose, copy_hint };
        match plan(&self.geometry, &query) {
            Ok(plan) => print(&self.geometry, &plan),
            Err(lost) => lost.to_string(),
        }
    }

    /// Checks the plan for blocks `start..start + blocks` of stripe 0.
    fn range(&self, purpose: Purpose, start: u64, blocks: u64, want: &str) -> &Self {
        let base = self.geometry.lba(Place { stripe: StripeIndex(0), strip: 0, offset: 0 });
        let range = LbaRange::new(base.plus(start), blocks);
        let band = Band { stripe: StripeIndex(0), index: 0 };
        assert_eq!(self.plan(&self.geometry.segments(band, range), purpose, 0), want);
        self
    }

    fn write(&self, start: u64, blocks: u64, want: &str) -> &Self {
        self.range(Purpose::Write, start, blocks, want)
    }

    fn read(&self, start: u64, blocks: u64, want: &str) -> &Self {
        self.range(Purpose::Read, start, blocks, want)
    }
}

#[test]
fn small_writes_read_as_little_as_possible() {
    // With 6+2, read-modify-write needs 1 + 2 reads, reconstruct-write 5.
    Check::new(Level::Raid6, 8)
        .write(2, 4, "ReadModifyWrite: read D0[2+4] P[2+4] Q[2+4] write D0[2+4] P[2+4] Q[2+4]")
        // For two whole strips, both strategies need 4 reads with the same number of blocks. Read-modify-write has
        // precedence.
        .write(0, 16, "ReadModifyWrite: read D0[0+8] D1[0+8] P[0+8] Q[0+8] write D0[0+8] D1[0+8] P[0+8] Q[0+8]")
        .write(0, 24, "ReconstructWrite: read D3[0+8] D4[0+8] D5[0+8] write D0[0+8] D1[0+8] D2[0+8] P[0+8] Q[0+8]")
        .write(0, 48, "FullStripe: write D0[0+8] D1[0+8] D2[0+8] D3[0+8] D4[0+8] D5[0+8] P[0+8] Q[0+8]");
    // With 5+3, read-modify-write needs 1 + 3 reads, reconstruct-write 4, with the same number of blocks.
    Check::new(Level::Raid73, 8).write(
        0,
        1,
        "ReadModifyWrite: read D0[0+1] P[0+1] Q[0+1] R[0+1] write D0[0+1] P[0+1] Q[0+1] R[0+1]",
    );
    // With 4+4, reconstruct-write needs 3 reads.
    Check::new(Level::Parity(4), 8).write(
        8,
        1,
        "ReconstructWrite: read D0[0+1] D2[0+1] D3[0+1] write D1[0+1] P[0+1] Q[0+1] R[0+1] S[0+1]",
    );
    // With 2+1, reconstruct-write needs one read, read-modify-write two.
    Check::new(Level::Raid5, 3)
        .write(0, 1, "ReconstructWrite: read D1[0+1] write D0[0+1] P[0+1]")
        .write(0, 16, "FullStripe: write D0[0+8] D1[0+8] P[0+8]");
}

/// Two short runs at the two ends of a band have the whole band as window. Both strategies read three strips, but
/// read-modify-write reads only the runs of the two data strips.
#[test]
fn a_tie_in_transfers_is_broken_by_blocks() {
    Check::new(Level::Raid5, 4).write(
        6,
        4,
        "ReadModifyWrite: read D0[6+2] D1[0+2] P[0+8] write D0[6+2] D1[0+2] P[0+8]",
    );
}

#[test]
fn untrusted_parity_is_encoded_again() {
    Check::new(Level::Raid6, 8).untrusted().write(
        2,
        4,
        "ReconstructWrite: read D1[2+4] D2[2+4] D3[2+4] D4[2+4] D5[2+4] write D0[2+4] P[2+4] Q[2+4]",
    );
    Check::new(Level::Raid6, 4).untrusted().without(&[1]).write(
        0,
        1,
        "Degraded: read D0[0+1] P[0+1] recover D1 write D0[0+1] P[0+1] Q[0+1]",
    );
}

#[test]
fn degraded_writes() {
    // The write does not change the absent strip. The difference still updates parity.
    Check::new(Level::Raid6, 8).without(&[5]).write(
        2,
        4,
        "ReadModifyWrite: read D0[2+4] P[2+4] Q[2+4] write D0[2+4] P[2+4] Q[2+4]",
    );
    // The write covers the absent strip over the whole window. Its old content is not needed.
    Check::new(Level::Raid5, 4).without(&[0]).write(
        2,
        4,
        "ReconstructWrite: read D1[2+4] D2[2+4] write P[2+4]",
    );
    // The write covers the absent strip over a part of the window. The rest must be recovered first.
    Check::new(Level::Raid5, 4).without(&[0]).write(
        6,
        4,
        "Degraded: read D1[0+8] D2[0+8] P[0+8] recover D0 write D1[0+2] P[0+8]",
    );
    // One parity is absent. The other parity is updated.
    Check::new(Level::Raid6, 8).without(&[6]).write(
        0,
        1,
        "ReadModifyWrite: read D0[0+1] Q[0+1] write D0[0+1] Q[0+1]",
    );
    // No parity is present. Only data is written.
    Check::new(Level::Raid5, 4).without(&[3]).write(6, 4, "Direct: write D0[6+2] D1[0+2]");
    Check::new(Level::Raid5, 4).without(&[0, 3]).write(
        8,
        4,
        "stripe 0 has lost data: 2 of its strips cannot be read, more than its redundancy covers; \
         bring a missing member back, or restore these blocks from a backup",
    );
}

#[test]
fn reads() {
    Check::new(Level::Raid6, 6).read(6, 4, "Direct: read D0[6+2] D1[0+2]").range(
        Purpose::Read,
        0,
        0,
        "Direct:",
    );
    Check::new(Level::Raid6, 6).without(&[0, 4]).read(8, 4, "Direct: read D1[0+4]").read(
        2,
        4,
        "Degraded: read D1[2+4] D2[2+4] D3[2+4] Q[2+4] recover D0",
    );
    // Of several strips, only the absent ones are recovered, and only in their requested columns. Every survivor is
    // read once, including its own requested columns.
    let without_1 = Check::new(Level::Raid6, 6).without(&[1]);
    without_1
        .read(0, 32, "Degraded: read D0[0+8] D2[0+8] D3[0+8] P[0+8] recover D1")
        .read(6, 4, "Degraded: read D0[0+8] D2[0+2] D3[0+2] P[0+2] recover D1")
        .read(12, 10, "Degraded: read D0[4+4] D2[0+8] D3[4+4] P[4+4] recover D1");
    Check::new(Level::Raid6, 6).without(&[0, 2]).read(
        3,
        20,
        "Degraded: read D1[0+8] D3[0+8] P[0+8] Q[0+8] recover D0 D2",
    );
    // The present strips of a failed array can still be read.
    Check::new(Level::Raid5, 4).without(&[0, 1]).read(16, 2, "Direct: read D2[0+2]");
}

#[test]
fn copies_are_spread_by_hint_and_steady_after_a_crash() {
    let check = |check: &Check, hint: u8, want: &str| {
        let range = LbaRange::new(
            check.geometry.lba(Place { stripe: StripeIndex(0), strip: 1, offset: 3 }),
            2,
        );
        let band = Band { stripe: StripeIndex(0), index: 0 };
        let segments = check.geometry.segments(band, range);
        assert_eq!(check.plan(&segments, Purpose::Read, hint), want, "hint {hint}");
    };
    let trusted = Check::new(Level::Raid10, 4);
    check(&trusted, 0, "Direct: read D1@2[3+2]");
    check(&trusted, 1, "Direct: read D1@3[3+2]");
    check(&trusted, 254, "Direct: read D1@2[3+2]");
    let untrusted = Check::new(Level::Raid10, 4).untrusted();
    check(&untrusted, 0, "Direct: read D1@2[3+2]");
    check(&untrusted, 1, "Direct: read D1@2[3+2]");
    trusted.write(8, 1, "Direct: write D1@2[0+1] D1@3[0+1]").range(
        Purpose::Resync,
        0,
        0,
        "Direct: read D0@0[0+8] D1@2[0+8] write D0@1[0+8] D1@3[0+8]",
    );
}

#[test]
fn resync_and_rebuild_take_the_whole_band() {
    Check::new(Level::Raid6, 4).range(
        Purpose::Resync,
        0,
        0,
        "ReconstructWrite: read D0[0+8] D1[0+8] write P[0+8] Q[0+8]",
    );
    let degraded = Check::new(Level::Raid6, 4).without(&[0, 3]);
    degraded.range(Purpose::Resync, 0, 0, "Degraded: read D1[0+8] P[0+8] recover D0 write P[0+8]");
    let want = "Degraded: read D1[0+8] P[0+8] recover D0 write D0[0+8] P[0+8] Q[0+8]";
    Check::new(Level::Raid6, 4).cannot_read(&[0]).range(Purpose::Resync, 0, 0, want);
    let targets = degraded.health.absent;
    degraded
        .range(
            Purpose::Rebuild { targets },
            0,
            0,
            "Degraded: read D1[0+8] P[0+8] recover D0 Q write D0[0+8] Q[0+8]",
        )
        .range(Purpose::Rebuild { targets: PositionSet::ALL - targets }, 0, 0, "Direct:");
    let mut mirror = Check::new(Level::Raid1, 3);
    let targets = PositionSet::of(0).with(2);
    mirror.health.absent = targets;
    let want = "Direct: read D0@1[0+8] write D0@0[0+8] D0@2[0+8]";
    mirror.range(Purpose::Rebuild { targets }, 0, 0, want);
}

/// A rebuilding member is written and never read, so that the rebuild need not repeat a stripe.
#[test]
fn unreadable_strips_are_written_but_not_read() {
    Check::new(Level::Raid6, 8)
        .cannot_read(&[0])
        .read(2, 4, "Degraded: read D1[2+4] D2[2+4] D3[2+4] D4[2+4] D5[2+4] P[2+4] recover D0")
        .write(2, 4, "ReconstructWrite: read D1[2+4] D2[2+4] D3[2+4] D4[2+4] D5[2+4] write D0[2+4] P[2+4] Q[2+4]")
        // The write does not change the unreadable strip. The difference of the written strip is sufficient.
        .write(8, 1, "ReadModifyWrite: read D1[0+1] P[0+1] Q[0+1] write D1[0+1] P[0+1] Q[0+1]");
    // An unreadable parity can only be encoded, not updated.
    Check::new(Level::Raid6, 6).cannot_read(&[4]).write(
        0,
        1,
        "ReconstructWrite: read D1[0+1] D2[0+1] D3[0+1] write D0[0+1] P[0+1] Q[0+1]",
    );
    Check::new(Level::Raid5, 4).cannot_read(&[0]).without(&[3]).write(
        0,
        1,
        "Direct: write D0[0+1]",
    );
    let mirror = Check::new(Level::Raid1, 2);
    let health = StripeHealth { unreadable: PositionSet::of(0), ..mirror.health };
    Check { health, ..mirror }.read(0, 1, "Direct: read D0@1[0+1]").write(
        0,
        1,
        "Direct: write D0@0[0+1] D0@1[0+1]",
    );
}
