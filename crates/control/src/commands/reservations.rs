//! Reservations of exports that a command ends.

use strake_api::v1::{ExportChange, ReleaseExportRequest};
use strake_export_nvmet::Ledger;

use crate::commands::exports::{export_change, offer_recorded_exports};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;

impl Manager {
    /// Ends reservation and registrations of an export whose hosts will not, because they are gone for good. An export
    /// that is not offered because its file cannot be read is offered then; the file is put aside.
    ///
    /// # Errors
    /// When there is no such export, it is not one over NVMe/TCP, or that cannot be recorded.
    pub fn release_export(
        &mut self,
        request: &ReleaseExportRequest,
    ) -> Result<ExportChange, ControlError> {
        self.check_open()?;
        let record = self.records.export_record(&request.name)?.clone();
        if record.nvme.is_none() {
            let what =
                format!("export {} is offered over NBD, which has no reservations", record.name);
            return Err(ControlError::usage(what));
        }
        let ledger = self.records.ledger_of(&record);
        let server = self.exports.at(&record.listen);
        let served = server.and_then(|server| server.reservations(&record));
        let is_changed = match (server, served, ledger.read()) {
            (Some(server), Some(seen), _) if seen.persists || !seen.registrants.is_empty() => {
                server.clear_reservations(&record)?;
                true
            }
            (_, Some(_), _) | (_, None, Ok(None)) => false,
            (_, None, Ok(Some(_))) => {
                ledger.write(None).map_err(ControlError::device)?;
                true
            }
            (_, None, Err(_)) => {
                ledger.put_aside().map_err(|e| ControlError::device(e.to_string()))?;
                offer_recorded_exports(self, &record.array);
                true
            }
        };
        let result = if is_changed { "changed" } else { "unchanged" };
        if is_changed {
            let what =
                format!("the reservations of export {} were released by a command", record.name);
            let object = format!("export/{}", record.name);
            self.record(Note::new(EventKind::ReservationsReleased, object, what));
        }
        Ok(export_change(self, result, &record))
    }
}
