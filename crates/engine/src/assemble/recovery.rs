//! What assembling found of a crash, and what it did about it.

use std::fmt;

/// What was found of a crash when an array was assembled, and what was done about it before any client was served.
/// Its text is for the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The array had not been stopped in order.
    pub crashed: bool,
    /// The last update of the labels may not have reached every member; it was finished.
    pub label_finished: bool,
    /// Members whose drives are here and are not used as they are: what they hold is out of date.
    pub left_out: u32,
    /// Writes that the redo log holds in full: they were replayed.
    pub redone: u64,
    /// Writes of which a member lacks its part of the record: they had not begun, and were dropped.
    pub never_begun: u64,
    /// What was found of small writes of which the log holds partial-write records only.
    pub partial_writes: PartialWrites,
    /// Regions to be resynchronized while the array serves.
    pub resync_regions: u32,
    /// The owner accepted that blocks next to those that were being written may be damaged.
    pub loss_accepted: bool,
}

/// What was found of writes with a partial-write record, by number of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialWrites {
    /// The new data had arrived.
    pub new: u64,
    /// It had not.
    pub old: u64,
    /// The data is lost with its member; the parities tell one of the two.
    pub lost: u64,
    /// Of all of these: blocks did not fit together, or could not be read, and were written so that they fit.
    pub repaired: u64,
    /// Of all of these: nothing tells what a lost member held there.
    pub unsure: u64,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartialWrites { new, old, lost, repaired, unsure } = self.partial_writes;
        let partial_writes = new + old + lost;
        let small = format!("checked {partial_writes} partial-write records, repaired {repaired}");
        let reported = [
            (self.label_finished, "finished an update of the labels".to_owned()),
            (self.left_out > 0, format!("excluded {} drives that are out of date", self.left_out)),
            (self.redone > 0, format!("replayed {} writes from the redo log", self.redone)),
            (self.never_begun > 0, format!("dropped {} that had not started", self.never_begun)),
            (partial_writes > 0, small),
            (unsure > 0, format!("does not know the effect of {unsure} of them on a lost member")),
            (self.resync_regions > 0, format!("regions to resynchronize: {}", self.resync_regions)),
            (self.loss_accepted, "accepted the loss as requested".to_owned()),
        ];
        let reported: Vec<String> = reported
            .into_iter()
            .filter_map(|(reported, words)| reported.then_some(words))
            .collect();
        f.write_str(if self.crashed {
            "it was not shut down cleanly"
        } else {
            "it was shut down cleanly"
        })?;
        if reported.is_empty() { Ok(()) } else { write!(f, "; {}", reported.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::{PartialWrites, Recovery};

    fn check(recovery: Recovery, text: &str) {
        assert_eq!(recovery.to_string(), text);
    }

    #[test]
    fn only_what_was_done_is_reported() {
        check(Recovery::default(), "it was shut down cleanly");
        check(Recovery { crashed: true, ..Recovery::default() }, "it was not shut down cleanly");
        check(
            Recovery { crashed: true, redone: 3, resync_regions: 2, ..Recovery::default() },
            "it was not shut down cleanly; replayed 3 writes from the redo log, regions to resynchronize: 2",
        );
        let partial_writes = PartialWrites { new: 2, old: 1, lost: 1, repaired: 3, unsure: 0 };
        check(
            Recovery { crashed: true, partial_writes, ..Recovery::default() },
            "it was not shut down cleanly; checked 4 partial-write records, repaired 3",
        );
    }
}
