//! Drives that are maintained.

use super::check;
use crate::tables::{drive, firmware, telemetry};
use strake_api::v1::{Drive, DriveChange, DriveMaintenance, Firmware, FirmwareSlot, TelemetryPart};

/// A drive with an operation in this state.
fn busy(state: &str, percent: Option<u32>, note: &str) -> Drive {
    Drive {
        path: "/dev/nvme3n1".into(),
        state: if state == "running" { "busy" } else { "failed" }.into(),
        size_bytes: 1 << 40,
        block_bytes: 4096,
        serial: "S123".into(),
        maintenance: Some(DriveMaintenance {
            operation: "sanitize".into(),
            state: state.into(),
            percent,
            note: note.into(),
        }),
        ..Drive::default()
    }
}

#[test]
fn operations_of_drives() {
    let running = busy("running", Some(25), "");
    check("drive-sanitizing", |width| drive::show(&running, width));
    let why = "the drive reports a failure of the action block; sanitize the drive again";
    let failed = busy("failed", None, why);
    check("drive-sanitize-failed", |width| drive::show(&failed, width));
    let planned = DriveChange {
        result: "planned".into(),
        drive: Some(running),
        plan: vec!["erase all data of /dev/nvme3n1 with the sanitize action block".into()],
        warnings: vec!["the image runs after a reset: a power cycle of the drive".into()],
    };
    check("drive-sanitize-planned", |width| drive::change(&planned, width));
}

#[test]
fn firmware_slots() {
    let slot = |number, revision: &str, running, next| FirmwareSlot {
        number,
        revision: revision.into(),
        running,
        next,
        read_only: number == 1,
    };
    let slots = vec![
        slot(1, "GDC5602Q", true, false),
        slot(2, "GDC5902Q", false, true),
        slot(3, "", false, false),
    ];
    let shown = Firmware {
        path: "/dev/nvme3n1".into(),
        model: "A model".into(),
        serial: "S123".into(),
        slots,
        activates_now: true,
    };
    check("drive-firmware", |width| firmware::show(&shown, width));
}

#[test]
fn saved_telemetry() {
    let first = TelemetryPart {
        path: "/dev/nvme3n1".into(),
        model: "A model".into(),
        serial: "S123".into(),
        firmware: "1.0".into(),
        area: 3,
        generation: 7,
        total_bytes: 701 * 512,
        data: Vec::new(),
    };
    check("drive-telemetry", |width| telemetry::saved(&first, "state.bin", width));
}
