//! Reservations of NVMe/TCP exports: the files in which they survive a restart, and their presentation to operators.
//!
//! Each array has its own file, next to `state.json`. A cluster failover must not wait for a command that holds the
//! manager, and a damaged file affects only one export.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strake_api::v1::{
    Registrant as RegistrantMessage, ReleaseExportRequest, Reservation as ReservationMessage,
};
use strake_export_nbd::SharedRights;
use strake_export_nvmet::{Held, Ledger, Registrant, ReservationType, Reservations};
use strake_units::Uuid;
use strake_wording::command;

use crate::record::files::{StateFolder, open_to_read};
use crate::record::store::ExportRecord;

/// Version of the files written here.
const VERSION: u32 = 1;

/// Maximum size of a file. It exceeds the size for the maximum number of registrants.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Folder of the files in the state directory.
const FOLDER: &str = "reservations";

/// The names of the types in records and messages, in the order of their numbers.
const TYPES: [&str; 6] = [
    "write-exclusive",
    "exclusive-access",
    "write-exclusive-registrants",
    "exclusive-access-registrants",
    "write-exclusive-all",
    "exclusive-access-all",
];

fn word_of(kind: ReservationType) -> &'static str {
    TYPES[kind as usize - 1]
}

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    version: u32,
    reservations: Recorded,
    /// CRC-32C of the fields above in their written form. A corrupted key could admit a wrong host.
    crc32c: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// Identity of the array.
    array: String,
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<RecordedHold>,
    registrants: Vec<RecordedRegistrant>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedHold {
    kind: String,
    /// The holder; absent if all registrants hold the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRegistrant {
    host: String,
    nqn: String,
    key: u64,
}

impl Recorded {
    fn of(array: &str, from: &Reservations) -> Self {
        let held = from.held.map(|held| RecordedHold {
            kind: word_of(held.kind).to_owned(),
            holder: held.holder.map(|host| Uuid(host).to_string()),
        });
        let registrants = from.registrants.iter().map(|known| RecordedRegistrant {
            host: Uuid(known.host).to_string(),
            nqn: known.name.clone(),
            key: known.key,
        });
        let (generation, registrants) = (from.generation, registrants.collect());
        Self { array: array.to_owned(), generation, held, registrants }
    }

    fn read(self) -> Result<Reservations, String> {
        let host = |text: &str| {
            text.parse().map(|Uuid(host)| host).map_err(|_| format!("{text:?} is no host"))
        };
        let held = self.held.map(|held| {
            let kind = TYPES.iter().position(|known| *known == held.kind);
            let kind = kind.and_then(|at| ReservationType::parse(at as u8 + 1));
            let kind = kind.ok_or_else(|| format!("{:?} is no type", held.kind))?;
            let holder = held.holder.as_deref().map(host).transpose()?;
            Ok::<_, String>(Held { kind, holder })
        });
        let registrants = self.registrants.into_iter().map(|known| {
            Ok::<_, String>(Registrant {
                host: host(&known.host)?,
                name: known.nqn,
                key: known.key,
            })
        });
        Ok(Reservations {
            generation: self.generation,
            persists: true,
            held: held.transpose()?,
            registrants: registrants.collect::<Result<_, _>>()?,
        })
    }

    fn crc32c(&self) -> Result<u32, String> {
        let text = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        Ok(crc32c::crc32c(&text))
    }
}

/// The file of one array.
#[derive(Debug)]
pub(crate) struct ReservationFile {
    state: StateFolder,
    /// Identity of the array.
    array: String,
    /// Name of the export, for remedies.
    export: String,
    /// Access rights of the clients of the array's other exports.
    rights: Arc<SharedRights>,
}

impl ReservationFile {
    pub(crate) fn new(state: &StateFolder, record: &ExportRecord) -> Self {
        let (array, export) = (record.subject(), record.name.clone());
        Self { state: state.clone(), array, export, rights: Arc::default() }
    }

    /// Sets `rights`, through which the reservations also apply to the clients of the array's other exports.
    pub(crate) fn obeyed(self, rights: Arc<SharedRights>) -> Self {
        Self { rights, ..self }
    }

    /// Returns the file of an array without an export.
    pub(crate) fn of_array(state: &StateFolder, array: &str) -> Self {
        let (array, export) = (array.to_owned(), "NAME".to_owned());
        Self { state: state.clone(), array, export, rights: Arc::default() }
    }

    fn folder(&self) -> StateFolder {
        self.state.folder(FOLDER)
    }

    fn name(&self) -> String {
        format!("{}.json", self.array)
    }

    fn path(&self) -> PathBuf {
        self.folder().file(&self.name())
    }

    fn unreadable(&self, why: &str) -> String {
        format!(
            "{} cannot be read ({why}), so the hosts to exclude are unknown; restore the file from a copy. Otherwise, \
                make sure that only permitted hosts write, and continue without reservations: {} (or move the file \
                away, if no such export exists yet)",
            self.path().display(),
            command(&ReleaseExportRequest { name: self.export.clone() })
        )
    }

    fn parse(&self, text: &[u8]) -> Result<Reservations, String> {
        let page: Page = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if page.version != VERSION {
            let Page { version, .. } = page;
            return Err(format!("it has version {version}, this program writes version {VERSION}"));
        }
        if page.reservations.crc32c()? != page.crc32c {
            return Err("its checksum is wrong".to_owned());
        }
        if page.reservations.array != self.array {
            return Err(format!("it belongs to array {}", page.reservations.array));
        }
        let reservations = page.reservations.read()?;
        reservations.check()?;
        Ok(reservations)
    }

    fn put(&self, reservations: &Reservations) -> io::Result<()> {
        let recorded = Recorded::of(&self.array, reservations);
        let crc32c = recorded.crc32c().map_err(io::Error::other)?;
        let page = Page { version: VERSION, reservations: recorded, crc32c };
        let text = serde_json::to_vec_pretty(&page)?;
        self.folder().make()?;
        // The synchronization includes existing folders, because the process that created the folder may have ended
        // before.
        self.state.sync()?;
        self.replace(Some(&text))
    }

    /// Replaces the content of the file, or removes the file. If the change cannot be made durable, restores the
    /// earlier content: hosts are informed that nothing has changed, so the next start must not find a change.
    fn replace(&self, text: Option<&[u8]>) -> io::Result<()> {
        let mut before = None;
        match open_to_read(&self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => _ = opened?.read_to_end(before.insert(Vec::new()))?,
        }
        self.place(text)?;
        self.folder().sync().map_err(|error| {
            let is_back = self.place(before.as_deref()).and_then(|()| self.folder().sync());
            match is_back {
                Ok(()) => error,
                Err(worse) => io::Error::other(format!(
                    "{error}; its former content was not restored ({worse}), so the content at the next start is \
                     unknown"
                )),
            }
        })
    }

    /// Replaces or removes the file without a synchronization of the folder.
    fn place(&self, text: Option<&[u8]>) -> io::Result<()> {
        match text {
            Some(text) => self.folder().prepare(&self.name(), text)?.place(),
            None => self.folder().unlink(&self.name()),
        }
    }

    /// Removes the file. Also makes an earlier removal durable.
    fn remove(&self) -> io::Result<()> {
        if self.folder().path().try_exists()? { self.replace(None) } else { Ok(()) }
    }

    /// Renames an unreadable file, so that the operator can inspect it.
    pub(crate) fn put_aside(&self) -> io::Result<()> {
        self.folder().rename(&self.name(), &format!("{}.json.damaged", self.array))
    }
}

impl Ledger for ReservationFile {
    fn read(&self) -> Result<Option<Reservations>, String> {
        let text = self.folder().read(&self.name(), FILE_BYTES_MAX);
        let Some(text) = text.map_err(|e| self.unreadable(&e.to_string()))? else {
            return Ok(None);
        };
        self.parse(&text).map(Some).map_err(|why| self.unreadable(&why))
    }

    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String> {
        let written = match reservations {
            Some(reservations) => self.put(reservations),
            None => self.remove(),
        };
        written.map_err(|error| format!("{}: {error}", self.path().display()))
    }

    fn enforced(&self, reservations: &Reservations) {
        self.rights.set(reservations.rights_of_others());
    }
}

/// Returns the message about reservations; `None` if no host is registered.
pub(crate) fn message(reservations: &Reservations) -> Option<ReservationMessage> {
    if reservations.registrants.is_empty() {
        return None;
    }
    let registrants = reservations.registrants.iter().map(|known| RegistrantMessage {
        nqn: known.name.clone(),
        host_id: Uuid(known.host).to_string(),
        key: format!("{:#x}", known.key),
        holds: reservations.holds(&known.host),
    });
    Some(ReservationMessage {
        r#type: reservations.held.map_or("", |held| word_of(held.kind)).to_owned(),
        persistent: reservations.persists,
        generation: reservations.generation,
        registrants: registrants.collect(),
    })
}

#[cfg(test)]
mod tests;
