//! Pools and volumes as messages of the interface.

use strake_api::v1 as api;
use strake_volume::{PoolStatus, VolumeKind, VolumeRow, VolumeSpace};

use crate::exports::limits_in_use::limits_message;
use crate::record::store::{Config, Limited};
use crate::state::pool::{Handle, OfflinePool, OnlinePool, PoolSlot, word_of};
use crate::state::running::Running;

/// Bytes of a block of the log.
const LOG_BLOCK_BYTES: u64 = 4096;

/// Returns the pool of an array as a message; `None` without a pool.
pub(crate) fn slot_message(running: &Running) -> Option<api::Pool> {
    match &running.pool {
        PoolSlot::Online(online) => Some(pool_message(running, online)),
        PoolSlot::Offline(OfflinePool { known, why, .. }) => {
            let (name, uuid) = known.clone().unwrap_or_default();
            Some(api::Pool {
                name,
                uuid,
                array: running.array.name().to_string(),
                state: "offline".to_owned(),
                reason: why.clone(),
                ..api::Pool::default()
            })
        }
        PoolSlot::Unknown | PoolSlot::Unread { .. } | PoolSlot::Nothing => None,
    }
}

/// Returns a serving pool as a message.
pub(crate) fn pool_message(running: &Running, online: &OnlinePool) -> api::Pool {
    let status = &online.status;
    let cluster = u64::from(status.cluster_bytes);
    let of = |kind: VolumeKind| status.volumes.iter().filter(move |row| row.kind == kind);
    let blocks: u64 = of(VolumeKind::Writable).map(|row| row.blocks).sum();
    let (state, reason) = if status.is_read_only {
        ("read-only", "its log cannot be written; repair the array, then restart the daemon")
    } else {
        ("online", "")
    };
    api::Pool {
        name: online.handle.name.clone(),
        uuid: online.handle.uuid.clone(),
        array: running.array.name().to_string(),
        state: state.to_owned(),
        reason: reason.to_owned(),
        size_bytes: u64::from(status.clusters) * cluster,
        used_bytes: status.space.in_use * cluster,
        free_bytes: status.space.free * cluster,
        reserved_bytes: status.space.reserved * cluster,
        provisioned_bytes: blocks.saturating_mul(u64::from(status.block_bytes)),
        cluster_bytes: cluster,
        volumes: of(VolumeKind::Writable).count() as u32,
        snapshots: of(VolumeKind::Snapshot).count() as u32,
        deleting: status.deleting as u32,
        log_bytes: status.log_blocks.1 * LOG_BLOCK_BYTES,
        log_used_bytes: status.log_blocks.0 * LOG_BLOCK_BYTES,
        // The callers that list limits add them.
        limits: Vec::new(),
    }
}

/// Returns a volume as a message.
pub(crate) fn volume_message(
    handle: &Handle,
    status: &PoolStatus,
    row: &VolumeRow,
    config: &Config,
) -> api::Volume {
    let cluster = u64::from(status.cluster_bytes);
    let origin = row.origin.and_then(|id| status.volumes.iter().find(|row| row.id == id));
    api::Volume {
        name: handle.full(row),
        pool: handle.name.clone(),
        id: row.id.0,
        kind: word_of(row.kind).to_owned(),
        size_bytes: row.blocks * u64::from(status.block_bytes),
        used_bytes: u64::from(row.mapped) * cluster,
        thick: row.policy.reserved,
        quota_bytes: row.policy.quota.map_or(0, |quota| u64::from(quota) * cluster),
        origin: origin.map(|origin| handle.full(origin)).unwrap_or_default(),
        exports: config.volume_exports(&handle.reference(row.id)),
        limits: limits_message(config, &Limited::Volume(handle.reference(row.id))),
        ..api::Volume::default()
    }
}

/// Adds the space that only a walk of the map finds.
pub(crate) fn with_space(mut view: api::Volume, space: VolumeSpace, cluster: u32) -> api::Volume {
    let bytes = |clusters: u64| Some(clusters * u64::from(cluster));
    view.exclusive_bytes = bytes(space.exclusive);
    view.shared_bytes = bytes(space.shared);
    view.reserved_bytes = bytes(space.reserved);
    view
}
