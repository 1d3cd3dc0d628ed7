//! Connect commands: which queue a host receives, and the reasons of a rejection.

use crate::audit::Reason;
use crate::controller::Place;
use crate::handshake::{Directory, Names, Refusal, Welcome};
use crate::registry::{Admission, Claim, Registry, Room};
use crate::subsystem::NotAdded;
use crate::tls::Proven;
use std::net::IpAddr;
use std::sync::Arc;
use strake_export_net::{ConnectionSlot, NoConnectionSlot};
use strake_nvme_wire::fabrics::{Connect, ConnectData, Part};
use strake_nvme_wire::{Status, nqn};

fn no_connection_slot(why: NoConnectionSlot) -> Refusal {
    match why {
        NoConnectionSlot::Closed => Refusal::of(Part::Data, ConnectData::SUBSYSTEM_AT),
        NoConnectionSlot::Full => Refusal::plain(Status::BUSY),
    }
}

/// The registry, and the properties of one peer.
pub(crate) struct ConnectHandler {
    pub(crate) registry: Arc<Registry>,
    /// The address of the peer; `None` if the kernel does not report one.
    pub(crate) from: Option<IpAddr>,
    /// The names that TLS authenticated; `None` without TLS.
    pub(crate) proven: Option<Proven>,
    /// The number of the connection.
    pub(crate) began: u64,
}

impl ConnectHandler {
    /// Counts a rejection of this peer.
    pub(crate) fn note(&self, reason: Reason, host: &str) {
        self.registry.audit.note(self.from, reason, host);
    }

    /// Checks whether a host may continue over this connection: a host that has a TLS key must have used it for these
    /// names, and a secure subsystem accepts no host without TLS.
    fn check_channel(&self, names: Names<'_>) -> Result<(), Refusal> {
        let Registry { tls, .. } = &*self.registry;
        let reason = match &self.proven {
            Some(proven) if proven.is(names) => return Ok(()),
            Some(_) => Reason::OtherNames,
            None if !tls.has(names.host) && !self.registry.is_secure(names.subsystem) => {
                return Ok(());
            }
            None => Reason::Bare,
        };
        self.note(reason, names.host);
        Err(Refusal::plain(Status::INVALID_HOST))
    }

    /// The target of a Connect command, if the target exists and lists the host.
    fn find(
        &self,
        connect: &Connect,
        data: &ConnectData,
        names: Names<'_>,
    ) -> Result<Claim, Refusal> {
        let found = match connect.queue {
            0 => self.registry.open_admin(connect, data, names),
            _ => self.registry.open_io(connect, data, names),
        };
        // A host that another subsystem lists may connect to a removed one; this is not reported.
        let is_stranger = |refusal: &Refusal| {
            refusal.status == Status::INVALID_HOST || !self.registry.lists(names.host)
        };
        found.inspect_err(|refusal| {
            if is_stranger(refusal) {
                self.note(Reason::NotListed, names.host);
            }
        })
    }

    /// The rejection of a controller. This follows the authentication, so that no other host can cause the report.
    fn not_added(&self, why: NotAdded, host: &str) -> Refusal {
        match why {
            NotAdded::NumberTaken => Refusal::plain(Status::BUSY),
            NotAdded::NotListed => Refusal::plain(Status::INVALID_HOST),
            NotAdded::IdInUse => {
                self.note(Reason::IdInUse, host);
                Refusal::of(Part::Data, ConnectData::HOST_ID_AT)
            }
        }
    }
}

impl Directory for ConnectHandler {
    type Claim = Claim;
    type Admission = Admission;

    fn connect(&self, connect: &Connect, data: &ConnectData) -> Result<Welcome<Claim>, Refusal> {
        if connect.format != 0 {
            return Err(Refusal::plain(Status::INCOMPATIBLE_FORMAT));
        }
        let subsystem = nqn::parse(&data.subsystem)
            .map_err(|_| Refusal::of(Part::Data, ConnectData::SUBSYSTEM_AT))?;
        let host =
            nqn::parse(&data.host).map_err(|_| Refusal::of(Part::Data, ConnectData::HOST_AT))?;
        let names = Names { subsystem, host };
        let claim = self.find(connect, data, names)?;
        // This check follows the refusals that every host gets, so that an unlisted host cannot learn which names have
        // a key. A claim takes no connection slot.
        self.check_channel(names)?;
        let proof = self.registry.proof(names)?;
        Ok(Welcome { controller: claim.controller.id, claim, proof })
    }

    fn settle(&self, Claim { controller, queue }: Claim) -> Result<Admission, Refusal> {
        let host = &controller.host.nqn;
        let subsystem = controller.subsystem.as_ref();
        if subsystem.is_some_and(|known| self.registry.room_for(known, host) == 0) {
            return Err(Refusal::plain(Status::BUSY));
        }
        let place = Place::take(&controller, queue).ok_or(Refusal::plain(Status::QUEUE_TAKEN))?;
        // This check follows the allocation of the slot: if the controller is disabled later, the queue is closed.
        if queue > 0 && (!controller.is_ready() || controller.is_dismissed()) {
            return Err(Refusal::plain(Status::SEQUENCE_ERROR));
        }
        let Some(subsystem) = &controller.subsystem else {
            let visit = self.registry.discovery_connections.receive(self.from, &controller);
            let visit = visit.ok_or(Refusal::plain(Status::BUSY))?;
            return Ok(Admission { place, room: Room::DiscoveryConnection(visit) });
        };
        let connection_slot = ConnectionSlot::take(subsystem).map_err(no_connection_slot)?;
        if queue == 0 {
            subsystem.add_controller(&controller).map_err(|why| self.not_added(why, host))?;
        }
        // This check follows the addition: a disconnect finds the controller, or is found here.
        if self.registry.is_cut_off(host, self.began) {
            return Err(Refusal::plain(Status::INVALID_HOST));
        }
        Ok(Admission { place, room: Room::ConnectionSlot(connection_slot) })
    }

    fn failed_handshake(&self, claim: &Claim) {
        self.note(Reason::Unproven, &claim.controller.host.nqn);
    }
}
