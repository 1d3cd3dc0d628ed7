//! Reservations of exports that a command ends.

use strake_api::v1::{ExportChange, ReleaseExportRequest};
use strake_export_nbd::Rights;
use strake_export_nvmet::Ledger;
use strake_wording::{command, say};

use crate::commands::exports::{export_change, offer_or_report};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::record::store::ExportRecord;

impl Manager {
    /// Ends reservation and registrations of an export whose hosts will not, because they are gone for good. An export
    /// that is not offered because its file cannot be read is offered then; the file is put aside. The name of an NBD
    /// export stands for its array, if that has no export over NVMe/TCP.
    ///
    /// # Errors
    /// When there is no such export, its array has another one with reservations, or that cannot be recorded.
    pub fn release_export(
        &mut self,
        request: &ReleaseExportRequest,
    ) -> Result<ExportChange, ControlError> {
        self.check_open()?;
        let record = self.records.export_record(&request.name)?.clone();
        if let Some(reserving) = self.records.reserving_export(&record.subject())
            && record.nvme.is_none()
        {
            let ExportRecord { name, .. } = &record;
            let what = format!(
                "export {name} is offered over NBD, which has no reservations; to release the reservations of its \
                    array: "
            );
            let release = ReleaseExportRequest { name: reserving.name.clone() };
            return Err(ControlError::usage(say(what).run(release)));
        }
        let ledger = self.records.ledger_of(&record);
        let server = self.exports.at(&record.listen);
        let served = server.and_then(|server| server.reservations(&record));
        let is_served = served.is_some();
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
                if record.nvme.is_some() {
                    offer_or_report(self, &record);
                }
                true
            }
        };
        if !is_served {
            self.exports.reread_rights(&record.subject(), &self.records);
        }
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

/// Why clients of an export that cannot register are refused; `None` if they are not.
pub(crate) fn refusal(manager: &Manager, record: &ExportRecord) -> Option<String> {
    if record.nvme.is_some() {
        return None;
    }
    let refused = match manager.exports.rights(&record.subject()) {
        Rights::All => return None,
        Rights::Read => "writes are",
        Rights::Nothing => "reads and writes are",
    };
    let reserving = manager.records.reserving_export(&record.subject()).unwrap_or(record);
    let is_served = manager
        .exports
        .at(&reserving.listen)
        .is_some_and(|server| server.reservations(reserving).is_some());
    let why = match manager.records.ledger_of(reserving).read() {
        Err(why) if !is_served => why,
        _ => {
            let release = command(&ReleaseExportRequest { name: reserving.name.clone() });
            format!("an NVMe/TCP host has reserved the array; if it will not return: {release}")
        }
    };
    Some(format!("{refused} refused: {why}"))
}
