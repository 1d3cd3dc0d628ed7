//! The findings of an assembly after a crash, and the recovery.

use std::fmt;

/// The effects of a crash that an assembly found, and the recovery before the array served clients. Its text is for the
/// operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// True after an unclean shutdown.
    pub crashed: bool,
    /// True if the last update of the labels may not have reached every member and was completed.
    pub label_finished: bool,
    /// Number of members whose drives are present but out of date.
    pub left_out: u32,
    /// Number of writes that were completely in the redo log and were replayed.
    pub redone: u64,
    /// Number of writes with an incomplete record on some member. These writes had not started, and were dropped.
    pub never_begun: u64,
    /// Findings about small writes that have only partial-write records.
    pub partial_writes: PartialWrites,
    /// Number of regions to resynchronize while the array serves.
    pub resync_regions: u32,
    /// True if the operator accepted that blocks next to blocks of interrupted writes may be damaged.
    pub loss_accepted: bool,
}

/// Numbers of writes with a partial-write record, by finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialWrites {
    /// Writes whose new data were on the member.
    pub new: u64,
    /// Writes whose old data were on the member.
    pub old: u64,
    /// Writes whose member is absent. The parities determine the old or the new data.
    pub lost: u64,
    /// Number of these writes with inconsistent or unreadable blocks, which were rewritten.
    pub repaired: u64,
    /// Number of these writes for which the content of an absent member could not be determined.
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
