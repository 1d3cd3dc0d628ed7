//! The counterpart of `docs/model/Strake.tla`: the same state, actions and invariants, searched without Java.
//!
//! The names are those of the specification. A test compares the counts of both: distinct states and diameter of every
//! configuration are recorded from TLC in `docs/model/states.json`.

mod actions;
mod behaviour;
mod invariants;
mod label;
mod search;

pub use actions::Action;
pub use behaviour::{Event, Refused, Seen, follow, set_of};
pub use invariants::{INVARIANTS, violated};
pub use label::{Activation, Label, Lacks, Lineage, Matched, Standing, Verdict, Why, returns};
pub use search::{Found, Path, search};

/// Members of the largest array of the model.
pub const MEMBERS_MAX: usize = 4;

/// Members, or writes, as a mask.
pub type Set = u8;

/// The set of only member `m`.
pub const fn bit(m: usize) -> Set {
    1 << m
}

/// The members of a set.
pub fn members_of(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..MEMBERS_MAX).filter(move |m| set & bit(*m) != 0)
}

/// The rule that is disabled to make an invariant fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Break {
    /// No rule.
    #[default]
    Nothing,
    /// A label that records a lasting member as rebuilding proves that its history passed through it.
    LiveVouches,
    /// Of two labels with the same generation, the one in the lower slot is followed, even if the array did not act on
    /// it.
    SlotDecides,
    /// Only a label that records a lasting member as in sync proves this.
    OnlyInSyncVouches,
    /// An array starts after a crash without a log while a member is out.
    DirtyIsStarted,
    /// An array starts while regions are in doubt.
    DoubtIsStarted,
    /// No region is recorded as in doubt when a member goes out.
    DoubtForgotten,
    /// The dirty regions are not recorded as missing on a member that goes out.
    StaleForgotten,
    /// The log is replayed before a label records the absent members.
    AbsentUnrecorded,
    /// Data is written before the write-intent bit.
    DataBeforeBit,
    /// A write is acknowledged before the label that records members without the write as out.
    AnsweredBeforeOut,
    /// A label that promotes a member may reach other members first.
    PromotionInAnyOrder,
    /// The first label of an activation, on which the array did not act, counts as another history.
    FirstLabelIsAFork,
    /// A drive may be re-added if its label has a generation and an epoch that the history passed through.
    NumberVouches,
}

impl Break {
    /// All rules, with their names in the specification.
    pub const ALL: [(&'static str, Self); 14] = [
        ("nothing", Self::Nothing),
        ("live vouches", Self::LiveVouches),
        ("slot decides", Self::SlotDecides),
        ("only in sync vouches", Self::OnlyInSyncVouches),
        ("dirty is started", Self::DirtyIsStarted),
        ("doubt is started", Self::DoubtIsStarted),
        ("doubt forgotten", Self::DoubtForgotten),
        ("stale forgotten", Self::StaleForgotten),
        ("absent unrecorded", Self::AbsentUnrecorded),
        ("data before bit", Self::DataBeforeBit),
        ("answered before out", Self::AnsweredBeforeOut),
        ("promotion in any order", Self::PromotionInAnyOrder),
        ("first label is a fork", Self::FirstLabelIsAFork),
        ("number vouches", Self::NumberVouches),
    ];
}

/// The parameters of a search: the constants of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Members of the array.
    pub members: usize,
    /// Failures tolerated.
    pub redundancy: u32,
    /// Whether it is a mirror; otherwise it has data and parity.
    pub copies: bool,
    /// The limits of events.
    pub most: Spent,
    /// The disabled rule.
    pub broken: Break,
}

impl Config {
    pub(crate) const fn parity(&self) -> bool {
        !self.copies
    }

    pub(crate) const fn all(&self) -> Set {
        (1 << self.members) - 1
    }

    pub(crate) const fn tolerates(&self, lost: Set) -> bool {
        lost.count_ones() <= self.redundancy
    }
}

/// The numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// Client writes.
    pub writes: u8,
    /// Crashes.
    pub crashes: u8,
    /// Clean shutdowns.
    pub stops: u8,
    /// Failed and re-added members.
    pub changes: u8,
}

/// A bitmap page, for one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// Its sequence number.
    pub seq: u16,
    /// The write-intent bit.
    pub intent: bool,
    /// Members that lack the region.
    pub stale: Set,
}

/// A record of the redo log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The write; 0 if there is no record.
    pub w: u8,
    /// The activation.
    pub epoch: u16,
    /// The generation in force.
    pub generation: u16,
    /// Members that must have the record.
    pub parts: Set,
}

/// The state of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The array is stopped.
    Off,
    /// The array is being started.
    Starting,
    /// The array is active.
    On,
}

/// The purpose of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No job.
    None,
    /// The write-intent bit.
    Bits,
    /// A label.
    Label,
    /// The label of a clean shutdown.
    Stop,
    /// A start completes the interrupted label update.
    Finish,
    /// A start records the absent members.
    Absent,
    /// A start replays the log.
    Replay,
    /// A start writes its own label.
    Activate,
}

/// The current write of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// None.
    None,
    /// The page.
    Page,
    /// The label in the head ring.
    Head,
    /// The label in the tail ring.
    Tail,
    /// The content of the log.
    Redo,
}

/// The writes to the members in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// The purpose.
    pub stage: Stage,
    /// The current write.
    pub phase: Phase,
    /// Members without the current write.
    pub todo: Set,
}

/// The progress of a client's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// There is no write.
    None,
    /// The write-intent bit is being set.
    Mark,
    /// The write is being recorded in the log.
    Log,
    /// The data is being written in place.
    Data,
}

/// The client's write in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// Its number.
    pub w: u8,
    /// Its progress.
    pub phase: Step,
    /// Members without it.
    pub todo: Set,
    /// Its record.
    pub rec: Record,
}

/// One state of the array, its drives and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The newest label of each drive.
    pub head: [Label; MEMBERS_MAX],
    /// Drives whose tail ring contains that label too.
    pub tail: Set,
    /// The bitmap page of each drive.
    pub page: [Page; MEMBERS_MAX],
    /// The writes that each drive contains.
    pub data: [Set; MEMBERS_MAX],
    /// The newest log record of each drive.
    pub rec: [Record; MEMBERS_MAX],
    /// The state of the array.
    pub mode: Mode,
    /// The label in force.
    pub lab: Label,
    /// The label found by a start.
    pub old: Label,
    /// The page in memory.
    pub bits: Page,
    /// Drives in use.
    pub inuse: Set,
    /// Drives in use that accept no more writes.
    pub failed: Set,
    /// Members re-added by a label that not every member has yet.
    pub joining: Set,
    /// The last generation that every member certainly has.
    pub completed: u16,
    /// Whether a crash left parity or copies that may differ.
    pub untrusted: bool,
    /// The job in progress.
    pub job: Job,
    /// The client's write.
    pub wr: Write,
    /// Activations so far.
    pub epochs: u16,
    /// Acknowledged writes.
    pub acked: Set,
    /// The last label that reached every member that it records as live.
    pub last: Label,
    /// Whether a later complete label did not continue it.
    pub forked: bool,
    /// Failed members without a label that records them as out and has reached every member that it records as live.
    pub unrecorded: Set,
    /// The numbers of events.
    pub spent: Spent,
}

impl Config {
    /// Parses the constants in a configuration of TLC.
    ///
    /// Returns the constant that is missing or invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once('='));
            let mut lines = lines.map(|(name, value)| (name.trim(), value.trim()));
            let found = lines.find(|(constant, _)| *constant == name).map(|(_, value)| value);
            found.ok_or_else(|| format!("no constant {name}"))
        };
        let number = |name: &str| value(name)?.parse::<u8>().map_err(|e| format!("{name}: {e}"));
        let broken = value("Break")?.trim_matches('"');
        let broken = Break::ALL.iter().find(|(name, _)| *name == broken);
        let members = usize::from(number("N")?);
        if members > MEMBERS_MAX {
            return Err(format!("more than {MEMBERS_MAX} members"));
        }
        Ok(Self {
            members,
            redundancy: number("Redundancy")?.into(),
            copies: value("Copies")? == "TRUE",
            most: Spent {
                writes: number("Writes")?,
                crashes: number("Crashes")?,
                stops: number("Stops")?,
                changes: number("Changes")?,
            },
            broken: broken.ok_or("no such Break")?.1,
        })
    }
}
