//! Queries of the recorded configuration, and changed copies of it.

use strake_api::v1::{CreateExportRequest, RenameArrayRequest};
use strake_dev_fabrics::Address;
use strake_engine::Drive;
use strake_units::{MemberIndex, Name};
use strake_wording::say;

use crate::drives::address::address_of;
use crate::limits::{ARRAYS_MAX, REMOTES_MAX};
use crate::names::is_called;
use crate::record::store::{
    Config, CopyRecord, DestroyedRecord, RemoteRecord, ScrubRecord, Settings, SpareRecord,
    VolumeRef,
};
use crate::remedy::not_among;
use crate::remote::paths::same_namespace;
use crate::state::running::Place;
use crate::{ArrayRecord, ControlError, ExportRecord};

/// Maximum number of destroyed arrays whose drives and exports are recorded. The latest ones are kept.
const DESTROYED_MAX: usize = 16;

impl Config {
    /// Returns the settings of an array.
    pub(crate) fn settings(&self, uuid: &str) -> Settings {
        self.record_of(uuid).map(|a| a.settings).unwrap_or_default()
    }

    /// Returns the name of an array, or its identity if it is not recorded.
    pub(crate) fn array_name(&self, uuid: &str) -> String {
        self.record_of(uuid).map_or_else(|| uuid.to_owned(), |a| a.name.clone())
    }

    /// Returns the record of an array.
    pub(crate) fn record_of(&self, uuid: &str) -> Option<&ArrayRecord> {
        self.arrays.iter().find(|a| a.uuid == uuid)
    }

    /// Returns the arrays with this name or identity; all arrays if `name` is empty.
    pub(crate) fn known_arrays(&self, name: &str) -> impl Iterator<Item = &ArrayRecord> {
        self.arrays.iter().filter(move |a| name.is_empty() || is_called(name, &a.name, &a.uuid))
    }

    /// Refuses a further array if the maximum number is reached.
    pub(crate) fn check_array_count(&self) -> Result<(), ControlError> {
        if self.arrays.len() < ARRAYS_MAX {
            return Ok(());
        }
        Err(ControlError::state(format!(
            "there are {ARRAYS_MAX} arrays, the limit of one daemon; unload or destroy one first"
        )))
    }

    /// Refuses the name of another array.
    pub(crate) fn check_name_free(&self, name: &str, uuid: &str) -> Result<(), ControlError> {
        if self.arrays.iter().all(|a| a.name != name || a.uuid == uuid) {
            return Ok(());
        }
        let what = format!("there is another array {name} now; rename that array first: ");
        let rename = RenameArrayRequest { name: name.to_owned(), ..Default::default() };
        Err(ControlError::exists(say(what).run(rename)))
    }

    /// Returns the names of the exports of an array.
    pub(crate) fn export_names(&self, uuid: &str) -> Vec<String> {
        self.exports.iter().filter(|e| e.array == uuid).map(|e| e.name.clone()).collect()
    }

    /// Returns the recorded export with this name.
    pub(crate) fn export_record(&self, name: &str) -> Result<&ExportRecord, ControlError> {
        self.exports.iter().find(|export| export.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.exports.iter().map(|e| e.name.as_str()).collect();
            let create = CreateExportRequest { array: "...".to_owned(), ..Default::default() };
            not_among(format!("there is no export {name:?}"), &known, create)
        })
    }

    /// Returns an export that only members record, if no created export has this name.
    pub(crate) fn kept_export(&self, name: &str) -> Option<ExportRecord> {
        if self.exports.iter().any(|export| export.name == name) {
            return None;
        }
        let kept = self.arrays.iter().flat_map(|array| &array.kept_exports);
        kept.into_iter().find(|export| export.name == name).cloned()
    }

    /// Returns exports that the members of an array record and that are not created here.
    pub(crate) fn kept_exports(&self, array: &str) -> Vec<ExportRecord> {
        let record = self.record_of(array);
        record.map(|a| a.kept_exports.clone()).unwrap_or_default()
    }

    /// Returns the record of the scrubs of an array.
    pub(crate) fn scrub_record(&self, uuid: &str) -> ScrubRecord {
        let record = self.record_of(uuid);
        record.map(|array| array.scrub).unwrap_or_default()
    }

    /// The copies of members of an array that were ordered.
    pub(crate) fn copies(&self, uuid: &str) -> impl Iterator<Item = &CopyRecord> {
        let record = self.record_of(uuid);
        record.into_iter().flat_map(|a| &a.copies)
    }

    /// True if the copy to `drive` in `place` is still wanted.
    pub(crate) fn is_copy_wanted(&self, place: &Place, drive: &Drive) -> bool {
        let identity = drive.device.identity();
        self.copies(&place.array).any(|c| c.slot == place.member.0 && c.identity == identity)
    }

    /// Returns the array and the slot for which a medium is reserved, unless this is `own`.
    pub(crate) fn promised(
        &self,
        identity: &str,
        own: Option<(&str, usize)>,
    ) -> Option<(String, usize)> {
        self.arrays.iter().find_map(|array| {
            let other = |c: &&CopyRecord| {
                c.identity == identity && own != Some((array.uuid.as_str(), usize::from(c.slot)))
            };
            let copy = array.copies.iter().find(other)?;
            Some((array.name.clone(), usize::from(copy.slot)))
        })
    }

    /// Returns the configuration with an additional spare.
    pub(crate) fn with_spare(&self, record: &SpareRecord) -> Config {
        let mut config = self.clone();
        config.spares.retain(|s| s.identity != record.identity);
        config.spares.push(record.clone());
        config
    }

    /// Returns the configuration with another name of an array.
    pub(crate) fn with_name(&self, uuid: &str, new: &Name) -> Config {
        let mut config = self.clone();
        if let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) {
            record.name = new.to_string();
        }
        config
    }

    /// Describes the array of a spare, or all arrays.
    pub(crate) fn spare_of(&self, uuid: &str) -> String {
        let array = self.arrays.iter().find(|array| array.uuid == uuid);
        array.map_or_else(|| "pool".to_owned(), |array| array.name.clone())
    }

    /// Describes the use of a spare for the operator.
    pub(crate) fn whose(&self, record: &SpareRecord) -> String {
        if record.array.is_empty() {
            return "every array".to_owned();
        }
        format!("array {}", self.array_name(&record.array))
    }

    /// Returns `config` without the export of `record`, and with its reservations marked as ended, so that both changes
    /// take effect atomically.
    pub(crate) fn without_export(&self, record: &ExportRecord) -> Config {
        let mut config = self.clone();
        config.exports.retain(|export| export.name != record.name);
        let subject = record.subject();
        if record.nvme.is_some() && !config.ended_reservations.contains(&subject) {
            config.ended_reservations.push(subject);
        }
        config
    }

    /// Returns the export of an array or a volume, by its identity, whose hosts can make reservations.
    pub(crate) fn reserving_export(&self, subject: &str) -> Option<&ExportRecord> {
        self.exports.iter().find(|export| export.nvme.is_some() && export.subject() == subject)
    }

    /// Returns the names of the exports of a volume.
    pub(crate) fn volume_exports(&self, volume: &VolumeRef) -> Vec<String> {
        let of_it = self.exports.iter().filter(|e| e.volume.as_ref() == Some(volume));
        of_it.map(|export| export.name.clone()).collect()
    }

    /// Returns the names of the exports of all volumes of a pool.
    pub(crate) fn pool_exports(&self, pool: &str) -> Vec<String> {
        let is_of_it = |e: &&ExportRecord| e.volume.as_ref().is_some_and(|v| v.pool == pool);
        self.exports.iter().filter(is_of_it).map(|export| export.name.clone()).collect()
    }

    /// Returns the record of a destroyed array.
    pub(crate) fn destroyed_record(&self, uuid: &str) -> Option<DestroyedRecord> {
        self.destroyed.iter().rfind(|d| d.uuid == uuid).cloned()
    }

    /// Removes the copy of a member. Returns true if there was one.
    pub(crate) fn drop_copy(&mut self, uuid: &str, member: MemberIndex) -> bool {
        let Some(record) = self.arrays.iter_mut().find(|a| a.uuid == uuid) else { return false };
        let before = record.copies.len();
        record.copies.retain(|copy| copy.slot != member.0);
        record.copies.len() != before
    }

    /// Returns the configuration with the record of an array that is about to be destroyed.
    pub(crate) fn remember_destroyed(&self, uuid: &str) -> Config {
        let mut config = self.clone();
        let Some(record) = config.arrays.iter().find(|a| a.uuid == uuid) else { return config };
        let destroyed = DestroyedRecord {
            uuid: record.uuid.clone(),
            name: record.name.clone(),
            drives: record.drives.clone(),
            settings: record.settings,
            exports: config.exports.iter().filter(|e| e.array == uuid).cloned().collect(),
        };
        config.destroyed.retain(|d| d.uuid != uuid);
        config.destroyed.push(destroyed);
        let old = config.destroyed.len().saturating_sub(DESTROYED_MAX);
        config.destroyed.drain(..old);
        config
    }

    /// Returns the addresses of drives of a subsystem. The NQN identifies the subsystem, regardless of the host in the
    /// address.
    pub(crate) fn remotes_of(&self, nqn: &str) -> Vec<String> {
        let of_it = |address: &&String| address.parse().is_ok_and(|a: Address| a.nqn == nqn);
        self.remotes.iter().map(|record| &record.address).filter(of_it).cloned().collect()
    }

    /// Returns the name of the drive at `path`: `path` itself, unless it is recorded as a further path to a drive.
    pub(crate) fn name_of(&self, path: &str) -> String {
        let leads = |record: &&RemoteRecord| record.paths.iter().any(|other| other == path);
        let record = self.remotes.iter().find(leads);
        record.map_or_else(|| path.to_owned(), |record| record.address.clone())
    }

    /// Returns the record of a drive with another path that is the same namespace.
    pub(crate) fn drive_of(&self, path: &str) -> Result<Option<RemoteRecord>, ControlError> {
        let address = address_of(path)?;
        let leads = |record: &&RemoteRecord| {
            record.address != path
                && address_of(&record.address).is_ok_and(|name| same_namespace(&name, &address))
        };
        if self.remotes.iter().any(|record| record.address == path) {
            return Ok(None);
        }
        Ok(self.remotes.iter().find(leads).cloned())
    }

    /// True if a remote drive with this address is recorded.
    pub(crate) fn is_recorded(&self, address: &str) -> bool {
        self.remotes.iter().any(|record| record.address == address)
    }

    /// Refuses a further record if the maximum number is reached.
    pub(crate) fn check_room(&self) -> Result<(), ControlError> {
        if self.remotes.len() >= REMOTES_MAX {
            return Err(ControlError::state(format!(
                "{REMOTES_MAX} remote drives are connected, the limit of one daemon"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::record::store::{
        ArrayRecord, Config, CopyRecord, ExportRecord, ScrubRecord, Settings, SubsystemRecord,
    };
    use strake_units::MemberIndex;

    fn config() -> Config {
        let copy = CopyRecord {
            slot: 2,
            member: "m".into(),
            path: "/dev/new".into(),
            identity: "new".into(),
        };
        let array = ArrayRecord {
            uuid: "u".into(),
            name: "tank".into(),
            drives: Vec::new(),
            settings: Settings::default(),
            scrub: ScrubRecord::default(),
            kept_exports: vec![export("kept", None)],
            kept_hosts: Vec::new(),
            copies: vec![copy],
            silent: Vec::new(),
            left_alone: Vec::new(),
        };
        let nvme = SubsystemRecord {
            nqn: "nqn".into(),
            hosts: Vec::new(),
            namespace: 1,
            secure: false,
            insecure: false,
        };
        let exports = vec![export("nbd", None), export("nvme", Some(nvme))];
        Config { arrays: vec![array], exports, ..Config::default() }
    }

    fn export(name: &str, nvme: Option<SubsystemRecord>) -> ExportRecord {
        ExportRecord {
            name: name.to_owned(),
            array: "u".to_owned(),
            volume: None,
            listen: "unix:/s".to_owned(),
            read_only: false,
            nvme,
        }
    }

    #[test]
    fn a_drive_is_promised_to_others_until_its_copy_is_forgotten() {
        let mut config = config();
        let promised = Some(("tank".to_owned(), 2));
        assert_eq!(config.promised("new", None), promised);
        assert_eq!(config.promised("new", Some(("u", 1))), promised);
        assert_eq!(config.promised("new", Some(("u", 2))), None, "it is what it was promised to");
        assert!(!config.drop_copy("u", MemberIndex(1)));
        assert!(config.drop_copy("u", MemberIndex(2)));
        assert_eq!(config.promised("new", None), None);
    }

    #[test]
    fn an_export_that_goes_has_its_reservations_ended_if_it_can_have_some() {
        let config = config();
        let without = config.without_export(&config.exports[0]);
        assert_eq!(without.export_names("u"), ["nvme"]);
        assert!(without.ended_reservations.is_empty());
        let without = config.without_export(&config.exports[1]);
        assert_eq!(without.export_names("u"), ["nbd"]);
        assert_eq!(without.ended_reservations, ["u"]);
    }

    #[test]
    fn what_members_record_is_kept_beside_what_is_offered() {
        let config = config();
        assert_eq!(config.kept_export("kept").map(|export| export.array), Some("u".to_owned()));
        assert_eq!(config.kept_export("nbd"), None, "it is offered");
        assert_eq!(config.kept_exports("u").len(), 1);
        assert!(config.kept_exports("other").is_empty());
        let known = config.export_record("nothing").expect_err("there is none");
        assert!(known.what.contains("existing names: nbd, nvme"), "{known}");
    }
}
