//! Resolution of host names.
//!
//! The operating system has no time limit for name resolution. A thread therefore waits for it, and the caller waits
//! for the thread up to its own limit. Each name has at most one such thread: otherwise each connect attempt would
//! leave another thread behind while a name service is silent.

use crate::address::Address;
use crate::error::Reason;
use crate::stream::Until;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The result of a name resolution.
type Answer = Result<Vec<SocketAddr>, Reason>;

/// A running name resolution.
struct Lookup {
    machine: String,
    port: u16,
    answer: Mutex<Option<Answer>>,
    known: Condvar,
}

/// The running resolutions of all drives.
static LOOKUPS: Mutex<Vec<Arc<Lookup>>> = Mutex::new(Vec::new());

/// No code panics while it holds these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resolves the host name of an address.
pub(crate) fn places_of(address: &Address, until: Until) -> Answer {
    places_by(address, until, |name, port| Ok((name, port).to_socket_addrs()?.collect()))
}

/// As [`places_of`], with the resolver `ask`, which may not return.
fn places_by(
    address: &Address,
    until: Until,
    ask: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Answer {
    let (machine, port) = (&address.machine, address.port);
    if let Ok(ip) = machine.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let lookup = {
        let mut lookups = lock(&LOOKUPS);
        let known = lookups.iter().find(|known| known.machine == *machine && known.port == port);
        match known {
            Some(known) => Arc::clone(known),
            None => {
                let lookup = Lookup::begin(machine, port, ask)?;
                lookups.push(Arc::clone(&lookup));
                lookup
            }
        }
    };
    lookup.wait(until)
}

impl Lookup {
    /// Starts the thread of a resolution, which waits until it is in the list of running resolutions.
    fn begin(
        machine: &str,
        port: u16,
        ask: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Arc<Self>, Reason> {
        let (answer, known) = (Mutex::new(None), Condvar::new());
        let lookup = Arc::new(Self { machine: machine.to_owned(), port, answer, known });
        let looked_for = Arc::clone(&lookup);
        let look = move || {
            let answer = ask(&looked_for.machine, port).map_err(|_| Reason::NoSuchMachine);
            // Later callers start a new resolution.
            lock(&LOOKUPS).retain(|other| !Arc::ptr_eq(other, &looked_for));
            *lock(&looked_for.answer) = Some(answer);
            looked_for.known.notify_all();
        };
        let thread = thread::Builder::new().name("nvme-tcp-name".to_owned()).spawn(look);
        thread.map_err(|error| Reason::of_io(&error))?;
        Ok(lookup)
    }

    fn wait(&self, until: Until) -> Answer {
        let waited =
            self.known.wait_timeout_while(lock(&self.answer), until.left()?, |a| a.is_none());
        let (answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.clone().unwrap_or(Err(Reason::NamesSilent))
    }
}

#[cfg(test)]
mod tests;
