//! Rejected hosts, as reported to an administrator.

use strake_export_nvmet::{Reason, Rejection};

use crate::events::{EventKind, Note};

/// Why a host was rejected, and how to admit it.
const fn words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::NotListed => (
            "the subsystem does not exist, or does not allow this host",
            "if it should connect: strake export create ... --allow-host NQN",
        ),
        Reason::Bare => (
            "it must use TLS and did not",
            "if it should connect: use its TLS key (nvme connect --tls)",
        ),
        Reason::OtherNames => (
            "its TLS key belongs to another host or another subsystem",
            "if it should connect: insert its key there for this host and subsystem",
        ),
        Reason::Tls => (
            "the TLS handshake failed: its name or its key is unknown here, or it violated the protocol",
            "if it should connect, give it the same key here: strake host add NQN --tls-key-file FILE",
        ),
        Reason::Unproven => (
            "it did not authenticate (DH-HMAC-CHAP)",
            "if it should connect, give it the same secret here: strake host add NQN --secret-file FILE",
        ),
    }
}

/// The report on hosts rejected at an address. A host calls itself whatever it likes, so its name is quoted and
/// escaped.
pub(crate) fn note_of(listen: &str, rejection: &Rejection) -> Note {
    let Rejection { from, reason, host, count } = rejection;
    let place = from.map_or_else(|| "various addresses".to_owned(), |from| from.to_string());
    let name = match host.as_str() {
        "" => "a host".to_owned(),
        name => format!("host {name:?}"),
    };
    let more = match count - 1 {
        0 => String::new(),
        more => format!(", and {more} more connections for the same reason"),
    };
    let what = format!("connection of {name} at {place} rejected on {listen}{more}");
    let (cause, next) = words(*reason);
    Note::new(EventKind::HostRefused, "daemon", what).cause(cause).next(next)
}
