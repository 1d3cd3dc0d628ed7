//! The range lists of Dataset Management and Copy.

use super::devices::{DeviceIndex, Devices};
use crate::admit;
use strake_block::SgMut;
use strake_nvme_wire::Status;
use strake_nvme_wire::nvm::{RANGE_BYTES, SOURCE_BYTES};
use strake_units::{Lba, LbaRange};

/// Range `number` of a deallocation on the device at `place`.
pub(super) fn range(
    devices: &Devices,
    place: DeviceIndex,
    data: &SgMut,
    number: u32,
) -> Result<LbaRange, Status> {
    admit::range(entry::<RANGE_BYTES>(data, number)?, devices.terms(place)?)
}

/// Checks all ranges before the first is deallocated.
pub(super) fn check(
    devices: &Devices,
    place: DeviceIndex,
    data: &SgMut,
    count: u32,
) -> Result<(), Status> {
    (0..count).try_for_each(|number| range(devices, place, data, number).map(drop))
}

/// Source `number` of a Copy on the device at `place`.
pub(super) fn source(
    devices: &Devices,
    place: DeviceIndex,
    data: &SgMut,
    number: u32,
) -> Result<LbaRange, Status> {
    admit::source_range(entry::<SOURCE_BYTES>(data, number)?, devices.terms(place)?)
}

/// Checks all sources before the first is copied.
pub(super) fn check_copy(
    devices: &Devices,
    place: DeviceIndex,
    to: Lba,
    data: &SgMut,
    count: u32,
) -> Result<(), Status> {
    let sources = (0..count).map(|number| source(devices, place, data, number));
    admit::copied(to, sources, devices.terms(place)?)
}

/// Entry `number` of a list that fits one buffer.
fn entry<const BYTES: usize>(data: &SgMut, number: u32) -> Result<&[u8; BYTES], Status> {
    let from = number as usize * BYTES;
    let entry = data.parts().first().and_then(|part| part.as_slice().get(from..));
    entry.and_then(<[u8]>::first_chunk).ok_or(Status::INTERNAL)
}
