//! The locate LED of a drive's slot.

use strake_api::v1::{DriveChange, LocateDriveRequest};

use crate::commands::scan::drive_path;
use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};

impl Control {
    /// Blinks the locate LED of a drive's slot, or stops that.
    ///
    /// # Errors
    /// When there is no such drive, it has no locate LED that the kernel can switch (where it is to be found is said
    /// instead), or the kernel refuses.
    pub fn locate_drive(&self, request: &LocateDriveRequest) -> Result<DriveChange, ControlError> {
        let (path, machine) =
            self.run(|m| Ok((drive_path(m, &request.path)?, m.drives.machine().clone())))?;
        let named = || machine.drives().into_iter().find(|drive| drive.path == path);
        let Some(drive) = machine.at_node(&path).or_else(named) else {
            return Err(ControlError::state(format!(
                "{path} is not a device of this host, and no slot with an LED is known for it"
            )));
        };
        let known = |what: &str, value: &str| {
            if value.is_empty() { String::new() } else { format!("; {what} {value}") }
        };
        let Some(locate_led) = machine.locate_led(&drive) else {
            return Err(ControlError::state(format!(
                "{path} has no light that the kernel can switch (no enclosure, no PCIe enclosure management, no \
                 hot-plug slot with an attention light); find it by its printed identification{}{}{}",
                known("slot", &drive.slot),
                known("model", &drive.model),
                known("serial number", &drive.serial),
            )));
        };
        locate_led.switch(!request.off).map_err(|error| {
            ControlError::new(
                ControlErrorKind::Device,
                format!(
                    "the light of {path} ({}) cannot be switched: {error}; it is in slot {}",
                    locate_led.path().display(),
                    drive.slot
                ),
            )
        })?;
        let (verb, slot) = (if request.off { "stop blinking" } else { "blink" }, &drive.slot);
        Ok(DriveChange {
            result: "changed".into(),
            plan: vec![format!("{verb} the light of {path}, slot {slot}")],
            drive: Some(self.drive(&request.path)?),
            warnings: Vec::new(),
        })
    }
}
