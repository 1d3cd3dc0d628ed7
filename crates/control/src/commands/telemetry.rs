//! The telemetry log of an NVMe drive.

use std::time::Instant;

use strake_api::v1::ReadTelemetryRequest;
use strake_nvme_wire::maintenance::telemetry::{Area, Initiator};

use crate::bounded;
use crate::commands::maintain::Subject;
use crate::control::Control;
use crate::drives::telemetry::{Log, read_log};
use crate::error::ControlError;
use crate::history::Outcome;
use crate::limits::TELEMETRY_LIMIT;

/// A telemetry log, and the drive that it describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// Path of the drive.
    pub path: String,
    /// Model of the drive.
    pub model: String,
    /// Serial number of the drive.
    pub serial: String,
    /// Revision of the firmware.
    pub firmware: String,
    /// The last area in the data, 1 to 3.
    pub area: u32,
    /// The generation number of the data.
    pub generation: u8,
    /// The log, from its header on.
    pub data: Vec<u8>,
}

impl Outcome for Telemetry {
    fn word(&self) -> &str {
        "unchanged"
    }
}

/// Reads the telemetry log of an NVMe drive, for minutes at most. I/O of the drive continues.
///
/// # Errors
/// If there is no such area or drive, it is not an NVMe drive of this host, it does not support telemetry, its data
/// change continually, or it does not answer.
pub fn read_telemetry(
    control: &Control,
    request: &ReadTelemetryRequest,
) -> Result<Telemetry, ControlError> {
    let area = match request.area {
        0 => Area::Three,
        number => Area::of(number).ok_or_else(|| {
            ControlError::usage(format!("there is no telemetry area {number}; use 1, 2 or 3"))
        })?,
    };
    let initiator = if request.controller { Initiator::Controller } else { Initiator::Host };
    let subject = Subject::named(control, &request.path)?;
    let (path, source) = (subject.path.clone(), subject.source.clone());
    let deadline = Instant::now() + TELEMETRY_LIMIT;
    let job = move || {
        let drive = crate::drives::maintenance::Maintained::of(source)?;
        let log = read_log(&drive, initiator, area, deadline)?;
        Ok((drive.facts, log))
    };
    let asked = bounded::ask(&format!("telemetry of {path}"), TELEMETRY_LIMIT, job)?;
    let (facts, Log { generation, bytes }) = asked.map_err(|why: String| {
        ControlError::device(format!("the telemetry of {path} cannot be read: {why}"))
    })?;
    Ok(Telemetry {
        path,
        model: facts.model,
        serial: facts.serial,
        firmware: facts.firmware,
        area: area as u32,
        generation,
        data: bytes,
    })
}
