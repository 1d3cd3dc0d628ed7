//! The NVMe/TCP queues and their counters: the queues of the hosts of an export, and the queues of remote drives.

use strake_api::v1::{Controller as ControllerMessage, Queue};
use strake_dev_fabrics::{self as fabrics, FabricsDevice};
use strake_export_nvmet::{ControllerStats, Digests, QueueCounts, QueueStats, Use};
use strake_reactor::monotonic;
use strake_units::Uuid;

/// The queues of a remote drive.
pub(crate) fn queues_of(drive: &FabricsDevice) -> Vec<Queue> {
    drive.queues().iter().map(drive_queue).collect()
}

fn counted(counts: &QueueCounts) -> Queue {
    Queue {
        reads: counts.reads,
        writes: counts.writes,
        others: counts.others,
        received_bytes: counts.bytes_in,
        sent_bytes: counts.bytes_out,
        errors: counts.failures,
        ..Queue::default()
    }
}

fn drive_queue(stats: &fabrics::QueueStats) -> Queue {
    let link = stats.link;
    let digests = link.map(|link| link.digests).unwrap_or_default();
    Queue {
        number: link.map_or(0, |link| link.number.into()),
        core: u32::from(stats.core.0),
        tls: link.is_some_and(|link| link.is_secure),
        header_digest: digests.header == Use::On,
        data_digest: digests.data == Use::On,
        age_us: link.map_or(0, |link| monotonic().since(link.since).0 / 1000),
        association: link.map_or(0, |link| link.association),
        connects: stats.connects,
        retries: stats.retries,
        held: stats.held,
        ..counted(&stats.counts)
    }
}

pub(crate) fn controller(stats: ControllerStats) -> ControllerMessage {
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
        ..counted(&stats.counts)
    }
}
