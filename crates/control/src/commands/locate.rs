//! The locate LED of a drive's slot.

use strake_api::v1::{DriveChange, LocateDriveRequest};
use strake_dev_uring::Pattern;

use crate::commands::scan::drive_path;
use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};
use crate::upkeep::lights::{slot_at, switch_lights};

impl Control {
    /// Blinks the locate LED of a drive's slot, or stops the blinking.
    ///
    /// # Errors
    /// If there is no such drive, it has no controllable locate LED (the error then describes its location), or the
    /// kernel refuses or does not answer in time.
    pub fn locate_drive(&self, request: &LocateDriveRequest) -> Result<DriveChange, ControlError> {
        let (path, machine) =
            self.run(|m| Ok((drive_path(m, &request.path)?, m.drives.machine().clone())))?;
        let Some(slot) = slot_at(&machine, &path) else {
            return Err(ControlError::state(format!(
                "{path} is not a device of this host, and no slot with an LED is known for this path"
            )));
        };
        let Some(light) = slot.light else {
            let drive = self.drive(&request.path)?;
            let known = |what: &str, value: &str| {
                if value.is_empty() { String::new() } else { format!("; {what} {value}") }
            };
            return Err(ControlError::state(format!(
                "{path} has no LED that can be switched (no enclosure, no PCIe enclosure management, no hot-plug slot \
                    with an attention indicator); find the drive by its printed identification{}{}{}",
                known("slot", &slot.name),
                known("model", &drive.model),
                known("serial number", &drive.serial),
            )));
        };
        self.with(|m| m.lights.locate(&light, !request.off))?;
        switch_lights(self)?;
        let shown = self.with(|m| m.lights.shown())?;
        let why = match shown.of(&light) {
            (Pattern::Locate, _) if !request.off => "",
            (_, "") if !request.off => "the LED is no longer present",
            (_, why) => why,
        };
        if !why.is_empty() && !request.off {
            self.with(|m| m.lights.locate(&light, false))?;
        }
        if !why.is_empty() {
            return Err(ControlError::new(
                ControlErrorKind::Device,
                format!(
                    "the LED of {path} ({}) cannot be switched: {why}; the drive is in slot {}",
                    light.name(),
                    slot.name
                ),
            ));
        }
        let verb = if request.off { "stop blinking" } else { "blink" };
        Ok(DriveChange {
            result: "changed".into(),
            plan: vec![format!("{verb} the LED of {path}, slot {}", slot.name)],
            drive: Some(self.drive(&request.path)?),
            warnings: Vec::new(),
        })
    }
}
