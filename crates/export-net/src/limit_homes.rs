//! The homes of limits on the data cores.
//!
//! Each core with a limit has one poller for all homes there. It has nothing to do until a core calls. Then it ticks
//! each millisecond while a limit is in use.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use strake_qos::{Aspect, Board, Cells, Home, Limit, Next};
use strake_reactor::{CoreHandle, Poller, Sleep, Turn};
use strake_units::Nanos;

use crate::gate::SharedLimit;

/// An order of a control thread to the homes of a core.
enum Order {
    Add { number: u64, limit: Limit, cells: Arc<Cells> },
    Change { number: u64, limit: Limit },
    Remove { number: u64 },
}

/// The way to the homes of one core.
#[derive(Clone)]
struct Desk {
    core: CoreHandle,
    board: Arc<Board>,
    orders: mpsc::Sender<Order>,
    /// The number of orders that were sent.
    sent: Arc<AtomicU64>,
}

impl Desk {
    /// Starts the poller of a core. Orders wait until the core has added it.
    fn open(core: &CoreHandle, cores: usize) -> Self {
        let (orders, received) = mpsc::channel();
        let (sent, board) = (Arc::new(AtomicU64::new(0)), Arc::new(Board::new(cores)));
        let poller = HomePoller {
            orders: received,
            sent: Arc::clone(&sent),
            seen: 0,
            board: Arc::clone(&board),
            calls: 0,
            homes: Vec::new(),
            due: None,
        };
        // A core that has stopped serves no requests, so no limit is needed there.
        let _ = core.run(move |core| {
            core.add(Box::new(poller));
        });
        Self { core: core.clone(), board, orders, sent }
    }

    fn send(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            // Release: pairs with the acquire in `HomePoller::obey`.
            self.sent.fetch_add(1, Ordering::Release);
            self.core.wake();
        }
    }
}

/// Creates and changes limits. Used by control threads.
pub struct LimitHomes {
    cores: Vec<CoreHandle>,
    /// The homes of each core, opened with its first limit.
    desks: Mutex<Vec<Option<Desk>>>,
    numbers: AtomicU64,
}

impl fmt::Debug for LimitHomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitHomes").field("cores", &self.cores.len()).finish_non_exhaustive()
    }
}

impl LimitHomes {
    /// Creates the homes of these data cores, all of them in the order of their indices.
    #[must_use]
    pub fn new(cores: Vec<CoreHandle>) -> Self {
        let desks = Mutex::new(cores.iter().map(|_| None).collect());
        Self { cores, desks, numbers: AtomicU64::new(0) }
    }

    /// Starts a limit. It ends when the last holder drops it. `None` without a data core.
    pub fn start(&self, aspect: Aspect, limit: Limit) -> Option<Arc<SharedLimit>> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let desk = self.desk(number)?;
        let cells = Arc::new(Cells::new(self.cores.len()));
        desk.send(Order::Add { number, limit, cells: Arc::clone(&cells) });
        let (home, board) = (desk.core.clone(), Arc::clone(&desk.board));
        let on_drop = Box::new(move || desk.send(Order::Remove { number }));
        Some(Arc::new(SharedLimit { number, aspect, cells, board, home, on_drop }))
    }

    /// Changes a limit in use.
    pub fn change(&self, shared: &SharedLimit, limit: Limit) {
        if let Some(desk) = self.desk(shared.number) {
            desk.send(Order::Change { number: shared.number, limit });
        }
    }

    fn desk(&self, number: u64) -> Option<Desk> {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number as usize % self.cores.len().max(1);
        let core = self.cores.get(at)?;
        let desk = desks[at].get_or_insert_with(|| Desk::open(core, self.cores.len()));
        Some(desk.clone())
    }
}

/// A home on this core.
struct Running {
    number: u64,
    home: Home,
    cells: Arc<Cells>,
    next: Next,
}

/// The homes of one core.
struct HomePoller {
    orders: mpsc::Receiver<Order>,
    sent: Arc<AtomicU64>,
    /// The orders that were executed.
    seen: u64,
    board: Arc<Board>,
    /// The calls that were answered.
    calls: u64,
    homes: Vec<Running>,
    /// The next tick of any home.
    due: Option<Nanos>,
}

impl HomePoller {
    /// Executes the orders. Returns whether there was one.
    fn obey(&mut self, now: Nanos) -> bool {
        if self.sent.load(Ordering::Acquire) == self.seen {
            return false;
        }
        while let Ok(order) = self.orders.try_recv() {
            self.seen += 1;
            match order {
                Order::Add { number, limit, cells } => {
                    let home = Home::new(limit, cells.cores(), now);
                    self.homes.push(Running { number, home, cells, next: Next::Call });
                }
                Order::Change { number, limit } => {
                    let homes = self.homes.iter_mut().filter(|running| running.number == number);
                    homes.for_each(|running| running.home.change(limit, now));
                }
                Order::Remove { number } => self.homes.retain(|running| running.number != number),
            }
        }
        true
    }

    fn tick(&mut self, is_called: bool, now: Nanos) -> usize {
        let mut ticks = 0;
        for running in &mut self.homes {
            let is_due = match running.next {
                Next::At(due) => now >= due,
                Next::Call => is_called,
            };
            if is_due {
                running.next = running.home.tick(now, &running.cells);
                ticks += 1;
            }
        }
        let times = self.homes.iter().filter_map(|running| match running.next {
            Next::At(due) => Some(due),
            Next::Call => None,
        });
        self.due = times.min();
        ticks
    }
}

impl Poller for HomePoller {
    fn turn(&mut self, now: Nanos) -> Turn {
        let has_orders = self.obey(now);
        let calls = self.board.calls();
        let is_called = std::mem::replace(&mut self.calls, calls) != calls;
        if !has_orders && !is_called && self.due.is_none_or(|due| now < due) {
            return Turn::from_count(0);
        }
        Turn::from_count(self.tick(has_orders || is_called, now))
    }

    fn sleep(&self, sleep: &mut Sleep) {
        if self.board.calls() != self.calls || self.sent.load(Ordering::Acquire) != self.seen {
            sleep.never();
        }
        if let Some(due) = self.due {
            sleep.until(due);
        }
    }
}
