//! A session with Strake's own target.

use super::Session;
use crate::device::Options;
use crate::error::Reason;
use crate::identify::identify_controller;
use crate::link::Life;
use crate::path_manager::tests::{address, host, target};
use crate::stream::Until;
use std::sync::Arc;
use std::time::Duration;
use strake_export_nvmet::{Target, TargetConfig};

fn begin(target: &Target) -> Session {
    let session = Session::begin(&address(target), &host(), Options::default().digests);
    session.expect("the target takes us")
}

/// A host name may have several addresses, or may have changed by the time of the connect: a queue of another
/// controller may lead to another namespace.
#[test]
fn queues_are_connected_where_their_admin_queue_is() {
    let (target, _core) = target(TargetConfig::default());
    let mut session = begin(&target);
    session.gate.address.machine = "no-such-machine.invalid".to_owned();
    let facts = Arc::new(session.facts.clone());
    let link = session.gate.queue(1, &host(), (&Life::new(1), &facts));
    assert!(link.is_ok(), "{:?}", link.err());
}

/// A target that answered each of many commands late blocked the thread of a path for a minute, and with it all
/// requests that waited for the end of its association.
#[test]
fn what_has_to_be_over_is_over_however_long_each_thing_may_take() {
    let (target, _core) = target(TargetConfig::default());
    let mut session = begin(&target);
    assert!(identify_controller(&mut session.dialog).is_ok());
    session.dialog.finish_by(Until::within(Duration::ZERO));
    assert_eq!(identify_controller(&mut session.dialog).err(), Some(Reason::Silent));
}

/// The kernel closes the sockets of a killed daemon, and continued to send queued bytes: over a lossy link, these
/// arrived after writes of the next daemon to the same blocks.
#[test]
fn f30_nothing_is_sent_for_a_daemon_that_was_killed() {
    let (target, _core) = target(TargetConfig::default());
    let session = begin(&target);
    let facts = Arc::new(session.facts.clone());
    let link = session.gate.queue(1, &host(), (&Life::new(1), &facts));
    let link = link.expect("the target takes us");
    let linger = rustix::net::sockopt::socket_linger(&link.wire).expect("it is told");
    assert_eq!(linger, Some(Duration::ZERO), "it is broken, and not ended, by whoever closes it");
}
