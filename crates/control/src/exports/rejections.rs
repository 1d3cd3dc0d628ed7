//! Rejected hosts, as reported to an administrator.

use strake_api::v1::{AddHostRequest, CreateExportRequest, ReleaseExportRequest};
use strake_export_nvmet::{Reason, Rejection};
use strake_wording::{Text, say};

use crate::events::{EventKind, Note};

/// Why a host was rejected, and how to admit it.
fn words(reason: Reason) -> (&'static str, Text) {
    let add = AddHostRequest { nqn: "NQN".to_owned(), ..Default::default() };
    match reason {
        Reason::NotListed => (
            "the subsystem does not exist, or does not allow this host",
            say("if the host should connect: ").run(CreateExportRequest {
                array: "...".to_owned(),
                allow_hosts: vec!["NQN".to_owned()],
                ..Default::default()
            }),
        ),
        Reason::Bare => (
            "the host must use TLS, but did not",
            say("if the host should connect, use its TLS key (nvme connect --tls)"),
        ),
        Reason::OtherNames => (
            "the TLS key of the host belongs to another host or another subsystem",
            say(
                "if the host should connect, insert its key on the host, for this host and this subsystem",
            ),
        ),
        Reason::Tls => (
            "the TLS handshake failed: the name or the key of the host is unknown to this daemon, or the host \
                violated the protocol",
            say("if the host should connect, give this daemon the same key: ")
                .run(AddHostRequest { tls_key: "FILE".to_owned(), ..add }),
        ),
        Reason::Unproven => (
            "the host did not authenticate (DH-HMAC-CHAP)",
            say("if the host should connect, give this daemon the same secret: ")
                .run(AddHostRequest { secret: "FILE".to_owned(), ..add }),
        ),
        Reason::IdInUse => (
            "another host is connected or registered with the same host identifier",
            say(
                "if the host should connect, give it an identifier of its own (/etc/nvme/hostid); if the host has a \
                    new NQN, clear the reservations that it made under its former NQN: ",
            )
            .run(ReleaseExportRequest { name: "NAME".to_owned() }),
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
