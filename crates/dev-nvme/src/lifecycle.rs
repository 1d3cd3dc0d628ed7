//! The lifecycle of a controller as a pure function: from an event and its time to the resulting actions.
//!
//! ```text
//!                    Open
//!                     v           RDY = 0             RDY = 1              all steps
//!   Stopping ---> Disabling ----------------> Enabling ------> Preparing -----------> Ready
//!      ^           ^  |  ^                       |                 |                    |
//!      | Stop      |  |  +--- again, 3 tries ----+-----------------+                    | silence, CFS, RDY = 0,
//!   Parking -------+  | too late                                                        | breach, Stop
//!      ^              v                                                                 |
//!      |          Resetting --> Disabling --too late--> Unfenced --RDY = 0--> Failed    |
//!      |                                                  +--- Stop, Cut ---> Closed    |
//!      +--------------------------------------------------------------------------------+
//!   any: the device is absent --> Removed        Disabling, when stopping --RDY = 0--> Closed
//! ```
//! **The rule.** A command that changes blocks may be answered as failed only if it can no longer be executed: after
//! CC.EN = 0 was written and CSTS.RDY = 0 was read, after the device has left the bus, or after it was given back
//! ([`Action::Cut`]). Only then are [`Phase::Fenced`] and [`Phase::Gone`] published. Until then, the driver answers
//! only the commands that the controller completed.

use crate::error::Reason;
use crate::limits::{
    DISABLE_TIME_MAX, FUNCTION_RESET_TIME_MAX, PARK_TIME_MAX, READY_TRIES, RESET_SPAN, RESETS_MAX,
    SHUTDOWN_TIME_MAX, STEP_TIME_MAX,
};
use crate::wire::Csts;
use strake_units::Nanos;

#[cfg(test)]
mod tests;

/// The operations that queues may perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Queues that the controller has may send commands.
    Live = 0,
    /// Queues do not access the registers. The controller may execute sent commands, which are not answered.
    Parked = 1,
    /// As `Parked`, but no sent command can be executed any longer: queues may send it again.
    Fenced = 2,
    /// No command can be executed any longer, and none is sent again: all requests fail.
    Gone = 3,
    /// The controller cannot be stopped: it may execute sent commands at any time.
    Unfenced = 4,
}

/// An admin command of the preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Controller,
    CommandSet,
    Namespaces,
    Namespace,
    Descriptors,
    Health,
    Queues,
    Events,
    Shadow,
}

impl Step {
    const FIRST: Self = Self::Controller;

    const fn next(self) -> Option<Self> {
        Some(match self {
            Self::Controller => Self::CommandSet,
            Self::CommandSet => Self::Namespaces,
            Self::Namespaces => Self::Namespace,
            Self::Namespace => Self::Descriptors,
            Self::Descriptors => Self::Health,
            Self::Health => Self::Queues,
            Self::Queues => Self::Events,
            Self::Events => Self::Shadow,
            Self::Shadow => return None,
        })
    }
}

/// A command of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) queue: u16,
    pub(crate) cid: u16,
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The device was opened.
    Open,
    /// CSTS was read.
    Status(Csts),
    /// No data core accesses the registers, and none will.
    Parked,
    /// The reset of the function finished, or failed.
    FunctionReset,
    /// The answer to a step: success, or the reason of the failure.
    Answered(Result<(), Reason>),
    /// The device is on the bus according to its configuration space, or it is not.
    Present,
    Absent,
    /// A command has no answer after the time at which it is aborted.
    AbortDue(Named),
    /// A command has no answer after the time at which a reset is due, or a completion was wrong.
    Broken(Reason),
    /// The device must be given back.
    Stop,
    /// The device was given back: the kernel has turned its bus mastering off, and no memory is mapped for it.
    Cut,
}

/// An output of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Publish the phase to queues.
    Publish(Phase),
    /// Wait for all data cores to leave the registers: [`Event::Parked`].
    Park,
    /// Write CC.EN = 0.
    Disable,
    /// Set up the admin queue, and write CC.EN = 1.
    Enable,
    /// Reset the function, with memory decoding and bus mastering on afterwards: [`Event::FunctionReset`].
    ResetFunction,
    /// Send the command of the step: [`Event::Answered`].
    Ask(Step),
    /// Check whether the device is on the bus: [`Event::Present`] or [`Event::Absent`].
    Look,
    /// Abort a command.
    Abort(Named),
    /// Write CC.SHN.
    ShutDown,
    /// Stop using the device.
    Close,
    /// Stop using a controller that cannot be stopped: [`Event::Cut`] after the kernel has taken it back. The commands
    /// that it fetched can change blocks only until the next driver disables it, and no driver reads them before.
    Cut,
}

/// The state of the controller; see the diagram of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    New,
    Disabling { until: Nanos, function_was_reset: bool },
    Resetting,
    Enabling { until: Nanos },
    Preparing { step: Step, until: Nanos },
    Ready,
    Parking { until: Nanos, then: Then },
    Stopping { until: Nanos },
    Closed,
    Failed,
    Unfenced,
    Removed,
}

/// What follows parking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Disable,
    ResetFunction,
    ShutDown,
}

/// The purpose of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Serve,
    Fail,
    Stop,
}

/// The state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lifecycle {
    pub(crate) state: State,
    goal: Goal,
    /// Whether no sent command can be executed any longer.
    fenced: bool,
    /// Failed tries to make the controller ready since it was last ready.
    tries: u8,
    /// The times of the resets; the latest is last.
    resets: [Option<Nanos>; RESETS_MAX],
    /// The controller's own limit for becoming ready.
    ready_time: Nanos,
    /// The reason of the last reset or failure.
    pub(crate) reason: Option<Reason>,
}

type Next = (Lifecycle, Vec<Action>);

impl Lifecycle {
    /// Returns a controller whose limit for becoming ready is `ready_units` times 500 ms.
    pub(crate) fn new(ready_units: u64) -> Self {
        Self {
            state: State::New,
            goal: Goal::Serve,
            // The controller may execute commands of an earlier process until the first RDY = 0.
            fenced: false,
            tries: 0,
            resets: [None; RESETS_MAX],
            ready_time: Nanos(500 * Nanos::MILLI.0).times(ready_units.max(1)),
            reason: None,
        }
    }

    /// Whether the state is final.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Closed | State::Removed)
    }

    /// Whether the machine waits for the next step.
    pub(crate) const fn is_changing(&self) -> bool {
        match self.state {
            State::Disabling { .. }
            | State::Resetting
            | State::Enabling { .. }
            | State::Preparing { .. }
            | State::Parking { .. }
            | State::Stopping { .. } => true,
            State::New
            | State::Ready
            | State::Closed
            | State::Failed
            | State::Unfenced
            | State::Removed => false,
        }
    }

    /// Whether the device is being given back.
    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self.goal, Goal::Stop)
    }

    /// Whether the controller answers commands.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Performs a transition.
    pub(crate) fn next(self, now: Nanos, event: Event) -> Next {
        if self.is_over() {
            return (self, Vec::new());
        }
        match event {
            Event::Open => self.disable(now, DISABLE_TIME_MAX),
            Event::Status(csts) if csts.is_all_ones() => (self, vec![Action::Look]),
            Event::Status(csts) => self.status(now, csts),
            Event::Absent => {
                self.to(State::Removed, vec![Action::Publish(Phase::Gone), Action::Close])
            }
            Event::Present => self.unreadable(now),
            Event::Parked => self.parked(now),
            Event::FunctionReset => self.function_was_reset(now),
            Event::Answered(outcome) => self.answered(now, outcome),
            Event::AbortDue(named) if self.is_ready() => (self, vec![Action::Abort(named)]),
            Event::AbortDue(_) => (self, Vec::new()),
            Event::Broken(reason) => self.trouble(now, reason, Then::Disable),
            Event::Stop => self.stop(now),
            Event::Cut => self.to(State::Closed, vec![Action::Publish(Phase::Gone)]),
        }
    }

    fn to(mut self, state: State, actions: Vec<Action>) -> Next {
        self.state = state;
        (self, actions)
    }

    fn disable(self, now: Nanos, most: Nanos) -> Next {
        let until = now.plus(most.min(self.ready_time.max(Nanos::SECOND)));
        self.to(State::Disabling { until, function_was_reset: false }, vec![Action::Disable])
    }

    fn park(self, now: Nanos, then: Then) -> Next {
        let until = now.plus(PARK_TIME_MAX);
        let actions = vec![Action::Publish(Phase::Parked), Action::Park];
        self.to(State::Parking { until, then }, actions)
    }

    /// Handles a failure. Only a ready controller is reset for it: in all other states a reset is in progress.
    fn trouble(mut self, now: Nanos, reason: Reason, then: Then) -> Next {
        match self.state {
            State::Ready => {
                self.reason = Some(reason);
                if self.is_storm(now) {
                    (self.goal, self.reason) = (Goal::Fail, Some(Reason::ResetStorm));
                }
                self.park(now, then)
            }
            State::Enabling { .. } | State::Preparing { .. } => self.again(now, reason),
            State::New
            | State::Disabling { .. }
            | State::Resetting
            | State::Parking { .. }
            | State::Stopping { .. }
            | State::Closed
            | State::Failed
            | State::Unfenced
            | State::Removed => (self, Vec::new()),
        }
    }

    /// Records a reset. Returns true if there were too many.
    fn is_storm(&mut self, now: Nanos) -> bool {
        let recent = self.resets.iter().flatten().filter(|at| now.since(**at) < RESET_SPAN).count();
        self.resets.rotate_left(1);
        self.resets[RESETS_MAX - 1] = Some(now);
        recent >= RESETS_MAX - 1
    }

    /// Disables once more a controller that no queue uses, up to the limit of tries.
    fn again(mut self, now: Nanos, reason: Reason) -> Next {
        self.tries += 1;
        if reason.is_final() || self.tries >= READY_TRIES {
            self.goal = Goal::Fail;
        }
        self.reason = Some(reason);
        self.disable(now, DISABLE_TIME_MAX)
    }

    fn unreadable(self, now: Nanos) -> Next {
        match self.state {
            // Memory decoding is off; a reset of the function turns it on.
            State::Disabling { function_was_reset: false, .. } => {
                self.to(State::Resetting, vec![Action::ResetFunction])
            }
            State::Disabling { until, .. } if now >= until => self.late(),
            State::Parking { until, .. } if now >= until => self.parked(now),
            State::Stopping { .. } => self.to(State::Resetting, vec![Action::ResetFunction]),
            State::New
            | State::Disabling { .. }
            | State::Resetting
            | State::Enabling { .. }
            | State::Preparing { .. }
            | State::Ready
            | State::Parking { .. }
            | State::Closed
            | State::Failed
            | State::Unfenced
            | State::Removed => self.trouble(now, Reason::NoRegisters, Then::ResetFunction),
        }
    }

    fn status(self, now: Nanos, csts: Csts) -> Next {
        match self.state {
            State::Disabling { .. } | State::Unfenced if !csts.is_ready() => self.fence(now),
            State::Disabling { until, .. } if now >= until => self.late(),
            State::Enabling { .. } if csts.is_fatal() => self.again(now, Reason::Fatal),
            State::Enabling { .. } if csts.is_ready() => self.ask(now, Step::FIRST),
            State::Enabling { until } if now >= until => self.again(now, Reason::NeverReady),
            State::Preparing { .. } | State::Ready if csts.is_fatal() => {
                self.trouble(now, Reason::Fatal, Then::Disable)
            }
            State::Preparing { .. } | State::Ready if !csts.is_ready() => {
                self.trouble(now, Reason::NotReady, Then::Disable)
            }
            State::Preparing { until, .. } if now >= until => self.again(now, Reason::NoAnswer),
            State::Parking { until, .. } if now >= until => self.parked(now),
            State::Stopping { until } if csts.is_shut_down() || now >= until => {
                self.disable(now, DISABLE_TIME_MAX)
            }
            State::New
            | State::Disabling { .. }
            | State::Resetting
            | State::Enabling { .. }
            | State::Preparing { .. }
            | State::Ready
            | State::Parking { .. }
            | State::Stopping { .. }
            | State::Closed
            | State::Failed
            | State::Unfenced
            | State::Removed => (self, Vec::new()),
        }
    }

    /// Handles RDY = 0 after CC.EN = 0: no sent command can be executed any longer.
    fn fence(mut self, now: Nanos) -> Next {
        self.fenced = true;
        if self.state == State::Unfenced && self.goal == Goal::Serve {
            self.goal = Goal::Fail;
        }
        match self.goal {
            Goal::Serve => {
                let until = now.plus(self.ready_time).plus(Nanos::SECOND);
                let actions = vec![Action::Publish(Phase::Fenced), Action::Enable];
                self.to(State::Enabling { until }, actions)
            }
            Goal::Fail => self.to(State::Failed, vec![Action::Publish(Phase::Gone)]),
            Goal::Stop => self.to(State::Closed, vec![Action::Publish(Phase::Gone), Action::Close]),
        }
    }

    /// Handles a controller that did not become not ready in time.
    fn late(mut self) -> Next {
        if let State::Disabling { function_was_reset: false, .. } = self.state {
            return self.to(State::Resetting, vec![Action::ResetFunction]);
        }
        self.reason = Some(Reason::NeverDisabled);
        // If no queue has used the controller since it was fenced, it has no command to execute.
        let (state, phase) = match self.fenced {
            true => (State::Failed, Phase::Gone),
            false => (State::Unfenced, Phase::Unfenced),
        };
        let is_stopping = self.is_stopping();
        let (next, mut actions) = self.to(state, vec![Action::Publish(phase)]);
        if !is_stopping {
            return (next, actions);
        }
        let (next, more) = next.give_back();
        actions.extend(more);
        (next, actions)
    }

    fn parked(self, now: Nanos) -> Next {
        let State::Parking { then, .. } = self.state else { return (self, Vec::new()) };
        match then {
            Then::Disable => self.disable(now, DISABLE_TIME_MAX),
            Then::ResetFunction => self.to(State::Resetting, vec![Action::ResetFunction]),
            Then::ShutDown => {
                let until = now.plus(SHUTDOWN_TIME_MAX);
                self.to(State::Stopping { until }, vec![Action::ShutDown])
            }
        }
    }

    fn function_was_reset(self, now: Nanos) -> Next {
        if self.state != State::Resetting {
            return (self, Vec::new());
        }
        let until = now.plus(FUNCTION_RESET_TIME_MAX);
        self.to(State::Disabling { until, function_was_reset: true }, vec![Action::Disable])
    }

    fn ask(self, now: Nanos, step: Step) -> Next {
        let until = now.plus(STEP_TIME_MAX);
        self.to(State::Preparing { step, until }, vec![Action::Ask(step)])
    }

    fn answered(mut self, now: Nanos, outcome: Result<(), Reason>) -> Next {
        let State::Preparing { step, .. } = self.state else { return (self, Vec::new()) };
        match (outcome, step.next()) {
            (Err(reason), _) => self.again(now, reason),
            (Ok(()), Some(step)) => self.ask(now, step),
            (Ok(()), None) => {
                (self.tries, self.fenced) = (0, false);
                self.to(State::Ready, vec![Action::Publish(Phase::Live)])
            }
        }
    }

    /// Gives back a controller to which no command can be sent.
    fn give_back(self) -> Next {
        match self.state {
            State::Unfenced => (self, vec![Action::Cut]),
            _ => self.to(State::Closed, vec![Action::Publish(Phase::Gone), Action::Close]),
        }
    }

    fn stop(mut self, now: Nanos) -> Next {
        self.goal = Goal::Stop;
        match self.state {
            State::New | State::Failed | State::Unfenced => self.give_back(),
            State::Ready => self.park(now, Then::ShutDown),
            State::Enabling { .. } | State::Preparing { .. } => self.disable(now, DISABLE_TIME_MAX),
            State::Disabling { .. }
            | State::Resetting
            | State::Parking { .. }
            | State::Stopping { .. }
            | State::Closed
            | State::Removed => (self, Vec::new()),
        }
    }
}
