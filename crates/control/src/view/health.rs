//! Converts the health report of a drive to a message.

use strake_api::v1::{DriveHealth, DriveLogEntry, HealthSensor, OcpHealth};
use strake_nvme_wire::health::{ErrorEntry, Ocp};

use crate::drives::health::Report;

/// The number of bytes of the unit in which drives count the data that hosts read and write (Base, Figure 207: a
/// thousand units of 512 bytes).
const UNIT_BYTES: u64 = 512_000;

/// The value for the health of the capacitor if the drive does not report it (OCP, section 4.8.6, SMART-21).
const NO_CAPACITOR: u16 = u16::MAX;

/// Converts the report of the drive at `path`.
pub(crate) fn message_of(path: &str, report: &Report) -> DriveHealth {
    let smart = &report.smart;
    let warned = smart.warned();
    let sensors = (1..)
        .zip(smart.sensors_c)
        .filter_map(|(number, degrees)| Some(HealthSensor { number, temperature_c: degrees? }));
    DriveHealth {
        path: path.to_owned(),
        warnings: warned.map(|warning| warning.word().to_owned()).collect(),
        prediction: smart.prediction().unwrap_or_default().to_owned(),
        temperature_c: smart.temperature_c,
        spare_percent: smart.spare_percent.into(),
        spare_threshold_percent: smart.spare_threshold_percent.into(),
        wear_percent: smart.wear_percent.into(),
        read_bytes: smart.read_units.saturating_mul(UNIT_BYTES),
        written_bytes: smart.written_units.saturating_mul(UNIT_BYTES),
        reads: smart.reads,
        writes: smart.writes,
        busy_minutes: smart.busy_minutes,
        power_cycles: smart.power_cycles,
        power_on_hours: smart.power_on_hours,
        unsafe_shutdowns: smart.unsafe_shutdowns,
        media_errors: smart.media_errors,
        log_entries: smart.log_entries,
        warm_minutes: smart.warm_minutes,
        hot_minutes: smart.hot_minutes,
        sensors: sensors.collect(),
        errors: report.errors.iter().map(entry_of).collect(),
        ocp: report.ocp.as_ref().map(ocp_of),
        note: report.note.clone(),
        ..DriveHealth::default()
    }
}

fn entry_of(entry: &ErrorEntry) -> DriveLogEntry {
    let ErrorEntry { number, queue, cid, status, block, namespace } = *entry;
    let (queue, command, status) = (queue.into(), cid.into(), status.into());
    DriveLogEntry { number, queue, command, status, block, namespace }
}

fn ocp_of(ocp: &Ocp) -> OcpHealth {
    let capacitor = ocp.capacitor_percent;
    OcpHealth {
        physical_written_bytes: ocp.physical_written_bytes,
        physical_read_bytes: ocp.physical_read_bytes,
        bad_user_blocks: ocp.bad_user_blocks,
        bad_system_blocks: ocp.bad_system_blocks,
        xor_recoveries: ocp.xor_recoveries,
        uncorrectable_reads: ocp.uncorrectable_reads,
        soft_ecc_errors: ocp.soft_ecc_errors,
        end_to_end_detected: ocp.end_to_end_detected,
        end_to_end_corrected: ocp.end_to_end_corrected,
        system_wear_percent: ocp.system_wear_percent.into(),
        throttlings: ocp.throttlings.into(),
        pcie_correctable: ocp.pcie_correctable,
        incomplete_shutdowns: ocp.incomplete_shutdowns,
        free_percent: ocp.free_percent.into(),
        capacitor_percent: (capacitor != NO_CAPACITOR).then_some(capacitor.into()),
        link_retrainings: ocp.link_retrainings,
    }
}

#[cfg(test)]
mod tests {
    use super::{Ocp, Report, message_of};
    use strake_api::v1::HealthSensor;
    use strake_nvme_wire::health::Smart;

    #[test]
    fn units_warnings_and_sensors_are_what_the_drive_means() {
        let mut smart =
            Smart { warnings: 0b1010, read_units: 2, written_units: u64::MAX, ..Smart::default() };
        smart.sensors_c[2] = Some(-4);
        let ocp = Ocp { capacitor_percent: u16::MAX, bad_user_blocks: 9, ..Ocp::default() };
        let report = Report { smart, ocp: Some(ocp), ..Report::default() };
        let message = message_of("/dev/nvme0", &report);
        assert_eq!(message.warnings, ["temperature", "read_only"]);
        assert!(message.prediction.contains("read-only"));
        assert_eq!((message.read_bytes, message.written_bytes), (1_024_000, u64::MAX));
        assert_eq!(message.sensors, [HealthSensor { number: 3, temperature_c: -4 }]);
        let ocp = message.ocp.expect("it has the page");
        assert_eq!((ocp.capacitor_percent, ocp.bad_user_blocks), (None, 9));
    }
}
