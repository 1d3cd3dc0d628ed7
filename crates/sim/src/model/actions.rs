//! The actions of `Strake.tla`, by their names.

use super::{
    Activation, Break, Config, Job, Label, MEMBERS_MAX, Mode, Page, Phase, Record, Set, Spent,
    Stage, Standing, State, Step, Why, Write, bit, members_of, returns,
};

const NO_JOB: Job = Job { stage: Stage::None, phase: Phase::None, todo: 0 };
const NO_WRITE: Write = Write {
    w: 0,
    phase: Step::None,
    todo: 0,
    rec: Record { w: 0, epoch: 0, generation: 0, parts: 0 },
};

/// Receives an action and its change of the state.
type Offer<'a> = dyn FnMut(Action, &dyn Fn(&mut State)) + 'a;

/// An action and its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A member receives the current write of the job.
    Put(usize),
    /// The job enters its next phase, or ends.
    Next,
    /// A member receives the client's write.
    WritePut(usize),
    /// The write-intent bit is set, or cleared.
    Mark,
    /// The write-intent bit is cleared.
    Unmark,
    /// A write starts.
    Write,
    /// The record is complete on all members.
    LogDone,
    /// The write is acknowledged.
    Ack,
    /// A member fails.
    Fail(usize),
    /// A label records failed members as out.
    TakeOut,
    /// A member is re-added.
    Readd(usize),
    /// A label records a member as in sync.
    Rebuilt(usize),
    /// A label records whether all writes are in the log.
    Logged,
    /// Parity and copies are resynchronized from the content of a member.
    Resync(usize),
    /// The array is stopped cleanly.
    Stop,
    /// A crash.
    Crash,
    /// The array is started with these drives.
    Start(Set),
}

impl Record {
    const NONE: Self = NO_WRITE.rec;
}

impl State {
    /// A new active array.
    pub fn new(config: &Config) -> Self {
        let label = Label::first(config.members);
        let none = Label::none(config.members);
        let page = Page { seq: 1, intent: false, stale: 0 };
        let mut state = Self {
            head: [none; MEMBERS_MAX],
            tail: config.all(),
            page: [Page::default(); MEMBERS_MAX],
            data: [0; MEMBERS_MAX],
            rec: [Record::NONE; MEMBERS_MAX],
            mode: Mode::On,
            lab: label,
            old: none,
            bits: page,
            inuse: config.all(),
            failed: 0,
            joining: 0,
            completed: 1,
            untrusted: false,
            job: NO_JOB,
            wr: NO_WRITE,
            epochs: 1,
            acked: 0,
            last: label,
            forked: false,
            unrecorded: 0,
            spent: Spent::default(),
        };
        state.head[..config.members].fill(label);
        state.page[..config.members].fill(page);
        state
    }

    fn off(&mut self, config: &Config) {
        self.unrecorded |= self.failed;
        let none = Label::none(config.members);
        (self.mode, self.lab, self.old, self.bits) = (Mode::Off, none, none, Page::default());
        (self.inuse, self.failed, self.joining, self.completed) = (0, 0, 0, 0);
        (self.untrusted, self.job, self.wr) = (false, NO_JOB, NO_WRITE);
    }

    /// The logged write that must be replayed, and the members that replay it.
    pub fn replay(&self, label: &Label, here: Set) -> (u8, Set) {
        let ours = |m: &usize| self.rec[*m].w > 0 && self.rec[*m].epoch == label.epoch;
        let Some(newest) = members_of(here).filter(ours).max_by_key(|m| self.rec[*m].w) else {
            return (0, 0);
        };
        let record = self.rec[newest];
        let takes = |m: &usize| label.st[*m] != Standing::Re || record.generation > label.held[*m];
        let parts = members_of(record.parts & here).filter(takes).fold(0, |set, m| set | bit(m));
        let whole = members_of(parts).all(|m| self.rec[m] == record);
        if label.logged && whole { (record.w, parts) } else { (0, 0) }
    }

    fn begin(&mut self, stage: Stage, phase: Phase) {
        self.job = Job { stage, phase, todo: self.inuse };
    }

    /// Starts with the page, unless every member in use already has it.
    fn begin_pages(&mut self, stage: Stage) {
        let same = members_of(self.inuse).all(|m| self.page[m] == self.bits);
        self.bits.seq += u16::from(!same);
        let todo = if same { 0 } else { self.inuse };
        self.job = Job { stage, phase: Phase::Page, todo };
    }

    /// Members that may receive the current write of the job: a label that promotes members reaches these members
    /// first.
    fn due(&self, config: &Config) -> Set {
        let Job { stage, phase, todo } = self.job;
        let promotes = phase == Phase::Head && stage != Stage::Finish;
        if !promotes || config.broken == Break::PromotionInAnyOrder {
            return todo;
        }
        let promoted = |m: &usize| self.lab.since[*m] == self.lab.generation;
        let sound = self.lab.in_sync() & todo & !self.failed;
        let promoted = members_of(sound).filter(promoted);
        match promoted.fold(0, |set, m| set | bit(m)) {
            0 => todo,
            promoted => promoted,
        }
    }

    fn quiet(&self) -> bool {
        self.mode == Mode::On && self.job == NO_JOB && self.failed == 0
    }

    fn idle(&self) -> bool {
        self.quiet() && self.wr == NO_WRITE
    }

    /// Calls `found` with every possible action and its next state.
    pub fn next(&self, config: &Config, found: &mut dyn FnMut(Action, Self)) {
        let mut offer = |action: Action, change: &dyn Fn(&mut Self)| {
            let mut state = *self;
            change(&mut state);
            found(action, state);
        };
        for m in members_of(config.all()) {
            if self.due(config) & !self.failed & bit(m) != 0 {
                offer(Action::Put(m), &|s| s.put(m));
            }
            if self.wr.todo & !self.failed & bit(m) != 0 {
                offer(Action::WritePut(m), &|s| s.write_put(m));
            }
        }
        if self.job.stage != Stage::None && self.job.todo == 0 && self.failed == 0 {
            offer(Action::Next, &|s| s.next_phase(config));
        }
        match self.mode {
            Mode::Off => {
                for drives in 1..=config.all() {
                    let verdict = self.verdict(config, drives);
                    if verdict.why == Why::Starts {
                        let mut absent = members_of(config.all() & !drives);
                        let over = |m: usize| !verdict.new.continues(&self.head[m]);
                        let over = config.redundancy > 1 && absent.any(over);
                        offer(Action::Start(drives), &|s| {
                            s.forked |= over;
                            s.unrecorded &= !drives;
                            (s.mode, s.old, s.lab) = (Mode::Starting, verdict.new, verdict.next);
                            (s.bits, s.inuse) = (verdict.bits, verdict.here);
                            s.begin(Stage::Finish, Phase::Head);
                        });
                    }
                }
                return;
            }
            Mode::Starting => {}
            Mode::On => {
                self.client(config, &mut offer);
                self.members(config, &mut offer);
            }
        }
        if self.spent.crashes < config.most.crashes {
            offer(Action::Crash, &|s| {
                s.spent.crashes += 1;
                s.off(config);
            });
        }
    }

    /// Writes the label in force again with the next generation.
    pub(super) fn written_again(&self) -> Self {
        let mut state = *self;
        state.lab.generation += 1;
        state.begin(Stage::Label, Phase::Head);
        state
    }

    fn put(&mut self, m: usize) {
        let last = self.job.todo == bit(m);
        self.job.todo &= !bit(m);
        match self.job.phase {
            Phase::Page => self.page[m] = self.bits,
            Phase::Head => {
                let label = if self.job.stage == Stage::Finish { self.old } else { self.lab };
                let chain = |label: &Label| (label.generation, label.epoch);
                if chain(&self.head[m]) != chain(&label) {
                    self.tail &= !bit(m);
                }
                self.head[m] = label;
                if last && label.live() & !self.inuse == 0 {
                    self.forked |= !label.continues(&self.last);
                    self.last = label;
                    self.unrecorded = 0;
                }
            }
            Phase::Tail => self.tail |= bit(m),
            Phase::Redo => self.data[m] |= bit(usize::from(self.replay(&self.old, self.inuse).0)),
            Phase::None => {}
        }
    }

    fn next_phase(&mut self, config: &Config) {
        let every_member = self.old.live() & !self.inuse == 0;
        let Job { stage, phase, .. } = self.job;
        match (stage, phase) {
            (Stage::Bits, _) => self.job = NO_JOB,
            (Stage::Label | Stage::Stop | Stage::Absent, Phase::Page) => {
                self.lab.generation += 1;
                self.begin(stage, Phase::Head);
            }
            (Stage::Activate, Phase::Page) => self.begin(stage, Phase::Head),
            (Stage::Finish, Phase::Head) if !every_member => self.finished(config, every_member),
            (_, Phase::Head) => self.begin(stage, Phase::Tail),
            (Stage::Label, Phase::Tail) => {
                (self.completed, self.joining, self.job) = (self.lab.generation, 0, NO_JOB);
                self.wr.todo &= self.inuse;
            }
            (Stage::Stop, Phase::Tail) => self.off(config),
            (Stage::Finish, _) => self.finished(config, every_member),
            (Stage::Absent, _) => self.carry_out(),
            (Stage::Replay, _) => self.activate(config, true),
            (Stage::Activate, _) => {
                self.untrusted = self.bits.intent && !self.old.covered(config);
                (self.mode, self.completed, self.job) = (Mode::On, self.lab.generation, NO_JOB);
                self.old = Label::none(config.members);
            }
            (Stage::None, _) | (Stage::Label | Stage::Stop, _) => unreachable!("no such job"),
        }
    }

    fn finished(&mut self, config: &Config, every_member: bool) {
        if !self.old.covered(config) {
            self.activate(config, false);
        } else if !every_member && config.broken != Break::AbsentUnrecorded {
            self.begin_pages(Stage::Absent);
        } else {
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let todo = self.replay(&self.old, self.inuse).1;
        self.job = Job { stage: Stage::Replay, phase: Phase::Redo, todo };
    }

    fn activate(&mut self, config: &Config, replayed: bool) {
        self.epochs += 1;
        let label = &mut self.lab;
        (label.parent, label.epoch) = (label.epoch, self.epochs);
        label.generation += 1;
        let degraded = label.in_sync() != config.all();
        label.logged = config.parity() && degraded && (!self.bits.intent || replayed);
        label.remember(Activation { epoch: self.epochs, first: label.generation });
        self.begin_pages(Stage::Activate);
    }

    /// Write-intent bit, record, data, acknowledgement.
    fn client(&self, config: &Config, offer: &mut Offer<'_>) {
        let more = self.spent.writes < config.most.writes;
        if self.idle() && !self.bits.intent && more {
            offer(Action::Mark, &|s| {
                s.bits.intent = true;
                s.bits.stale |= config.all() & !s.lab.live();
                s.begin_pages(Stage::Bits);
                s.spent.writes += 1;
                (s.wr.w, s.wr.phase) = (s.spent.writes, Step::Mark);
            });
        }
        if self.idle() && self.bits.intent && !self.untrusted {
            offer(Action::Unmark, &|s| {
                s.bits.intent = false;
                s.begin_pages(Stage::Bits);
            });
        }
        let marked = self.bits.intent || config.broken == Break::DataBeforeBit;
        let begins = self.wr.phase == Step::Mark || self.wr == NO_WRITE && more;
        if self.quiet() && begins && marked {
            offer(Action::Write, &|s| s.write(config));
        }
        if self.wr.phase == Step::Log && self.wr.todo == 0 {
            offer(Action::LogDone, &|s| (s.wr.phase, s.wr.todo) = (Step::Data, s.inuse));
        }
        let early = config.broken == Break::AnsweredBeforeOut && self.wr.todo & !self.failed == 0;
        if self.wr.phase == Step::Data && (self.wr.todo == 0 || early) {
            offer(Action::Ack, &|s| {
                s.acked |= bit(usize::from(s.wr.w));
                s.wr = NO_WRITE;
            });
        }
    }

    fn write(&mut self, config: &Config) {
        if self.wr.phase != Step::Mark {
            self.spent.writes += 1;
            self.wr.w = self.spent.writes;
        }
        let degraded = self.lab.in_sync() != config.all();
        self.wr.todo = self.inuse;
        self.wr.phase = Step::Data;
        if config.parity() && (degraded || self.lab.logged) {
            let (w, parts) = (self.wr.w, self.inuse);
            let (epoch, generation) = (self.lab.epoch, self.lab.generation);
            self.wr.rec = Record { w, epoch, generation, parts };
            self.wr.phase = Step::Log;
        }
    }

    fn write_put(&mut self, m: usize) {
        self.wr.todo &= !bit(m);
        match self.wr.phase {
            Step::Log => self.rec[m] = self.wr.rec,
            Step::Data => self.data[m] |= bit(usize::from(self.wr.w)),
            Step::None | Step::Mark => {}
        }
    }

    fn members(&self, config: &Config, offer: &mut Offer<'_>) {
        let changes = self.spent.changes < config.most.changes;
        for m in members_of(config.all()) {
            if changes && self.inuse & !self.failed & bit(m) != 0 {
                offer(Action::Fail(m), &|s| s.fail(config, m));
            }
            let out = self.inuse & bit(m) == 0;
            if self.idle() && changes && out && returns(config, &self.lab, &self.head[m], m) {
                offer(Action::Readd(m), &|s| {
                    s.spent.changes += 1;
                    s.lab.st[m] = Standing::Re;
                    s.inuse |= bit(m);
                    s.joining |= bit(m);
                    s.begin_pages(Stage::Label);
                });
            }
            if self.idle() && !self.untrusted && self.lab.st[m] == Standing::Re {
                offer(Action::Rebuilt(m), &|s| s.rebuilt(m));
            }
            if self.idle() && self.untrusted && self.lab.st[m] == Standing::In {
                offer(Action::Resync(m), &|s| {
                    s.untrusted = false;
                    members_of(s.lab.in_sync()).for_each(|k| s.data[k] = s.data[m]);
                });
            }
        }
        if self.failed != 0 && self.due(config) & !self.failed == 0 {
            offer(Action::TakeOut, &|s| s.take_out(config));
        }
        let whole = self.lab.in_sync() == config.all();
        let recorded = matches!(self.wr.phase, Step::None | Step::Mark) || self.wr.rec.w > 0;
        let more = !self.lab.logged && !whole && recorded;
        let less = self.lab.logged && whole && self.wr == NO_WRITE;
        if self.quiet() && config.parity() && (more || less) {
            offer(Action::Logged, &|s| {
                s.lab.logged = !s.lab.logged;
                s.lab.generation += 1;
                s.begin(Stage::Label, Phase::Head);
            });
        }
        if self.idle() && self.spent.stops < config.most.stops {
            offer(Action::Stop, &|s| {
                s.spent.stops += 1;
                s.lab.clean = true;
                s.bits.intent = s.untrusted;
                s.begin_pages(Stage::Stop);
            });
        }
    }

    fn fail(&mut self, config: &Config, m: usize) {
        self.spent.changes += 1;
        self.failed |= bit(m);
        if !config.tolerates(config.all() & !self.lab.in_sync() | self.failed) {
            self.off(config);
        }
    }

    fn take_out(&mut self, config: &Config) {
        let doubt = config.parity() && self.untrusted && self.failed & !self.bits.stale != 0;
        self.lab.doubt |= doubt && config.broken != Break::DoubtForgotten;
        for m in members_of(self.failed) {
            self.lab.st[m] = Standing::Out;
            if self.joining & bit(m) == 0 || self.lab.held[m] == 0 {
                self.lab.held[m] = self.completed;
            }
        }
        if self.bits.intent && config.broken != Break::StaleForgotten {
            self.bits.stale |= self.failed;
        }
        self.unrecorded |= self.failed;
        self.inuse &= !self.failed;
        self.joining &= !self.failed;
        self.failed = 0;
        let stop = self.job.stage == Stage::Stop;
        self.begin_pages(if stop { Stage::Stop } else { Stage::Label });
    }

    fn rebuilt(&mut self, m: usize) {
        let source = members_of(self.lab.in_sync()).next().expect("redundancy is left");
        if self.bits.stale & bit(m) != 0 {
            self.data[m] = self.data[source];
        }
        self.lab.st[m] = Standing::In;
        self.lab.since[m] = self.lab.generation + 1;
        self.bits.stale &= !bit(m);
        self.begin_pages(Stage::Label);
    }
}
