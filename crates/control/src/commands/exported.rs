//! What exports offer: arrays, and volumes of their pools.

use std::sync::Arc;

use strake_api::v1::CreateExportRequest;
use strake_block::BlockDevice;
use strake_volume::{VolumeId, VolumeKind};

use crate::commands::exports::offer_or_report;
use crate::commands::pools::refuse_pool;
use crate::commands::pools::{no_such_pool, online_pool, refuse_known_pool};
use crate::commands::volumes::{row_of, split};
use crate::control::Control;
use crate::error::ControlError;
use crate::exports::offered::Offered;
use crate::exports::requests::Wanted;
use crate::limits::GROWTH_DRAIN;
use crate::manager::Manager;
use crate::record::store::{ExportRecord, VolumeRef};
use crate::state::pool::{Handle, OfflinePool, OnlinePool, PoolSlot};

impl Manager {
    /// Records the device of a volume that is about to be exported.
    pub(crate) fn put_volume_device(
        &mut self,
        handle: &Handle,
        id: VolumeId,
        device: Arc<dyn BlockDevice>,
    ) {
        let Some(at) = self.position_of(&handle.array) else { return };
        if let Some(online) = self.running[at].pool.online_mut() {
            online.devices.insert(id.0, device);
        }
    }
}

/// Returns what a request exports.
pub(crate) fn wanted_of(
    manager: &Manager,
    request: &CreateExportRequest,
) -> Result<Wanted, ControlError> {
    if !request.array.contains('/') {
        let running = &manager.running[manager.find_running(&request.array)?];
        refuse_pool(running, "cannot be exported")?;
        return Ok(Wanted::array(running.array.name().as_str(), running.uuid()));
    }
    let (pool, name) = split(&request.array)?;
    let handle = online_pool(manager, pool)?;
    let running = manager.running_of(&handle.array).and_then(|running| running.pool.online());
    let online = running.ok_or_else(|| no_such_pool(manager, pool))?;
    let row = row_of(&handle, &online.status, &name)?;
    Ok(Wanted {
        name: name.to_string(),
        array: handle.array.clone(),
        volume: Some(handle.reference(row.id)),
        is_read_only: row.kind == VolumeKind::Snapshot,
    })
}

/// Returns what a recorded export offers, or the reason why it cannot be offered now.
pub(crate) fn offered_of(
    manager: &Manager,
    record: &ExportRecord,
) -> Result<Offered, ControlError> {
    let running = &manager.running[manager.find_running(&record.array)?];
    let Some(volume) = &record.volume else {
        refuse_known_pool(running, "is not offered")?;
        return Ok(Offered::array(&running.array));
    };
    let offline = |why: &str| {
        let array = running.array.name();
        Err(ControlError::state(format!(
            "the pool of its volume is not open on array {array}: {why}"
        )))
    };
    let online = match &running.pool {
        PoolSlot::Online(online) if online.handle.uuid == volume.pool => online,
        PoolSlot::Online(_) => return offline("the array has another pool"),
        PoolSlot::Offline(OfflinePool { why, .. }) | PoolSlot::Unread { why } => {
            return offline(why);
        }
        PoolSlot::Unknown => return offline("the search for it has not ended"),
        PoolSlot::Nothing => return offline("the array has no pool"),
    };
    let OnlinePool { handle, devices, .. } = online;
    let (row, device) = (online.row(volume.id), devices.get(&volume.id));
    let Some((row, device)) = row.zip(device) else {
        let what = format!("pool {} no longer has its volume, number {}", handle.name, volume.id);
        return Err(ControlError::not_found(what));
    };
    Ok(Offered::volume(Arc::clone(device), &handle.full(row)))
}

/// Returns the online pool of a volume.
fn pool_of<'a>(manager: &'a Manager, array: &str, volume: &VolumeRef) -> Option<&'a OnlinePool> {
    let online = manager.running_of(array)?.pool.online()?;
    (online.handle.uuid == volume.pool).then_some(online)
}

/// Returns the name of what an export offers: an array, or POOL/NAME. While the pool is not open, the identities.
pub(crate) fn subject_name(manager: &Manager, record: &ExportRecord) -> String {
    let Some(volume) = &record.volume else { return manager.records.array_name(&record.array) };
    let online = pool_of(manager, &record.array, volume);
    let named = online.and_then(|online| Some(online.handle.full(online.row(volume.id)?)));
    named.unwrap_or_else(|| format!("{}/{}", volume.pool, volume.id))
}

/// Returns the size of what an export offers; 0 while it is not there.
pub(crate) fn size_of(manager: &Manager, record: &ExportRecord) -> u64 {
    match &record.volume {
        None => {
            let running = manager.running_of(&record.array);
            running.map_or(0, |running| running.array.device().info().bytes())
        }
        Some(volume) => {
            let online = pool_of(manager, &record.array, volume);
            let device = online.and_then(|online| online.devices.get(&volume.id));
            device.map_or(0, |device| device.info().bytes())
        }
    }
}

/// Offers the NVMe/TCP namespaces of a volume that has grown with the new size. Commands of hosts wait meanwhile. An
/// NBD export needs nothing: each client receives the size at its connection.
pub(crate) fn offer_grown(control: &Control, volume: &VolumeRef) -> Result<(), ControlError> {
    let of_it =
        |record: &&ExportRecord| record.nvme.is_some() && record.volume.as_ref() == Some(volume);
    let paused = control.with(|m| {
        let records: Vec<_> = m.records.exports.iter().filter(of_it).cloned().collect();
        let pause = |record: ExportRecord| {
            let leaving = m.exports.at(&record.listen)?.pause(&record)?;
            Some((record, leaving))
        };
        records.into_iter().filter_map(pause).collect::<Vec<_>>()
    })?;
    for (record, leaving) in paused {
        let calm = leaving.is_over(GROWTH_DRAIN);
        drop(leaving);
        control.with(|m| {
            let server = m.exports.at(&record.listen).cloned();
            if let Some(server) = server.as_ref().filter(|_| calm) {
                server.keep_instance(&record);
            }
            offer_or_report(m, &record);
            if let Some(server) = server {
                server.forget_instance(&record);
            }
        })?;
    }
    Ok(())
}
