//! The state of a path after reports of its target.

use super::Path;
use crate::device::Options;
use crate::error::Reason;
use crate::identify::Facts;
use crate::inbox::Inbox;
use crate::path_manager::tests::{address, host, target};
use crate::reservation::ReservationMode;
use crate::session::Session;
use crate::shared::{Shared, Standing, enlist};
use std::sync::Arc;
use strake_export_nvmet::TargetConfig;

/// A namespace had grown, and the path was used with its old size.
#[test]
fn what_has_changed_is_what_the_path_is_used_with() {
    let (target, _core) = target(TargetConfig::default());
    let (address, options) = (address(&target), Options::default());
    let session = Session::begin(&address, &host(), options.digests).expect("it takes us");
    let facts = session.facts.clone();
    let shared = Shared::new(&address, &host(), facts.clone(), options).expect("descriptors");
    let (shared, (_asker, inbox)) = (Arc::new(shared), Inbox::open().expect("descriptors"));
    let id = enlist(&shared, &address);
    let mut path = Path::new(&shared, (id, &address), Some(session), inbox);
    let grown = Facts { blocks: facts.blocks + 1, ..facts };
    assert_eq!(path.judge(Ok(Some(grown.clone()))), Ok(()));
    let Standing::Up(live) = &shared.paths()[0].standing else { panic!("it is up") };
    assert_eq!(live.facts, grown);
}

/// A target that was restarted without reservations, or another path to it.
#[test]
fn what_was_reserved_is_not_used_where_it_cannot_be() {
    let (target, _core) = target(TargetConfig::default());
    let (address, options) =
        (address(&target), Options { reservation: ReservationMode::Claim, ..Options::default() });
    let session = Session::begin(&address, &host(), options.digests).expect("it takes us");
    let (able, unable) =
        (session.facts.clone(), Facts { reservations: None, ..session.facts.clone() });
    let shared = Shared::new(&address, &host(), able.clone(), options).expect("descriptors");
    assert_eq!(
        shared.claim(&address, &unable, ReservationMode::Claim),
        Ok(()),
        "nothing was promised"
    );
    assert_eq!(shared.claimed(), None);
    assert_eq!(shared.claim(&address, &able, ReservationMode::Claim), Ok(()));
    assert_eq!(shared.claim(&address, &unable, ReservationMode::Claim), Err(Reason::Lesser));
    shared.note_loss(Reason::TakenOver);
    assert_eq!(shared.claim(&address, &able, ReservationMode::Claim), Err(Reason::TakenOver));
}
