//! The poller that gives each connection of one data core its turns.

use crate::limits::{EVENTS_PER_TURN, ORDERS_PER_TURN};
use crate::protocol::{AcceptedConnection, After, Connection, CoreContext, Protocol};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use strake_reactor::{Poller, Sleep, Turn};
use strake_units::Nanos;

/// An order of a control thread to a session poller.
pub(crate) enum Order<P: Protocol> {
    /// Serve this connection.
    Adopt(Box<AcceptedConnection<P::Admission>>),
    /// Disconnect the peers of this export.
    Close(Arc<P::Export>),
    /// Disconnect all peers.
    CloseAll,
}

/// The kernel is polled without a wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The poller. Sockets are watched edge-triggered in one epoll instance. So a sleeping core waits for one descriptor, a
/// waiting peer costs no system call, and a peer that is not read from does not keep the core awake.
pub(crate) struct SessionPoller<P: Protocol> {
    protocol: Arc<P>,
    core_context: CoreContext,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    orders: mpsc::Receiver<Order<P>>,
    /// Connections at fixed indices; the kernel reports the index in its events.
    places: Vec<Option<P::Connection>>,
    load: Arc<AtomicU32>,
}

impl<P: Protocol> SessionPoller<P> {
    pub(crate) fn new(
        protocol: Arc<P>,
        core_context: CoreContext,
        orders: mpsc::Receiver<Order<P>>,
        load: Arc<AtomicU32>,
    ) -> io::Result<Self> {
        Ok(Self {
            protocol,
            core_context,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            orders,
            places: Vec::new(),
            load,
        })
    }

    fn obey(&mut self, now: Nanos) -> usize {
        for done in 0..ORDERS_PER_TURN {
            match self.orders.try_recv() {
                Ok(Order::Adopt(accepted_connection)) => self.adopt(*accepted_connection, now),
                Ok(Order::Close(export)) => {
                    let served = self.places.iter_mut().flatten().filter(|c| c.serves(&export));
                    served.for_each(Connection::drain);
                }
                Ok(Order::CloseAll) => {
                    self.places.iter_mut().flatten().for_each(Connection::drain);
                }
                Err(mpsc::TryRecvError::Empty | mpsc::TryRecvError::Disconnected) => return done,
            }
        }
        ORDERS_PER_TURN
    }

    /// Adopts a connection. If it cannot be served, it is closed without the last output of its negotiation.
    fn adopt(&mut self, accepted_connection: AcceptedConnection<P::Admission>, now: Nanos) {
        let Ok(mut connection) = self.protocol.open(accepted_connection, &self.core_context, now)
        else {
            self.load.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let place = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(place as u64);
        if epoll::add(&self.epoll, connection.peer(), data, flags).is_err() {
            self.load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.places[place] = Some(connection);
    }

    /// Passes socket events of the kernel to the connections.
    fn listen(&mut self) -> usize {
        self.events.clear();
        let found = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&AT_ONCE));
        // An interrupted call is repeated in the next turn; no other failure is possible here.
        let Ok(count) = found else { return 0 };
        for event in &self.events {
            let place = event.data.u64() as usize;
            // The entry is empty if its connection ended in an earlier turn; the kernel has then removed the socket.
            let Some(Some(connection)) = self.places.get_mut(place) else { continue };
            connection.peer().note(event.flags);
        }
        count
    }
}

impl<P: Protocol> Poller for SessionPoller<P> {
    fn turn(&mut self, now: Nanos) -> Turn {
        let mut turn = Turn::from_count(self.obey(now));
        if self.places.is_empty() {
            return turn;
        }
        turn = turn.or(Turn::from_count(self.listen()));
        for place in &mut self.places {
            let Some(connection) = place else { continue };
            connection.peer().begin_turn();
            match connection.turn(now) {
                After::Stays(_) if connection.peer().is_paused() => turn = Turn::Busy,
                After::Stays(did) => turn = turn.or(did),
                After::Gone => {
                    // The close removes the socket from the epoll instance, because there is no other descriptor of it.
                    *place = None;
                    self.load.fetch_sub(1, Ordering::Relaxed);
                    turn = Turn::Busy;
                }
            }
        }
        turn
    }

    fn sleep(&self, sleep: &mut Sleep) {
        sleep.fd(self.epoll.as_fd().as_raw_fd());
        for connection in self.places.iter().flatten() {
            connection.sleep(sleep);
        }
    }
}
