//! The branches that recoveries took, from the report of the engine and from torn writes.

use strake_engine::Recovery;

use super::area::Area;

/// The observable branches of a recovery.
pub(super) const ALL: [&str; 17] = [
    // The engine had nothing to do, after a clean shutdown or not.
    "stopped_in_order",
    "plain",
    "resynced",
    // From the redo log.
    "redone",
    "record_never_begun",
    "partial_write_new",
    "partial_write_old",
    "partial_write_of_lost_strip",
    "parity_made_to_fit",
    // From the labels.
    "label_update_finished",
    "stale_left_out",
    // With a message for the operator.
    "refused",
    "loss_accepted",
    // The area of the newest write if it was torn, so that an older copy is used, or none.
    "torn_label",
    "torn_bitmap_page",
    "torn_record",
    "torn_data",
];

/// Branches without a use in runs of pairs, which have mode `strict` and all members present when a history begins.
const BESIDE_STRICT: [&str; 1] = ["stopped_in_order"];

/// Branches that drawn histories reach so rarely that a run may lack them by chance; pairs always reach them.
const RARELY_DRAWN: [&str; 4] =
    ["partial_write_new", "partial_write_old", "partial_write_of_lost_strip", "parity_made_to_fit"];

/// The branches that a run must show to be valid.
pub(super) fn required(pairs: bool) -> impl Iterator<Item = &'static str> {
    let spared = if pairs { &BESIDE_STRICT[..] } else { &RARELY_DRAWN };
    ALL.into_iter().filter(|name| !spared.contains(name))
}

/// The branches of a recovery: from the engine's report, from an earlier refusal to start, and from a torn write.
pub(super) fn taken(
    recovery: &Recovery,
    refused: bool,
    torn: Option<Area>,
) -> impl Iterator<Item = &'static str> {
    let Recovery { crashed, partial_writes, .. } = *recovery;
    let done = recovery.redone
        + recovery.never_begun
        + partial_writes.new
        + partial_writes.old
        + partial_writes.lost;
    let plain = done == 0 && recovery.resync_regions == 0 && !recovery.label_finished;
    [
        ("stopped_in_order", !crashed),
        ("plain", crashed && plain),
        ("resynced", recovery.resync_regions > 0),
        ("redone", recovery.redone > 0),
        ("record_never_begun", recovery.never_begun > 0),
        ("partial_write_new", partial_writes.new > 0),
        ("partial_write_old", partial_writes.old > 0),
        ("partial_write_of_lost_strip", partial_writes.lost > 0),
        ("parity_made_to_fit", partial_writes.repaired > 0),
        ("label_update_finished", recovery.label_finished),
        ("stale_left_out", recovery.left_out > 0),
        ("refused", refused),
        ("loss_accepted", recovery.loss_accepted),
        ("torn_label", torn == Some(Area::Label)),
        ("torn_bitmap_page", torn == Some(Area::Bitmap)),
        ("torn_record", torn == Some(Area::Log)),
        ("torn_data", torn == Some(Area::Data)),
    ]
    .into_iter()
    .filter_map(|(name, taken)| taken.then_some(name))
}
