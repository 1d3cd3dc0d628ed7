//! All NVMe/TCP queues of one data core: the poller that gives each of them its turns.

use crate::connection::{After, Connection, Newcomer};
use crate::limits::EVENTS_PER_TURN;
use crate::registry::Registry;
use crate::subsystem::Served;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use strake_reactor::{Poller, Sleep, Turn};
use strake_units::{CoreIndex, Nanos};

/// What control threads tell a station.
pub(crate) enum Order {
    /// Serve this connection.
    Adopt(Box<Newcomer>),
    /// Let the hosts of this export go.
    Close(Arc<Served>),
    /// Let all hosts go.
    CloseAll,
}

/// Orders carried out in one turn.
const ORDERS_PER_TURN: usize = 4;

/// The kernel is asked what it has, never waited for.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The poller. Sockets are watched edge-triggered in one epoll instance, so that a sleeping core waits for one
/// descriptor, a host that must wait costs no system call, and one that is not read from cannot keep the core awake.
pub(crate) struct Station {
    core: CoreIndex,
    lane: usize,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    orders: mpsc::Receiver<Order>,
    /// Connections in fixed places; the place is what the kernel names in its events.
    places: Vec<Option<Connection>>,
    load: Arc<AtomicU32>,
    registry: Arc<Registry>,
    /// When this turn began.
    now: Nanos,
}

impl Station {
    pub(crate) fn new(
        (core, lane): (CoreIndex, usize),
        orders: mpsc::Receiver<Order>,
        load: Arc<AtomicU32>,
        registry: Arc<Registry>,
    ) -> io::Result<Self> {
        Ok(Self {
            core,
            lane,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            orders,
            places: Vec::new(),
            load,
            registry,
            now: Nanos(0),
        })
    }

    fn obey(&mut self) -> usize {
        for done in 0..ORDERS_PER_TURN {
            match self.orders.try_recv() {
                Ok(Order::Adopt(newcomer)) => self.adopt(*newcomer),
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

    /// Takes a connection on. One that cannot be served is closed: its Connect command was not answered yet.
    fn adopt(&mut self, newcomer: Newcomer) {
        let opened = Connection::open(newcomer, (self.core, self.lane), &self.registry, self.now);
        let Ok(connection) = opened else {
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
        if epoll::add(&self.epoll, connection.socket(), data, flags).is_err() {
            self.load.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.places[place] = Some(connection);
    }

    /// Passes on what the kernel knows of the sockets.
    fn listen(&mut self) -> usize {
        self.events.clear();
        let found = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&AT_ONCE));
        // An interrupted call is made again next turn; nothing else can fail here.
        let Ok(count) = found else { return 0 };
        for event in &self.events {
            let place = event.data.u64() as usize;
            // A place is empty when its connection went in an earlier turn; the kernel forgot the socket then.
            let Some(Some(connection)) = self.places.get_mut(place) else { continue };
            let flags = event.flags;
            let gone = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(gone) {
                connection.note_hang_up();
            }
            if flags.contains(epoll::EventFlags::IN) {
                connection.note_readable();
            }
            let sendable = epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            if flags.intersects(sendable) {
                connection.note_writable();
            }
        }
        count
    }
}

impl Poller for Station {
    fn turn(&mut self, now: Nanos) -> Turn {
        self.now = now;
        let mut turn = Turn::from_count(self.obey());
        if self.places.is_empty() {
            return turn;
        }
        turn = turn.or(Turn::from_count(self.listen()));
        for place in &mut self.places {
            let Some(connection) = place else { continue };
            match connection.turn(now) {
                After::Stays(did) => turn = turn.or(did),
                After::Gone => {
                    // Closing the socket takes it out of the epoll instance: it has no other descriptor.
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
