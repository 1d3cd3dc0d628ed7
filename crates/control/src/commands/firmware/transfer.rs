//! The transfer of an image to a drive, and its commit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use strake_nvme_wire::maintenance::firmware::{
    Activation, Committed, Rejection, Reset, commit, download,
};

use super::Update;
use crate::drives::address::pci_address;
use crate::drives::maintenance::{Maintained, Undone};

/// The stage of an update.
///
/// ```text
/// Transferring --> Committing    (enter)
/// Transferring --> Abandoned     (abandon)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Transferring,
    /// The drive may store the image.
    Committing,
    /// The requester no longer waits: the image must not be committed.
    Abandoned,
}

/// The stage of an update, which its job and its requester share.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<Mutex<Stage>>);

impl Gate {
    /// Changes the stage from [`Stage::Transferring`] to `next`, and returns the stage.
    fn change(&self, next: Stage) -> Stage {
        // No holder of the lock leaves an invalid value.
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Transferring {
            *stage = next;
        }
        *stage
    }

    /// Whether the image may be committed. If so, it can no longer be abandoned.
    pub(super) fn enter(&self) -> bool {
        self.change(Stage::Committing) == Stage::Committing
    }

    /// Abandons the update. Returns whether the image is certainly not committed.
    pub(super) fn abandon(&self) -> bool {
        self.change(Stage::Abandoned) == Stage::Abandoned
    }

    fn is_abandoned(&self) -> bool {
        self.change(Stage::Transferring) == Stage::Abandoned
    }
}

/// Transfers an image in pieces, until `deadline` at most.
pub(super) fn send(
    maintained: &Maintained,
    image: &[u8],
    piece_bytes: u32,
    gate: &Gate,
    deadline: Instant,
) -> Result<(), String> {
    let mut offset = 0;
    for piece in image.chunks(piece_bytes as usize) {
        if gate.is_abandoned() || Instant::now() >= deadline {
            return Err(format!(
                "the drive accepted only {offset} of {} bytes of the image within the time limit",
                image.len()
            ));
        }
        maintained.data(download(offset, piece.to_vec()))?;
        offset += piece.len() as u32;
    }
    Ok(())
}

/// Stores the transferred image. Returns what remains to be done, if anything.
pub(super) fn committed(
    maintained: &Maintained,
    path: &str,
    update: Update,
) -> Result<Option<String>, String> {
    let status = maintained.status(commit(update.slot, update.activation));
    let status = status.map_err(|undone| match undone {
        Undone::Unchanged(why) => format!("the image is not stored: {why}"),
        Undone::Unknown(why) => format!("the drive may have stored the image: {why}"),
    })?;
    let needs = |reset| Some(format!("the image runs after a reset: {}", reset_of(path, reset)));
    match Committed::of(status) {
        Committed::Done if update.activation == Activation::Now => Ok(None),
        Committed::Done => Ok(needs(Reset::Controller)),
        Committed::Needs(reset) => Ok(needs(reset)),
        Committed::Rejected(rejection) => Err(rejected(rejection).to_owned()),
        Committed::Failed(status) => Err(format!("Firmware Commit failed with {status}")),
    }
}

const fn rejected(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Slot => "the drive has no such slot, or it is read-only; name another slot",
        Rejection::Image => {
            "the image is damaged, or is for another drive; compare its checksum and the model"
        }
        Rejection::Time => {
            "the activation would take longer than the drive reported; activate it at the next reset"
        }
        Rejection::Prohibited => "the drive does not permit this image, such as an older revision",
        Rejection::Pieces => "parts of the image are missing or overlap; try again",
    }
}

/// Describes how to reset the drive.
pub(super) fn reset_of(path: &str, reset: Reset) -> String {
    match reset {
        Reset::Controller if pci_address(path).is_some() => {
            "return the drive to the kernel and take it again, or restart the host".to_owned()
        }
        Reset::Controller => {
            format!("nvme reset on the controller of {path}, or a restart of the host")
        }
        Reset::Subsystem => {
            format!(
                "nvme subsystem-reset on the controller of {path}, or a power cycle of the drive"
            )
        }
        Reset::Conventional => "a power cycle of the drive".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, send};
    use crate::drives::maintenance::Maintained;
    use crate::drives::maintenance::fake::Fake;
    use std::time::{Duration, Instant};

    #[test]
    fn a_transfer_ends_at_its_limit_or_when_it_is_abandoned() {
        let check = |gate: &Gate, deadline: Instant, pieces: usize| {
            let fake = Fake::new("S1");
            let maintained = Maintained::of(fake.clone()).expect("it identifies itself");
            let sent = send(&maintained, &[1; 8192], 4096, gate, deadline);
            assert_eq!(sent.is_ok(), pieces == 2);
            assert_eq!(fake.state().changed.len(), pieces);
        };
        let later = Instant::now() + Duration::from_secs(600);
        check(&Gate::default(), later, 2);
        check(&Gate::default(), Instant::now(), 0);
        let gate = Gate::default();
        assert!(gate.abandon());
        check(&gate, later, 0);
    }

    #[test]
    fn an_image_is_either_committed_or_abandoned() {
        let gate = Gate::default();
        assert!(gate.enter() && !gate.abandon());
        let gate = Gate::default();
        assert!(gate.abandon() && !gate.enter());
    }
}
