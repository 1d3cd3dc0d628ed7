//! Queues of NVMe/TCP.

use super::grid::{Column, Grid};
use super::job::time;
use super::size;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use strake_api::v1::Queue;

/// What each of a drive has done, one a line.
pub(super) fn drive_queues(queues: &[Queue], width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Number("queue"),
        Column::Number("age"),
        Column::Number("reads"),
        Column::Number("writes"),
        Column::Number("others"),
        Column::Number("in"),
        Column::Number("out"),
        Column::Number("errors"),
        Column::Number("retries"),
        Column::Number("held"),
    ]);
    for queue in queues {
        let is_connected = queue.association > 0;
        let of_link = |text: String| if is_connected { text } else { String::new() };
        grid.row([
            of_link(queue.number.to_string()),
            of_link(time(queue.age_us / 1_000_000)),
            queue.reads.to_string(),
            queue.writes.to_string(),
            queue.others.to_string(),
            size(queue.received_bytes),
            size(queue.sent_bytes),
            queue.errors.to_string(),
            queue.retries.to_string(),
            queue.held.to_string(),
        ]);
    }
    grid.render(width)
}

/// What each of a host has done, one a line.
pub(super) fn queues(queues: &[Queue], width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Number("queue"),
        Column::Number("age"),
        Column::Number("reads"),
        Column::Number("writes"),
        Column::Number("others"),
        Column::Number("received"),
        Column::Number("sent"),
        Column::Number("errors"),
    ]);
    for queue in queues {
        grid.row([
            if queue.number == 0 { "admin".to_owned() } else { queue.number.to_string() },
            time(queue.age_us / 1_000_000),
            queue.reads.to_string(),
            queue.writes.to_string(),
            queue.others.to_string(),
            size(queue.received_bytes),
            size(queue.sent_bytes),
            queue.errors.to_string(),
        ]);
    }
    grid.render(width)
}

/// The machines on the other side: one, unless something is between.
pub(super) fn sources(queues: &[Queue]) -> String {
    let machine = |queue: &Queue| match queue.address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => "an unknown address".to_owned(),
    };
    distinct(queues.iter().map(machine))
}

/// How what goes over them is protected: the same for all, unless that was changed meanwhile.
pub(super) fn securities(queues: &[Queue]) -> String {
    let security = |queue: &Queue| {
        let way = if queue.tls { "TLS" } else { "TCP" };
        let digests = match (queue.header_digest, queue.data_digest) {
            (false, false) => "without digests",
            (true, false) => "with header digests",
            (false, true) => "with data digests",
            (true, true) => "with digests",
        };
        format!("{way} {digests}")
    };
    distinct(queues.iter().map(security))
}

fn distinct(words: impl Iterator<Item = String>) -> String {
    let words: BTreeSet<String> = words.collect();
    words.into_iter().collect::<Vec<_>>().join(" and ")
}
