//! Reservation commands of a queue, see [`reserving`](crate::connection::reserving).

use super::Queue;
use crate::limits::RESERVATIONS_ASKED_MAX;
use crate::reservation_thread::{Asker, Place, Wish};
use crate::slots::{SlotIndex, Stage};
use crate::subsystem::Subsystem;
use std::sync::Arc;
use strake_block::SgMut;
use strake_nvme_wire::Status;
use strake_nvme_wire::nvm::ALL_NAMESPACES;
use strake_nvme_wire::reservation::{Action, KEYS_BYTES, Keys};

impl Queue {
    /// Updates the access rights of the host, see [`Reserving::apply`](crate::connection::reserving::Reserving).
    #[inline]
    pub(in crate::connection) fn apply_reservations(&mut self) -> usize {
        let Self { reserving, slots, devices, place, .. } = self;
        let subsystem = place.controller.subsystem.as_ref();
        subsystem.map_or(0, |subsystem| reserving.apply(subsystem, slots, devices))
    }

    /// Passes a command with its keys to the reservation thread.
    pub(super) fn reserve(
        &mut self,
        index: SlotIndex,
        (action, namespace): (Action, u32),
        data: &SgMut,
    ) {
        let mut bytes = [0; KEYS_BYTES];
        let given = data.parts().first().map_or(&[][..], |part| part.as_slice());
        let used = given.len().min(action.data_bytes() as usize);
        bytes[..used].copy_from_slice(&given[..used]);
        let host = self.place.controller.host.clone();
        self.ask(index, namespace, Wish::Act(host, action, Keys::parse(&bytes)));
    }

    /// Passes a request for one namespace, or for all of them, to the reservation thread.
    pub(super) fn ask(&mut self, index: SlotIndex, namespace: u32, wish: Wish) {
        let places =
            match self.place.controller.subsystem.as_ref().map(|known| places(known, namespace)) {
                Some(Ok(_)) if self.reserving.asked.len() >= RESERVATIONS_ASKED_MAX => {
                    Err(Status::INTERRUPTED)
                }
                Some(found) => found,
                None => Err(Status::INVALID_NAMESPACE),
            };
        let places = match places {
            Ok(places) => places,
            Err(status) => {
                self.slots.get(index).status = status;
                return self.conclude(index);
            }
        };
        let asker = Asker::Host(self.place.controller.host.nqn.clone());
        let answer = self.registry.reservation_thread.ask(&asker, places, wish);
        self.slots.get(index).stage = Stage::Asked;
        self.reserving.asked.push((index, answer));
    }

    /// Completes commands that the reservation thread has answered; returns their number.
    #[inline]
    pub(in crate::connection) fn hear(&mut self) -> usize {
        let mut heard = 0;
        while let Some((index, status)) = self.reserving.next_answer() {
            self.slots.get(index).status = status;
            self.conclude(index);
            heard += 1;
        }
        heard
    }
}

/// A namespace whose device is served, or all such namespaces.
///
/// # Errors
/// Returns a status if there is none.
fn places(subsystem: &Arc<Subsystem>, namespace: u32) -> Result<Vec<Place>, Status> {
    let place = |namespace| {
        let kept = subsystem.kept(namespace)?;
        Ok(Place { subsystem: Arc::clone(subsystem), namespace, kept })
    };
    if namespace != ALL_NAMESPACES {
        return Ok(vec![place(namespace)?]);
    }
    let all: Vec<_> = subsystem.numbers().into_iter().flat_map(place).collect();
    if all.is_empty() { Err(Status::INACCESSIBLE) } else { Ok(all) }
}
