//! Labels of the model, and the labels that form an array: `Strake.tla`, "Which labels form an array".

use super::{Break, Config, MEMBERS_MAX, Page, Set, State, bit, members_of};

/// Activations that a label of the model contains.
const HISTORY_MAX: usize = 16;

/// The state of a member in a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// In sync.
    In,
    /// Rebuilding.
    Re,
    /// Faulty or missing.
    Out,
}

/// An activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Activation {
    /// Its number.
    pub epoch: u16,
    /// The first generation that it wrote.
    pub first: u16,
}

/// A label, without the fields that differ between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The generation.
    pub generation: u16,
    /// The activation that wrote it.
    pub epoch: u16,
    /// The previous activation.
    pub parent: u16,
    /// Whether it is the label of a clean shutdown.
    pub clean: bool,
    /// Every member's state.
    pub st: [Standing; MEMBERS_MAX],
    /// The generation with which each member was last in sync.
    pub since: [u16; MEMBERS_MAX],
    /// A generation that each member certainly had when it went out.
    pub held: [u16; MEMBERS_MAX],
    /// Whether every write to stripes without a member is in the redo log.
    pub logged: bool,
    /// Whether the region is in doubt.
    pub doubt: bool,
    history: [Activation; HISTORY_MAX],
    activations: u8,
}

/// The relation of a label to the history of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// The history passed through it.
    Ours,
    /// It is older than the recorded history.
    Older,
    /// The history did not pass through it.
    Other,
}

impl Label {
    /// The label of a new array.
    pub fn first(members: usize) -> Self {
        let mut label = Self {
            generation: 1,
            epoch: 1,
            parent: 0,
            clean: false,
            st: [Standing::Out; MEMBERS_MAX],
            since: [0; MEMBERS_MAX],
            held: [0; MEMBERS_MAX],
            logged: false,
            doubt: false,
            history: [Activation::default(); HISTORY_MAX],
            activations: 0,
        };
        label.st[..members].fill(Standing::In);
        label.since[..members].fill(1);
        label.remember(Activation { epoch: 1, first: 1 });
        label
    }

    /// A placeholder: no label was read or decided.
    pub fn none(members: usize) -> Self {
        Self { generation: 0, ..Self::first(members) }
    }

    /// The activations, oldest first.
    pub fn history(&self) -> &[Activation] {
        &self.history[..usize::from(self.activations)]
    }

    /// Adds an activation; if there are too many, the oldest is removed.
    pub fn remember(&mut self, activation: Activation) {
        if usize::from(self.activations) == HISTORY_MAX {
            self.history.copy_within(1.., 0);
            self.activations -= 1;
        }
        self.history[usize::from(self.activations)] = activation;
        self.activations += 1;
    }

    /// The members with one of these states.
    pub fn those(&self, states: &[Standing]) -> Set {
        let rows = self.st.iter().enumerate().filter(|(_, st)| states.contains(st));
        rows.fold(0, |set, (m, _)| set | bit(m))
    }

    /// Members in sync.
    pub fn in_sync(&self) -> Set {
        self.those(&[Standing::In])
    }

    /// Members that receive every label.
    pub fn live(&self) -> Set {
        self.those(&[Standing::In, Standing::Re])
    }

    /// True if a crash after this label leaves no parity in doubt, because writes in flight are in the log.
    pub fn covered(&self, config: &Config) -> bool {
        config.parity() && self.logged && !self.clean
    }

    /// True if `self` is `own` or follows from it.
    pub fn continues(&self, own: &Self) -> bool {
        self.lineage(own) == Lineage::Ours && (!same_chain(self, own) || same_table(self, own))
    }

    /// The relation of `own` to the activations in this label.
    pub fn lineage(&self, own: &Self) -> Lineage {
        let history = self.history();
        if own.generation < history[0].first {
            return Lineage::Older;
        }
        let ends = history[1..].iter().map(|next| next.first).chain([self.generation + 1]);
        let passed = history.iter().zip(ends).any(|(activation, end)| {
            activation.epoch == own.epoch && (activation.first..end).contains(&own.generation)
        });
        if passed { Lineage::Ours } else { Lineage::Other }
    }

    /// Members that have been in sync since `generation` or before.
    fn lasting(&self, generation: u16) -> Set {
        let lasting = |m: &usize| self.since[*m] <= generation;
        members_of(self.in_sync()).filter(lasting).fold(0, |set, m| set | bit(m))
    }
}

fn same_chain(a: &Label, b: &Label) -> bool {
    a.generation == b.generation && a.epoch == b.epoch
}

fn same_table(a: &Label, b: &Label) -> bool {
    a.st == b.st && a.since == b.since && a.held == b.held
}

/// True if `own` is the label directly before `new`, in its activation or the previous one.
fn precedes(own: &Label, new: &Label) -> bool {
    own.generation + 1 == new.generation && (own.epoch == new.epoch || own.epoch == new.parent)
}

/// Members for which `own` proves that they had the previous label, if the array could have acted on it.
fn vouched(config: &Config, own: &Label) -> Set {
    // The member was in sync after it last went out: a start has found that it did not have that label yet.
    let demoted = |m: &usize| own.st[*m] == Standing::Re && own.since[*m] > own.held[*m] + 1;
    match config.broken {
        Break::LiveVouches => own.live(),
        Break::OnlyInSyncVouches => own.in_sync(),
        _ => members_of(own.live()).filter(demoted).fold(own.in_sync(), |set, m| set | bit(m)),
    }
}

/// True if the label `own` of member `m` belongs to another history than `new`.
fn is_fork(config: &Config, new: &Label, own: &Label, m: usize) -> bool {
    if same(own, new) {
        return false;
    }
    let lasting = new.lasting(own.generation);
    let other = if lasting == 0 {
        new.lineage(own) == Lineage::Other
    } else {
        lasting & vouched(config, own) == 0
    };
    let called = new.st[m] == Standing::In && own.generation + 1 >= new.generation;
    other || called && !precedes(own, new)
}

/// The content that a member lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Nothing.
    Nothing,
    /// The recorded regions.
    Recorded,
    /// Everything.
    All,
}

/// The decision of a start, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The array starts.
    Starts,
    /// Two histories.
    Fork,
    /// The array did not act on one of two labels, and no present drive shows which.
    Undecided,
    /// Too few members.
    TooFew,
    /// Regions are in doubt.
    InDoubt,
    /// A crash without a log while a member is out.
    Dirty,
}

/// The evaluation of the labels of some drives.
#[derive(Clone, Copy, Debug)]
pub struct Matched {
    /// The newest label.
    pub new: Label,
    /// Whether every member that it records as live certainly had it.
    pub confirmed: bool,
    /// Two histories.
    pub fork: bool,
    /// Whether two labels have the same generation, and no present drive shows on which of them the array did not act.
    pub undecided: bool,
    /// The states of the members for the start.
    pub st: [Standing; MEMBERS_MAX],
    /// The content that each member lacks.
    pub lacks: [Lacks; MEMBERS_MAX],
}

/// The result of a start with some drives.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The decision.
    pub why: Why,
    /// The newest label.
    pub new: Label,
    /// The label that describes the present members.
    pub next: Label,
    /// Drives in use.
    pub here: Set,
    /// The page of the started array.
    pub bits: Page,
}

fn same(a: &Label, b: &Label) -> bool {
    same_chain(a, b) && same_table(a, b)
}

impl State {
    /// True if the array did not act on one of two labels with the same generation, and no present drive shows that it
    /// was not the label of member `m`.
    fn is_undecided(&self, config: &Config, new: &Label, m: usize, drives: Set) -> bool {
        let own = &self.head[m];
        let lacks_it = |k: usize| !same(&self.head[k], own);
        own.generation == new.generation
            && !same(own, new)
            && config.broken != Break::SlotDecides
            && !members_of(own.live() & drives).any(lacks_it)
    }

    /// The member whose label describes the array.
    fn newest(&self, config: &Config, drives: Set) -> usize {
        let rank = |m: usize| {
            let own = &self.head[m];
            let other = |k: usize| self.is_other(config, own, k, drives);
            let undisputed = !members_of(drives).any(other);
            let holders = members_of(drives).filter(|k| same_chain(&self.head[*k], own)).count();
            (own.generation, undisputed, holders, std::cmp::Reverse(m))
        };
        members_of(drives).max_by_key(|m| rank(*m)).expect("some drive is here")
    }

    /// True if the label of member `m` is, or may be, of another history than `new`.
    fn is_other(&self, config: &Config, new: &Label, m: usize, drives: Set) -> bool {
        is_fork(config, new, &self.head[m], m) || self.is_undecided(config, new, m, drives)
    }

    /// Evaluates the labels of `drives`.
    pub fn matched(&self, config: &Config, drives: Set) -> Matched {
        let new = self.head[self.newest(config, drives)];
        let holds = |m: usize| same_chain(&self.head[m], &new) && self.tail & bit(m) != 0;
        let confirmed = members_of(drives).any(holds);
        let (mut st, mut lacks) = ([Standing::Out; MEMBERS_MAX], [Lacks::Nothing; MEMBERS_MAX]);
        for m in 0..config.members {
            (st[m], lacks[m]) = if drives & bit(m) == 0 {
                let in_sync = new.st[m] == Standing::In;
                (Standing::Out, if in_sync { Lacks::Nothing } else { Lacks::Recorded })
            } else {
                self.trust((&new, confirmed), m)
            };
        }
        let fork = members_of(drives).any(|m| is_fork(config, &new, &self.head[m], m));
        let undecided = members_of(drives).any(|m| self.is_undecided(config, &new, m, drives));
        Matched { new, confirmed, fork, undecided, st, lacks }
    }

    /// The trusted state of the present member `m`.
    fn trust(&self, (new, confirmed): (&Label, bool), m: usize) -> (Standing, Lacks) {
        let own = &self.head[m];
        let known = same_chain(own, new) || precedes(own, new) && !confirmed;
        let says = if known { own.st[m] } else { Standing::Out };
        let left = !confirmed
            && new.lineage(own) == Lineage::Ours
            && new.held[m] > 0
            && own.generation >= new.held[m];
        match (new.st[m], says) {
            (Standing::Out, _) => (Standing::Out, Lacks::Recorded),
            (Standing::In, Standing::In) => (Standing::In, Lacks::Nothing),
            (Standing::In, Standing::Out) => (Standing::Out, Lacks::Nothing),
            (Standing::In | Standing::Re, Standing::Re) => (Standing::Re, Lacks::Recorded),
            (Standing::Re, Standing::Out) if left => (Standing::Re, Lacks::Recorded),
            (Standing::Re, Standing::In | Standing::Out) => (Standing::Re, Lacks::All),
        }
    }

    /// The result of a start with `--degraded` with `drives`.
    pub fn verdict(&self, config: &Config, drives: Set) -> Verdict {
        let Matched { new, confirmed, fork, undecided, st, lacks } = self.matched(config, drives);
        let doubt = new.doubt && config.broken != Break::DoubtIsStarted;
        let mut next = Label { st, clean: false, doubt, ..new };
        let (in_sync, here) = (next.in_sync(), next.live() & drives);
        let paged = if in_sync == 0 { here } else { in_sync };
        let newest = |m: &usize| (self.page[*m].seq, std::cmp::Reverse(*m));
        let top = self.page[members_of(paged).max_by_key(newest).expect("the newest is here")];
        let all = config.all();
        let as_before = new.in_sync() == in_sync;
        let dirty = config.parity()
            && top.intent
            && in_sync != all
            && !new.covered(config)
            && !(new.clean && as_before)
            && config.broken != Break::DirtyIsStarted;
        let mut bits = Page { stale: 0, ..top };
        let late = u16::from(!confirmed);
        for m in 0..config.members {
            let lacking = match lacks[m] {
                Lacks::Nothing => false,
                Lacks::Recorded => top.stale & bit(m) != 0,
                Lacks::All => true,
            };
            let out = st[m] == Standing::Out;
            bits.stale |= if lacking || out && top.intent { bit(m) } else { 0 };
            if out && new.st[m] != Standing::Out {
                next.held[m] = (new.generation - late).max(1);
            }
        }
        let why = if fork {
            Why::Fork
        } else if undecided {
            Why::Undecided
        } else if !config.tolerates(all & !in_sync) {
            Why::TooFew
        } else if doubt {
            Why::InDoubt
        } else if dirty {
            Why::Dirty
        } else {
            Why::Starts
        };
        Verdict { why, new, next, here, bits }
    }
}

/// True if a drive that returns to an active array may be re-added without a full rebuild.
pub fn returns(config: &Config, new: &Label, own: &Label, m: usize) -> bool {
    let shared = shared(config, new, own, m);
    new.st[m] == Standing::Out && new.held[m] > 0 && shared.is_some_and(|last| last >= new.held[m])
}

/// The last label of member `m`, which is out, that the history of `new` passed through: its newest one, or the
/// previous one if the array did not act on the newest. `None` if it belongs to another history, or is older than the
/// recorded history.
pub fn shared(config: &Config, new: &Label, own: &Label, m: usize) -> Option<u16> {
    let others = new.lasting(own.generation) & !bit(m);
    let vouches = others & vouched(config, own) != 0;
    let first = Activation { epoch: own.epoch, first: own.generation };
    let begins = own.history().last() == Some(&first) && config.broken != Break::FirstLabelIsAFork;
    let epoch = if begins { own.parent } else { own.epoch };
    let before = Label { generation: own.generation - 1, epoch, ..*own };
    match new.lineage(own) {
        Lineage::Ours if others == 0 || vouches || config.broken == Break::NumberVouches => {
            Some(own.generation)
        }
        Lineage::Other if vouches && new.lineage(&before) == Lineage::Ours => {
            Some(before.generation)
        }
        Lineage::Ours | Lineage::Other | Lineage::Older => None,
    }
}
