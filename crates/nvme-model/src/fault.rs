//! What a controller can do wrong.

use std::collections::BTreeMap;

/// A misbehaviour, which is armed for a number of occasions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A completion of an I/O queue is not posted, although the command was executed.
    LostCompletion,
    /// A completion of an I/O queue is posted twice.
    RepeatedCompletion,
    /// A completion of an I/O queue names a command that was never sent.
    UnknownCid,
    /// A completion of an I/O queue has other upper bits in its command identifier.
    WrongTurn,
    /// An entry is written into an I/O completion queue with the phase of the round before, ahead of the true one.
    StalePhase,
    /// The two halves of an entry are written in two steps, the one with the phase last.
    TornCompletion,
    /// I/O commands are fetched and not executed in time; admin commands are.
    SilentIo,
    /// No command is executed in time.
    Silent,
    /// Admin commands are not executed in time.
    SilentAdmin,
    /// CSTS.RDY does not become 1.
    NeverReady,
    /// CSTS.RDY does not become 0 when CC.EN does.
    NeverDisabled,
    /// CSTS.CFS is set when the controller would become ready.
    FatalOnEnable,
    /// CSTS.CFS is set while the controller is disabled by CC.EN, and it does not become not ready.
    FatalInReset,
    /// Abort fails with an error.
    AbortRefused,
    /// Abort says that the command was not aborted.
    AbortMissed,
    /// The function reset reports an error and does nothing.
    ResetRefused,
    /// The function reset reports success and does nothing.
    ResetIgnored,
    /// No I/O queue is granted.
    NoQueues,
    /// Identify of the list of descriptors fails.
    NoDescriptors,
    /// Creating a queue fails.
    NoQueueCreated,
    /// A format is not executed in time.
    SlowFormat,
    /// A log page transfers only the bytes that it has, although the command asks for more, and reports success.
    ShortLog,
    /// The telemetry data change before a read of their header.
    TelemetryChanges,
    /// A sanitize operation fails at its end.
    SanitizeFails,
    /// Firmware is not activated without a reset, although the controller reported that it would be.
    FirmwareNeedsReset,
}

/// As many occasions as there are.
pub const PERMANENT: u32 = u32::MAX;

/// The faults that are armed.
#[derive(Debug, Default)]
pub(crate) struct Faults(BTreeMap<Fault, u32>);

impl Faults {
    pub(crate) fn arm(&mut self, fault: Fault, occasions: u32) {
        self.0.insert(fault, occasions);
    }

    /// Whether the fault is armed; the occasion does not count.
    pub(crate) fn is_armed(&self, fault: Fault) -> bool {
        self.0.get(&fault).is_some_and(|left| *left > 0)
    }

    /// Whether the fault is armed, for this occasion.
    pub(crate) fn take(&mut self, fault: Fault) -> bool {
        if self.0.is_empty() {
            return false;
        }
        match self.0.get_mut(&fault) {
            Some(left) if *left > 0 => {
                *left -= u32::from(*left != PERMANENT);
                true
            }
            Some(_) | None => false,
        }
    }
}
