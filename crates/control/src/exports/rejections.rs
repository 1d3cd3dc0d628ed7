//! Rejected hosts, as reported to an administrator.

use strake_export_nvmet::{Reason, Rejection};

use crate::events::{EventKind, Note};

/// Why a host was rejected, and how to admit it.
const fn words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::NotListed => (
            "what was asked for does not have that name on its list of hosts, or is not there",
            "if it should connect: strake export create ... --allow-host NQN",
        ),
        Reason::Bare => (
            "it has to use TLS and did not",
            "if that is the host: have it connect with its key (nvme connect --tls)",
        ),
        Reason::OtherNames => (
            "the key it used for TLS is that of another host, or for another subsystem",
            "if that is the host: have its key inserted for this host and subsystem",
        ),
        Reason::Tls => (
            "TLS was not agreed on: its name or its key is not known here, or it broke the protocol",
            "if it should connect, give it the same key here: strake host add NQN --tls-key-file FILE",
        ),
        Reason::Unproven => (
            "it did not prove who it is (DH-HMAC-CHAP)",
            "if that is the host, give it the same secret here: strake host add NQN --secret-file FILE",
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
        more => format!(", and {more} connections more for the same reason"),
    };
    let what = format!("connection of {name} at {place} rejected on {listen}{more}");
    let (cause, next) = words(*reason);
    Note::new(EventKind::HostRefused, "daemon", what).cause(cause).next(next)
}
