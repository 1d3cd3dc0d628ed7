use super::{ConnectionSlot, ConnectionSlots, Export, NoConnectionSlot};
use std::sync::Arc;
use std::time::Duration;

struct Place(ConnectionSlots);

impl Export for Place {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.0
    }
}

fn sit(at: &Arc<Place>) -> Result<ConnectionSlot<Place>, NoConnectionSlot> {
    ConnectionSlot::take(at)
}

/// An export that is being removed accepts no peer, and counts as empty only when its last I/O has completed, because
/// its array is stopped then.
#[test]
fn a_closed_export_accepts_no_connection_and_is_empty_when_the_last_has_left() {
    let export = Arc::new(Place(ConnectionSlots::new(3)));
    let (one, two) = (sit(&export).expect("there is room"), sit(&export).expect("there is room"));
    export.0.close();
    assert_eq!(sit(&export).err(), Some(NoConnectionSlot::Closed));
    drop(one);
    assert_eq!((export.0.taken(), export.0.wait_empty(Duration::ZERO)), (1, false));
    drop(two);
    assert_eq!((export.0.taken(), export.0.wait_empty(Duration::ZERO)), (0, true));
    assert_eq!(sit(&export).err(), Some(NoConnectionSlot::Closed), "nor when it is empty");
}

#[test]
fn no_more_connections_than_slots() {
    let export = Arc::new(Place(ConnectionSlots::new(2)));
    let mut connection_slots: Vec<_> =
        (0..2).map(|_| sit(&export).expect("there is room")).collect();
    assert_eq!((sit(&export).err(), export.0.free()), (Some(NoConnectionSlot::Full), 0));
    drop(connection_slots.pop());
    connection_slots.push(sit(&export).expect("one has left"));
    assert_eq!(sit(&export).err(), Some(NoConnectionSlot::Full));
}
