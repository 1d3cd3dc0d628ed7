//! The counterpart of `docs/model/Strake.tla`: the same state, actions and invariants, searched without Java.
//!
//! Names are those of the specification. The two are kept together by their counts: distinct states and diameter of
//! every configuration are recorded from TLC in `docs/model/states.json`, and a test compares.

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

/// The set of member `m` alone.
pub const fn bit(m: usize) -> Set {
    1 << m
}

/// The members of a set.
pub fn members_of(set: Set) -> impl Iterator<Item = usize> + Clone {
    (0..MEMBERS_MAX).filter(move |m| set & bit(*m) != 0)
}

/// The rule that is broken to see an invariant fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Break {
    /// None.
    #[default]
    Nothing,
    /// A label that calls a lasting member rebuilding shows that its history passed through it.
    LiveVouches,
    /// Of two labels with one number the one in the lower slot is followed, whichever was acted on.
    SlotDecides,
    /// Only a label that calls a lasting member in sync shows that.
    OnlyInSyncVouches,
    /// An array starts while a member is out after a crash without a log.
    DirtyIsStarted,
    /// An array starts while regions are in doubt.
    DoubtIsStarted,
    /// A member that goes out puts nothing in doubt.
    DoubtForgotten,
    /// A member that goes out lacks nothing of what is marked.
    StaleForgotten,
    /// The log is replayed before a label says who is not here.
    AbsentUnrecorded,
    /// Data are written before the write-intent bit.
    DataBeforeBit,
    /// A write is acknowledged before the label that calls out who missed it.
    AnsweredBeforeOut,
    /// A label that promotes a member may reach others first.
    PromotionInAnyOrder,
    /// The first label of an activation, which the array did not act on, counts as another history.
    FirstLabelIsAFork,
    /// A drive may be taken back if its label has a number and an epoch that the history passed through.
    NumberVouches,
}

impl Break {
    /// All of them, by their names in the specification.
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

/// What is searched: the constants of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Members of the array.
    pub members: usize,
    /// Members that it can lose.
    pub redundancy: u32,
    /// A mirror; otherwise data and parity.
    pub copies: bool,
    /// What happens at most.
    pub most: Spent,
    /// The rule that is broken.
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

/// How much has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spent {
    /// Client writes.
    pub writes: u8,
    /// Crashes.
    pub crashes: u8,
    /// Orderly stops.
    pub stops: u8,
    /// Members that failed or were taken back.
    pub changes: u8,
}

/// A bitmap page, for one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// Its sequence.
    pub seq: u16,
    /// The write-intent bit.
    pub intent: bool,
    /// Members that lack the region.
    pub stale: Set,
}

/// A record of the redo log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The write; 0: there is no record.
    pub w: u8,
    /// The activation.
    pub epoch: u16,
    /// The generation in force.
    pub generation: u16,
    /// Members that have to have it.
    pub parts: Set,
}

/// Whether the array runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No.
    Off,
    /// It is being started.
    Starting,
    /// It serves.
    On,
}

/// What a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// There is none.
    None,
    /// The write-intent bit.
    Bits,
    /// A label.
    Label,
    /// The label of an orderly stop.
    Stop,
    /// A start finishes the update that a crash cut short.
    Finish,
    /// A start records who is not here.
    Absent,
    /// A start replays the log.
    Replay,
    /// A start writes its own label.
    Activate,
}

/// What a job writes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing.
    None,
    /// The page.
    Page,
    /// The label in the head ring.
    Head,
    /// The label in the tail ring.
    Tail,
    /// What the log holds.
    Redo,
}

/// What is being written to the members in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// What it is for.
    pub stage: Stage,
    /// What is written now.
    pub phase: Phase,
    /// Who does not have it yet.
    pub todo: Set,
}

/// How far a client's write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// There is none.
    None,
    /// Its write-intent bit is being set.
    Mark,
    /// It is being recorded in the log.
    Log,
    /// It is being written in its place.
    Data,
}

/// The client's write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// Its number.
    pub w: u8,
    /// How far it is.
    pub phase: Step,
    /// Who does not have it yet.
    pub todo: Set,
    /// Its record.
    pub rec: Record,
}

/// One state of the array, its drives and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Drive: its newest label.
    pub head: [Label; MEMBERS_MAX],
    /// Drives whose tail ring has it too.
    pub tail: Set,
    /// Drive: its bitmap page.
    pub page: [Page; MEMBERS_MAX],
    /// Drive: the writes it holds.
    pub data: [Set; MEMBERS_MAX],
    /// Drive: the newest record of its log.
    pub rec: [Record; MEMBERS_MAX],
    /// Whether the array runs.
    pub mode: Mode,
    /// The label in force.
    pub lab: Label,
    /// The label that a start has found.
    pub old: Label,
    /// The page in memory.
    pub bits: Page,
    /// Drives in use.
    pub inuse: Set,
    /// Those of them that take no more writes.
    pub failed: Set,
    /// Members taken back by a label that not every member has yet.
    pub joining: Set,
    /// The last generation that every member surely has.
    pub completed: u16,
    /// A crash left parity or copies that may differ.
    pub untrusted: bool,
    /// What is being written.
    pub job: Job,
    /// The client's write.
    pub wr: Write,
    /// Activations so far.
    pub epochs: u16,
    /// Writes that were acknowledged.
    pub acked: Set,
    /// The last label that every member it calls live has had.
    pub last: Label,
    /// A later label was as complete, and did not continue it.
    pub forked: bool,
    /// Members that failed, and no label that calls them out has reached every member it calls live.
    pub unrecorded: Set,
    /// What has happened.
    pub spent: Spent,
}

impl Config {
    /// The constants in a configuration of TLC.
    ///
    /// # Errors
    /// Which constant is missing, or makes no sense.
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
