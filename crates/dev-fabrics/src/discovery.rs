//! Queries of a discovery service (Base, sections 3.1.2.3 and 5.16.1.23).
//!
//! The log is read in pieces, and may change between two reads. The generation is therefore read again at the end; if
//! it has changed, the log is read from the start. Referrals in a log are returned and not followed, because discovery
//! services usually refer to each other.

use crate::address::{HostName, Service};
use crate::dialog::{Dialog, Load};
use crate::error::{Breach, Reason};
use crate::limits::{
    ADMIN_ENTRIES, DISCOVERY_TIME_MAX, DISCOVERY_TRIES_MAX, OFFERS_MAX, SETUP_TIME_MAX,
};
use crate::session::{accepted, connect_of, enable, join, leave, log_page};
use crate::stream::Until;
use strake_block::DeviceError;
use strake_nvme_tcp::Digests;
use strake_nvme_wire::discovered::{FORMAT, Header};
use strake_nvme_wire::fabrics::ANY_CONTROLLER;
use strake_nvme_wire::log::{DISCOVERY_BYTES, page};

pub use strake_nvme_wire::discovered::{Channel, Entry, EntryError, Kind, Transport};

/// Entries per read: 4 KiB, which every controller supports.
const PIECE: usize = 4;

type Part = [u8; DISCOVERY_BYTES];

/// The entries in their order; an unusable entry is replaced by the reason.
pub type Offers = Vec<Result<Entry, EntryError>>;

/// Reads the subsystems that are offered to `host`. Waits for the service, for seconds if it does not answer.
///
/// Returns an error if the service is unreachable, rejects the host, violates the protocol, or changes its log during
/// every read.
pub fn discover(
    service: &Service,
    host: &HostName,
    digests: Digests,
) -> Result<Offers, DeviceError> {
    ask(service, host, digests)
        .map_err(|reason| reason.of_device(service, &format!("; we connect as {}", host.nqn)))
}

fn ask(service: &Service, host: &HostName, digests: Digests) -> Result<Offers, Reason> {
    let address = service.subsystem();
    let mut dialog = Dialog::begin(&address, host, digests, Until::within(SETUP_TIME_MAX))?;
    let connect = connect_of(0, ADMIN_ENTRIES.into(), 0);
    join(&mut dialog, &address, host, (connect, ANY_CONTROLLER))?;
    enable(&mut dialog)?;
    dialog.finish_by(Until::within(DISCOVERY_TIME_MAX));
    let parts = Log { dialog: &mut dialog }.read()?;
    leave(dialog);
    Ok(parts.iter().map(Entry::parse).collect())
}

/// The log of a ready controller.
struct Log<'a> {
    dialog: &'a mut Dialog,
}

impl Log<'_> {
    /// All entries of one generation.
    fn read(&mut self) -> Result<Vec<Part>, Reason> {
        let mut header = self.header()?;
        for _ in 0..DISCOVERY_TRIES_MAX {
            let parts = self.entries(header.records);
            // The target rejects a read behind the end of a log that has become shorter.
            if !matches!(parts, Ok(_) | Err(Reason::Refused(_))) {
                return parts;
            }
            let after = self.header()?;
            if after.generation == header.generation {
                return parts;
            }
            header = after;
        }
        Err(Reason::Restless)
    }

    fn header(&mut self) -> Result<Header, Reason> {
        let mut part = [[0; DISCOVERY_BYTES]];
        self.fill(0, &mut part)?;
        let header = Header::parse(&part[0]);
        if header.format != FORMAT || header.records > OFFERS_MAX {
            return Err(Breach::Log.into());
        }
        Ok(header)
    }

    fn entries(&mut self, count: u64) -> Result<Vec<Part>, Reason> {
        let mut parts = vec![[0; DISCOVERY_BYTES]; count as usize];
        for (number, piece) in parts.chunks_mut(PIECE).enumerate() {
            // The header has the length of an entry.
            self.fill(1 + number * PIECE, piece)?;
        }
        Ok(parts)
    }

    /// Reads consecutive `parts` of the log, starting at part `first`.
    fn fill(&mut self, first: usize, parts: &mut [Part]) -> Result<(), Reason> {
        let into = parts.as_flattened_mut();
        let command = log_page(page::DISCOVERY, (first * DISCOVERY_BYTES) as u64, into.len());
        accepted(self.dialog.run(command, Load::Received(into), SETUP_TIME_MAX)?).map(drop)
    }
}
