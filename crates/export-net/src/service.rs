//! The interface of a service for control threads: an acceptor, and a session poller on each data core.

use crate::acceptor::{Acceptor, Stop};
use crate::connection_slots::Export;
use crate::error::{ExportError, ExportErrorKind};
use crate::limits::REPEAT_AFTER;
use crate::pools::{PoolSizes, Pools};
use crate::protocol::{CoreContext, Listener, Protocol};
use crate::session_poller::{Order, SessionPoller};
use crate::step_worker::StepWorker;
use crate::stock::Stock;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use strake_reactor::{CoreHandle, PollerId};
use strake_units::Nanos;

/// The parameters of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The name of the accepting thread.
    pub thread: &'static str,
    /// The plural noun for peers in messages.
    pub peers: &'static str,
    /// Concurrent connections, negotiating or served.
    pub connections_max: u32,
    /// Concurrent negotiations.
    pub candidates_max: usize,
    /// Concurrent negotiations of one address.
    pub candidates_per_address_max: usize,
    /// Time for which a failed negotiation counts against its address.
    pub failed_handshake_time: Nanos,
    /// Time limit of a negotiation.
    pub handshake_time_max: Nanos,
    /// Bytes of the receive buffer for bytes that are not known to be data: more than any header or step of a
    /// negotiation.
    pub input_bytes: usize,
    /// The pool that each core lends to connections, if there is one.
    pub stock: Option<PoolSizes>,
}

/// One of the connections that a service permits; the drop returns it.
pub struct Ticket(Arc<AtomicU32>);

impl Ticket {
    /// Takes a ticket, unless there are `max` connections. Relaxed: the count orders no other access, and only the
    /// accepting thread increments it.
    pub(crate) fn take(count: &Arc<AtomicU32>, max: u32) -> Option<Self> {
        if count.load(Ordering::Relaxed) >= max {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A data core of the service.
pub(crate) struct Lane<P: Protocol> {
    core: CoreHandle,
    orders: mpsc::Sender<Order<P>>,
    /// Connections that were passed to this core and have not ended.
    pub(crate) load: Arc<AtomicU32>,
    poller: PollerId,
}

impl<P: Protocol> Clone for Lane<P> {
    fn clone(&self) -> Self {
        let (core, orders) = (self.core.clone(), self.orders.clone());
        Self { core, orders, load: Arc::clone(&self.load), poller: self.poller }
    }
}

impl<P: Protocol> Lane<P> {
    fn open(
        core: CoreHandle,
        lane: usize,
        protocol: &Arc<P>,
        setup: &Setup,
    ) -> Result<Self, ExportError> {
        let (sender, orders) = mpsc::channel();
        let load = Arc::new(AtomicU32::new(0));
        let (theirs, protocol) = (Arc::clone(&load), Arc::clone(protocol));
        let index = core.index();
        // The pools are created on this thread, because this takes time.
        let lent = setup.stock.map(Pools::new);
        let added = core.call(move |core| {
            let stock = lent.map(|pools| Rc::new(Stock::new(pools)));
            let budgets = Rc::default();
            let core_context = CoreContext { core: index, lane, stock, budgets };
            let session_poller = SessionPoller::new(protocol, core_context, orders, theirs)?;
            Ok(core.add(Box::new(session_poller)))
        });
        let gone = |gone: &dyn std::fmt::Display| stopped(setup, gone);
        let poller = added.map_err(|error| gone(&error))?.map_err(|source: io::Error| {
            let what = format!("cannot serve {} on core {index}", setup.peers);
            ExportError::system(ExportErrorKind::System, what, source)
        })?;
        Ok(Self { core, orders: sender, load, poller })
    }

    /// Sends an order; an order to a core that has stopped is dropped with its content.
    pub(crate) fn send(&self, order: Order<P>) {
        if self.orders.send(order).is_ok() {
            self.core.wake();
        }
    }

    fn close(self) {
        let poller = self.poller;
        // A core that has stopped has dropped its pollers.
        let _ = self.core.call(move |core| drop(core.remove(poller)));
    }
}

fn stopped(setup: &Setup, why: &dyn std::fmt::Display) -> ExportError {
    ExportError::new(ExportErrorKind::Stopped, format!("cannot serve {}: {why}", setup.peers))
}

/// Opens a lane on every core, or on none.
fn open_lanes<P: Protocol>(
    cores: Vec<CoreHandle>,
    protocol: &Arc<P>,
    setup: &Setup,
) -> Result<Vec<Lane<P>>, ExportError> {
    let mut lanes = Vec::with_capacity(cores.len());
    for (number, core) in cores.into_iter().enumerate() {
        match Lane::open(core, number, protocol, setup) {
            Ok(lane) => lanes.push(lane),
            Err(error) => {
                lanes.into_iter().for_each(Lane::close);
                return Err(error);
            }
        }
    }
    Ok(lanes)
}

/// A running service. Its owner calls [`shut_down`](Self::shut_down) before dropping it.
pub struct Service<P: Protocol> {
    lanes: Vec<Lane<P>>,
    stop: Stop,
    turned_away: Arc<AtomicU64>,
    panics: Arc<AtomicU64>,
    /// `None` after the join.
    thread: Option<JoinHandle<()>>,
}

impl<P: Protocol> Service<P> {
    /// Accepts peers and serves them on `cores`, of which there is at least one. Called on a control thread.
    ///
    /// Returns an error if a core has stopped, or if the operating system lacks a resource.
    pub fn start(
        listener: Box<dyn Listener>,
        cores: Vec<CoreHandle>,
        protocol: Arc<P>,
        setup: Setup,
    ) -> Result<Self, ExportError> {
        if cores.is_empty() {
            return Err(stopped(&setup, &"there is no data core"));
        }
        let no_thread = |source| {
            let what = format!("cannot start the thread that accepts {}", setup.peers);
            ExportError::system(ExportErrorKind::System, what, source)
        };
        let (stop, stopping) = Stop::pair().map_err(no_thread)?;
        let worker = StepWorker::new(setup.thread, Arc::clone(&protocol)).map_err(no_thread)?;
        let lanes = open_lanes(cores, &protocol, &setup)?;
        let acceptor = Acceptor::new(listener, protocol, lanes.clone(), setup, stopping, worker);
        let (turned_away, panics) = (acceptor.turned_away(), acceptor.panics());
        match Builder::new().name(setup.thread.into()).spawn(move || acceptor.run()) {
            Ok(thread) => Ok(Self { lanes, stop, turned_away, panics, thread: Some(thread) }),
            Err(source) => {
                lanes.into_iter().for_each(Lane::close);
                Err(no_thread(source))
            }
        }
    }

    /// The number of peers that were closed because the connection limit was reached.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// The number of panics while connections were negotiated. Each one is a defect; the affected peers were closed.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Disconnects the peers of a closed export. Returns false if the I/O in flight at its device did not complete in
    /// time.
    #[must_use]
    pub fn vacate(&self, export: &Arc<P::Export>, deadline: Instant) -> bool {
        loop {
            for lane in &self.lanes {
                lane.send(Order::Close(Arc::clone(export)));
            }
            // A peer that took its connection slot before the export was closed may still be on its way to a core, so
            // the order is repeated.
            let left = deadline.saturating_duration_since(Instant::now());
            if export.connection_slots().wait_empty(left.min(REPEAT_AFTER)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    /// True after [`shut_down`](Self::shut_down).
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.thread.is_none()
    }

    /// Stops accepting connections, completes the requests in flight of the peers of `exports`, disconnects them, and
    /// leaves the cores. Returns the exports whose devices did not complete in time.
    pub fn shut_down<'a>(
        &mut self,
        exports: &'a [Arc<P::Export>],
        deadline: Instant,
    ) -> Vec<&'a Arc<P::Export>> {
        let Some(thread) = self.thread.take() else { return Vec::new() };
        self.stop.stop();
        // The panic hook has reported a panic of the thread; nothing is left to wait for.
        let _ = thread.join();
        exports.iter().for_each(|export| export.connection_slots().close());
        for lane in &self.lanes {
            lane.send(Order::CloseAll);
        }
        let mut late: Vec<_> = exports.iter().collect();
        late.retain(|export| !self.vacate(export, deadline));
        // While I/O is in flight, the device owns its buffers: the poller then stays.
        if late.is_empty() {
            self.lanes.drain(..).for_each(Lane::close);
        }
        late
    }
}
