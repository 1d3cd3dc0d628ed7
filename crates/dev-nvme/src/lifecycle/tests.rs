//! Tests of the state machine alone: its paths, and the rule about failures for any order of events.

use super::{Action, Event, Lifecycle, Named, Phase, State, Step};
use crate::error::Reason;
use crate::wire::Csts;
use strake_testkit::Chance;
use strake_units::Nanos;

const READY: Csts = Csts(1);
const NOT_READY: Csts = Csts(0);
const FATAL: Csts = Csts(0b11);
const ALL_ONES: Csts = Csts(u32::MAX);
const SECOND: Nanos = Nanos::SECOND;

/// A machine with a clock, and its actions.
struct Run {
    machine: Lifecycle,
    now: Nanos,
    actions: Vec<Action>,
}

impl Run {
    fn new() -> Self {
        Self { machine: Lifecycle::new(20), now: SECOND, actions: Vec::new() }
    }

    fn ready() -> Self {
        let mut run = Self::new();
        run.feed(Event::Open);
        run.feed(Event::Status(NOT_READY));
        run.feed(Event::Status(READY));
        while run.machine.state != State::Ready {
            run.feed(Event::Answered(Ok(())));
        }
        run.actions.clear();
        run
    }

    fn feed(&mut self, event: Event) -> &mut Self {
        let (next, actions) = self.machine.clone().next(self.now, event);
        self.machine = next;
        self.actions.extend(actions);
        self
    }

    fn after(&mut self, time: Nanos) -> &mut Self {
        self.now = self.now.plus(time);
        self
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |action: &Action| match action {
            Action::Publish(phase) => Some(*phase),
            _ => None,
        };
        self.actions.iter().filter_map(phase).collect()
    }
}

#[test]
fn a_controller_becomes_ready_step_by_step() {
    let mut run = Run::new();
    run.feed(Event::Open).feed(Event::Status(READY));
    assert_eq!(run.actions, [Action::Disable], "it may be enabled from before");
    run.feed(Event::Status(NOT_READY)).feed(Event::Status(NOT_READY)).feed(Event::Status(READY));
    assert_eq!(
        run.actions[1..],
        [Action::Publish(Phase::Fenced), Action::Enable, Action::Ask(Step::Controller)]
    );
    (0..8).for_each(|_| _ = run.feed(Event::Answered(Ok(()))));
    assert_eq!(run.actions.last(), Some(&Action::Ask(Step::Shadow)));
    run.feed(Event::Answered(Ok(())));
    assert_eq!(run.actions.last(), Some(&Action::Publish(Phase::Live)));
}

#[test]
fn a_reset_parks_before_it_disables_and_fences_before_it_enables() {
    let mut run = Run::ready();
    run.feed(Event::Status(FATAL));
    assert_eq!(run.actions, [Action::Publish(Phase::Parked), Action::Park]);
    run.feed(Event::Status(FATAL)).feed(Event::Parked);
    assert_eq!(run.actions.last(), Some(&Action::Disable));
    run.feed(Event::Status(READY)).feed(Event::Status(NOT_READY));
    assert_eq!(run.phases(), [Phase::Parked, Phase::Fenced]);
}

#[test]
fn cores_that_do_not_leave_the_registers_delay_a_reset_for_a_limited_time() {
    let mut run = Run::ready();
    run.feed(Event::Broken(Reason::NoAnswer)).feed(Event::Status(READY));
    assert_eq!(run.actions.last(), Some(&Action::Park));
    run.after(SECOND).feed(Event::Status(READY));
    assert_eq!(run.actions.last(), Some(&Action::Disable));
}

/// If RDY = 0 is late, the function is reset; if it is late again, no command is answered until RDY = 0.
#[test]
fn a_controller_that_cannot_be_stopped_is_unfenced() {
    let mut run = Run::ready();
    run.feed(Event::Broken(Reason::NoAnswer)).feed(Event::Parked);
    run.after(SECOND.times(9)).feed(Event::Status(READY));
    assert_eq!(run.actions.last(), Some(&Action::ResetFunction));
    run.feed(Event::FunctionReset).after(SECOND.times(3)).feed(Event::Status(READY));
    assert_eq!(
        run.machine.state,
        State::Disabling { until: run.now.plus(SECOND), function_was_reset: true }
    );
    run.after(SECOND.times(2)).feed(Event::Status(READY));
    assert_eq!(run.phases(), [Phase::Parked, Phase::Unfenced]);
    assert_eq!(run.machine.reason, Some(Reason::NeverDisabled));
    run.after(SECOND.times(3600)).feed(Event::Status(READY));
    assert_eq!(run.phases(), [Phase::Parked, Phase::Unfenced]);
    let mut stopped = Run { machine: run.machine.clone(), now: run.now, actions: Vec::new() };
    run.feed(Event::Status(NOT_READY));
    assert_eq!(run.phases(), [Phase::Parked, Phase::Unfenced, Phase::Gone]);
    assert_eq!(run.machine.state, State::Failed);
    // A stop does not wait for RDY = 0; remaining commands are answered only after the device was given back.
    stopped.feed(Event::Stop).feed(Event::Status(READY));
    assert_eq!((&stopped.actions[..], stopped.phases()), (&[Action::Cut][..], vec![]));
    stopped.feed(Event::Cut);
    assert_eq!((stopped.machine.state, stopped.actions[1..].len()), (State::Closed, 1));
    assert_eq!(stopped.actions[1], Action::Publish(Phase::Gone));
}

/// A device that is requested back while it cannot be stopped is given back, and not kept as failed.
#[test]
fn a_device_that_is_asked_for_during_a_reset_is_given_back() {
    let late = |run: &mut Run| {
        run.feed(Event::Stop).after(SECOND.times(9)).feed(Event::Status(READY));
        run.feed(Event::FunctionReset).after(SECOND.times(9)).feed(Event::Status(READY));
    };
    let mut run = Run::ready();
    run.feed(Event::Broken(Reason::NoAnswer)).feed(Event::Parked);
    late(&mut run);
    assert_eq!(
        run.actions[run.actions.len() - 2..],
        [Action::Publish(Phase::Unfenced), Action::Cut]
    );
    // The kernel has not taken it back, and the controller finally stops.
    run.feed(Event::Status(NOT_READY));
    assert_eq!((run.machine.state, run.actions.last()), (State::Closed, Some(&Action::Close)));
    // In this session, the commands are already fenced.
    let mut run = Run::ready();
    run.feed(Event::Broken(Reason::NoAnswer)).feed(Event::Parked);
    run.feed(Event::Status(NOT_READY)).feed(Event::Status(READY));
    late(&mut run);
    assert_eq!((run.machine.state, run.actions.last()), (State::Closed, Some(&Action::Close)));
}

#[test]
fn a_controller_that_does_not_become_ready_fails_after_three_tries() {
    let mut run = Run::ready();
    run.feed(Event::Broken(Reason::NoAnswer)).feed(Event::Parked);
    for _ in 0..3 {
        run.feed(Event::Status(NOT_READY)).after(SECOND.times(12)).feed(Event::Status(NOT_READY));
    }
    run.feed(Event::Status(NOT_READY));
    assert_eq!(run.machine.state, State::Failed);
    assert_eq!(run.machine.reason, Some(Reason::NeverReady));
    assert_eq!(run.phases().last(), Some(&Phase::Gone));
}

#[test]
fn what_cannot_change_is_not_tried_again() {
    for reason in [Reason::AnotherDrive, Reason::NoQueues, Reason::Identify("NSZE")] {
        let mut run = Run::new();
        run.feed(Event::Open).feed(Event::Status(NOT_READY)).feed(Event::Status(READY));
        run.feed(Event::Answered(Err(reason.clone()))).feed(Event::Status(NOT_READY));
        assert_eq!(run.machine.state, State::Failed);
        assert_eq!(run.machine.reason, Some(reason));
    }
}

#[test]
fn three_resets_in_ten_minutes_are_too_many() {
    let resets_until_failure = |between: Nanos| {
        let mut run = Run::ready();
        for reset in 1..10 {
            run.after(between).feed(Event::Broken(Reason::NoAnswer)).feed(Event::Parked);
            run.feed(Event::Status(NOT_READY)).feed(Event::Status(READY));
            if run.machine.state == State::Failed {
                return Some(reset);
            }
            (0..9).for_each(|_| _ = run.feed(Event::Answered(Ok(()))));
        }
        None
    };
    assert_eq!(resets_until_failure(SECOND), Some(3));
    assert_eq!(resets_until_failure(SECOND.times(290)), Some(3));
    assert_eq!(resets_until_failure(SECOND.times(301)), None);
}

#[test]
fn a_device_that_is_asked_for_is_shut_down_and_given_back() {
    let mut run = Run::ready();
    run.feed(Event::Stop).feed(Event::Parked).feed(Event::Status(READY));
    assert_eq!(run.actions.last(), Some(&Action::ShutDown));
    run.feed(Event::Status(Csts(0b1001))).feed(Event::Status(Csts(0b1000)));
    assert_eq!(run.actions[3..], [Action::Disable, Action::Publish(Phase::Gone), Action::Close]);
    assert_eq!(run.machine.state, State::Closed);
}

#[test]
fn ones_are_a_removal_only_if_the_bus_says_so() {
    let mut run = Run::ready();
    run.feed(Event::Status(ALL_ONES));
    assert_eq!(run.actions, [Action::Look]);
    run.feed(Event::Present).feed(Event::Parked);
    assert_eq!(run.actions.last(), Some(&Action::ResetFunction));
    run.feed(Event::FunctionReset).feed(Event::Status(ALL_ONES)).feed(Event::Absent);
    assert_eq!(run.machine.state, State::Removed);
    assert_eq!(run.phases(), [Phase::Parked, Phase::Gone]);
}

/// For any events in any order, including impossible ones: `Fenced` and `Gone` are published only if no sent command
/// can be executed any longer, `Live` only after all steps, and a final state never changes.
#[test]
fn random_events_never_break_the_rule() {
    for seed in 0..20_000 {
        let mut chance = Chance::new(seed);
        let mut run = Run::new();
        // The rule, computed independently of the machine. Before the first session, the driver has sent no command.
        let (mut may_execute, mut is_disabled) = (false, false);
        for _ in 0..60 {
            let event = any_event(&mut chance, &run.machine);
            if let Event::Status(csts) = &event {
                may_execute &= !is_disabled || csts.is_ready() || csts.is_all_ones();
            }
            may_execute &= !matches!(event, Event::Absent | Event::Cut);
            let was_over = run.machine.is_over();
            run.actions.clear();
            run.feed(event.clone());
            assert!(!was_over || (run.machine.is_over() && run.actions.is_empty()), "seed {seed}");
            for action in run.actions.clone() {
                match action {
                    Action::Disable => is_disabled = true,
                    Action::Enable => is_disabled = false,
                    Action::Cut => _ = run.feed(Event::Cut),
                    Action::Publish(Phase::Live) => may_execute = true,
                    Action::Publish(Phase::Fenced | Phase::Gone) => {
                        assert!(!may_execute, "seed {seed}: {event:?} led to {:?}", run.machine);
                    }
                    _ => {}
                }
            }
            run.after(Nanos(chance.bits() % (3 * SECOND.0)));
        }
    }
}

/// Returns a random event, with a preference for one that causes a transition.
fn any_event(chance: &mut Chance, machine: &Lifecycle) -> Event {
    match (&machine.state, chance.below(4)) {
        (State::New, _) => Event::Open,
        (State::Preparing { .. }, 0..3) => Event::Answered(Ok(())),
        (State::Resetting, 0..3) => Event::FunctionReset,
        (State::Parking { .. }, 0..2) => Event::Parked,
        _ => match chance.below(15) {
            0..3 => Event::Status(READY),
            3..6 => Event::Status(NOT_READY),
            6 => Event::Status(FATAL),
            7 => Event::Status(Csts(0b10)),
            8 => Event::Status(ALL_ONES),
            9 => Event::Present,
            10 if chance.one_in(4) => Event::Absent,
            11 => Event::Broken(Reason::NoAnswer),
            12 => Event::AbortDue(Named { queue: 1, cid: 2 }),
            13 if chance.one_in(4) => Event::Stop,
            _ => Event::Answered(Err(Reason::NoAnswer)),
        },
    }
}
