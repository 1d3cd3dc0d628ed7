//! Which ways recoveries took: what the engine says of them, and what was torn where.

use strake_engine::Recovery;

use super::area::Area;

/// What a recovery can be seen to do.
pub(super) const ALL: [&str; 17] = [
    // The engine had nothing to do; of an array that had been stopped in order, or not.
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
    // With words for the owner.
    "refused",
    "loss_accepted",
    // What the newest write was torn in, so that there is an older one instead, or none.
    "torn_label",
    "torn_bitmap_page",
    "torn_record",
    "torn_data",
];

/// Those that mode `strict` has no use for while everybody is there when a history begins.
const BESIDE_STRICT: [&str; 1] = ["stopped_in_order"];

/// Those that so few drawn histories lead to that a run may lack them by chance; pairs always show them.
const RARELY_DRAWN: [&str; 4] =
    ["partial_write_new", "partial_write_old", "partial_write_of_lost_strip", "parity_made_to_fit"];

/// What a run has to show, or it shows less than it says.
pub(super) fn required(pairs: bool) -> impl Iterator<Item = &'static str> {
    let spared = if pairs { &BESIDE_STRICT[..] } else { &RARELY_DRAWN };
    ALL.into_iter().filter(|name| !spared.contains(name))
}

/// What was done: as the engine tells it, whether it refused before, and what had been torn.
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
