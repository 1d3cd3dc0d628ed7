//! The discovery log pages that were composed last.
//!
//! Hosts read the page in parts, as often as they want, and without authentication. The page of a host is composed once
//! for each generation.

use crate::limits::DISCOVERY_PAGES_MAX;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What a page depends on besides the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader<'a> {
    /// The NQN of the host.
    pub(crate) host: &'a str,
    /// The local address of its connection.
    pub(crate) address: SocketAddr,
    /// Whether the host must use TLS everywhere.
    pub(crate) has_key: bool,
}

/// A page.
struct Known {
    host: String,
    address: SocketAddr,
    has_key: bool,
    generation: u64,
    page: Arc<[u8]>,
}

impl Known {
    fn reader(&self) -> Reader<'_> {
        Reader { host: &self.host, address: self.address, has_key: self.has_key }
    }
}

/// The last pages, oldest first.
#[derive(Default)]
pub(crate) struct DiscoveryLog(Mutex<VecDeque<Known>>);

impl DiscoveryLog {
    /// The page of a reader in this generation. `compose` is called if the page is not known.
    pub(crate) fn page(
        &self,
        reader: Reader<'_>,
        generation: u64,
        compose: impl FnOnce() -> Vec<u8>,
    ) -> Arc<[u8]> {
        let is_it = |known: &Known| known.reader() == reader && known.generation == generation;
        if let Some(known) = self.lock().iter().find(|known| is_it(known)) {
            return Arc::clone(&known.page);
        }
        // The lock is free meanwhile: two readers may compose the same page.
        let page: Arc<[u8]> = compose().into();
        let mut all = self.lock();
        all.retain(|known| known.generation >= generation && known.reader() != reader);
        if all.len() >= DISCOVERY_PAGES_MAX {
            all.pop_front();
        }
        let Reader { host, address, has_key } = reader;
        let (host, kept) = (host.to_owned(), Arc::clone(&page));
        all.push_back(Known { host, address, has_key, generation, page: kept });
        page
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{DiscoveryLog, Reader};
    use crate::limits::DISCOVERY_PAGES_MAX;
    use crate::referral::Referral;
    use crate::registry::Registry;
    use crate::reservation_thread::ReservationThread;
    use crate::target::TargetConfig;
    use std::cell::Cell;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use strake_nvme_wire::nqn;

    #[test]
    fn a_page_is_composed_once_for_each_reader_and_generation() {
        let (log, composed) = (DiscoveryLog::default(), Cell::new(0));
        let address = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let read = |host: &str, port, has_key, generation| {
            let reader = Reader { host, address: address(port), has_key };
            let compose = || {
                composed.set(composed.get() + 1);
                vec![composed.get()]
            };
            log.page(reader, generation, compose)[0]
        };
        assert_eq!((read("a", 1, false, 1), read("a", 1, false, 1)), (1, 1));
        let others = [("b", 1, false), ("a", 2, false), ("a", 1, true)];
        for (number, (host, port, has_key)) in (2..).zip(others) {
            assert_eq!(read(host, port, has_key, 1), number, "another reader");
            assert_eq!(read(host, port, has_key, 1), number);
        }
        assert_eq!(read("a", 1, false, 2), 5, "another generation");
        assert_eq!((read("a", 1, false, 2), log.lock().len()), (5, 1), "old pages are removed");
    }

    #[test]
    fn few_pages_are_kept() {
        let log = DiscoveryLog::default();
        let address = SocketAddr::from(([192, 0, 2, 1], 1));
        for number in 0..=DISCOVERY_PAGES_MAX {
            let host = number.to_string();
            log.page(Reader { host: &host, address, has_key: false }, 1, Vec::new);
        }
        assert_eq!(log.lock().len(), DISCOVERY_PAGES_MAX);
        assert_eq!(log.lock()[0].host, "1", "the oldest is removed");
    }

    /// Each read of the page, even of a few bytes, composed all of it.
    #[test]
    fn a_registry_composes_a_page_again_only_after_a_change() {
        let (reservation_thread, thread) = ReservationThread::start(Vec::new()).expect("a thread");
        let registry = Registry::new(Vec::new(), &TargetConfig::default(), reservation_thread);
        let address = SocketAddr::from(([192, 0, 2, 1], 4420));
        let read = || registry.discovery_page("host", address);
        let first = read();
        assert!(Arc::ptr_eq(&first, &read()));
        let referral = Referral {
            address: SocketAddr::from(([192, 0, 2, 2], 8009)),
            nqn: nqn::DISCOVERY.to_owned(),
        };
        registry.refer(vec![referral]).expect("a referral");
        let second = read();
        assert_eq!((first.len(), second.len()), (1024, 2048));
        // A host with a key sees other entries.
        let key = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:".parse();
        registry.tls.set("host", vec![key.expect("a key")]);
        assert!(!Arc::ptr_eq(&second, &read()));
        registry.reservation_thread.close();
        thread.join().expect("it ends");
    }
}
