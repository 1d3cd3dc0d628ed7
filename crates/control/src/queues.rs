//! The hosts that are connected to an export over NVMe/TCP, and what each of their queues has done.

use strake_api::v1::{Controller as ControllerMessage, Export as ExportMessage, Queue};
use strake_export_nvmet::{ControllerStats, Digests, QueueStats, Use};
use strake_units::Uuid;

use crate::error::ControlError;
use crate::manager::Manager;

impl Manager {
    /// An export with its hosts.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn export(&self, name: &str) -> Result<ExportMessage, ControlError> {
        let record = self.export_record(name)?;
        let mut message = self.export_message(record);
        if let Some(server) = self.servers.get(&record.listen) {
            message.controllers = server.controllers(record).into_iter().map(controller).collect();
        }
        Ok(message)
    }
}

fn controller(stats: ControllerStats) -> ControllerMessage {
    ControllerMessage {
        id: stats.id.into(),
        nqn: stats.host,
        host_id: Uuid(stats.host_id).to_string(),
        keep_alive_ms: stats.keep_alive_ms,
        queues: stats.queues.iter().map(queue).collect(),
    }
}

fn queue(stats: &QueueStats) -> Queue {
    let facts = stats.facts;
    let Digests { header, data } = facts.digests;
    Queue {
        number: facts.number.into(),
        address: facts.from.map(|at| at.to_string()).unwrap_or_default(),
        core: u32::from(facts.core.0),
        tls: facts.is_secure,
        header_digest: header == Use::On,
        data_digest: data == Use::On,
        age_us: stats.age.as_micros() as u64,
        reads: stats.reads,
        writes: stats.writes,
        others: stats.others,
        received_bytes: stats.bytes_in,
        sent_bytes: stats.bytes_out,
        errors: stats.failures,
    }
}
