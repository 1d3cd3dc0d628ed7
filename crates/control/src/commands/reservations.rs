//! Reservations of exports: recorded, reported and ended.

use std::collections::BTreeMap;

use strake_api::v1::{ExportChange, ReleaseExportRequest};
use strake_export_nvmet::Ledger;

use crate::commands::exports::{export_change, offer_recorded_exports, unrecorded_why};
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
        let server = self.servers.get(&record.listen);
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
                format!("the reservations of export {} were ended by a command", record.name);
            let object = format!("export/{}", record.name);
            self.record(Note::new(EventKind::ReservationsReleased, object, what));
        }
        Ok(export_change(self, result, &record))
    }
}

/// Tells of changes of reservations that could not be recorded, of each export once until one could be.
pub(crate) fn tell_unrecorded(manager: &mut Manager) {
    let known = manager.records.exports.iter();
    let now: BTreeMap<String, String> = known
        .filter_map(|record| Some((record.name.clone(), unrecorded_why(manager, record)?)))
        .collect();
    for (name, why) in now.iter().filter(|(name, _)| !manager.reported_unrecorded.contains(*name)) {
        let what = format!("hosts cannot change the reservations of export {name}");
        let note = Note::new(EventKind::ReservationsUnrecorded, format!("export/{name}"), what);
        let next = "have the state directory take files again; hosts can try again at any time";
        manager.record(note.cause(why.clone()).next(next));
    }
    manager.reported_unrecorded = now.into_keys().collect();
}
