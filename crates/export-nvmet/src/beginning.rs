//! The first bytes of a connection: with or without TLS, and then the [handshake] of NVMe/TCP.
//!
//! ```text
//! Opening --first byte of TLS--> Securing --Finished--> Talking
//!    '-----any other--------------------------------------^
//! ```
//! Both kinds use one address. A host that has a key is rejected without TLS (`docs/decisions/0021-tls.md`).

use crate::audit::Reason;
use crate::connect_handler::ConnectHandler;
use crate::handshake::{self, Agreement, Handshake};
use crate::limits::{ADMIN_POOLS, IO_POOLS};
use crate::registry::Admission;
use crate::tls::Proven;
use strake_export_net::{Next, Pools, Step};
use strake_tls::Server;

/// The type of the first record of TLS (RFC 8446, section 5.1). The type of an ICReq is zero (TCP, section 3.6.2.2).
const TLS_HANDSHAKE: u8 = 22;

/// The parameters and buffers of an accepted queue.
pub(crate) struct Accepted {
    pub(crate) admission: Admission,
    pub(crate) agreement: Agreement,
    pub(crate) pools: Pools,
}

impl Accepted {
    /// Creates everything that the queue needs. This takes time and is not done on a data core.
    pub(crate) fn new(admission: Admission, agreement: Agreement) -> Self {
        let sizes = if admission.place.queue == 0 { ADMIN_POOLS } else { IO_POOLS };
        Self { admission, agreement, pools: Pools::untouched(sizes) }
    }
}

enum Stage {
    Opening,
    Securing(Box<Server>),
    Talking(Handshake<ConnectHandler>),
}

/// A connection whose handshake has not completed.
pub(crate) struct Beginning {
    connect_handler: ConnectHandler,
    stage: Stage,
}

impl Beginning {
    pub(crate) const fn new(connect_handler: ConnectHandler) -> Self {
        Self { connect_handler, stage: Stage::Opening }
    }

    /// True during the TLS handshake.
    pub(crate) const fn is_securing(&self) -> bool {
        matches!(self.stage, Stage::Securing(_))
    }

    /// True if the next step, with these bytes, performs a TLS handshake or an authentication.
    pub(crate) fn is_costly(&self, input: &[u8]) -> bool {
        match &self.stage {
            Stage::Opening => input.first() == Some(&TLS_HANDSHAKE),
            Stage::Securing(_) => !input.is_empty(),
            Stage::Talking(handshake) => handshake.is_proving() && !input.is_empty(),
        }
    }

    /// Processes the bytes that the host has sent; responses are appended to `out`.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step<Accepted> {
        if let (Stage::Opening, Some(&first)) = (&self.stage, input.first()) {
            self.stage = match first {
                TLS_HANDSHAKE => Stage::Securing(Box::default()),
                _ => Stage::Talking(Handshake::default()),
            };
        }
        match &mut self.stage {
            Stage::Opening => Step { taken: 0, next: Next::More },
            Stage::Securing(server) => {
                let keys = &self.connect_handler.registry.tls;
                let next = match server.step(input, keys, out) {
                    Ok(None) => Next::More,
                    Ok(Some(secured)) => {
                        self.connect_handler.proven = Proven::of(&secured);
                        self.stage = Stage::Talking(Handshake::default());
                        Next::Secure(secured.channel)
                    }
                    Err(_) => {
                        // The name of the host is unknown, because it has not authenticated.
                        self.connect_handler.note(Reason::Tls, "");
                        Next::Close
                    }
                };
                Step { taken: input.len(), next }
            }
            Stage::Talking(handshake) => talk(handshake, &self.connect_handler, input, out),
        }
    }
}

fn talk(
    handshake: &mut Handshake<ConnectHandler>,
    connect_handler: &ConnectHandler,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Step<Accepted> {
    let step = handshake.step(input, connect_handler, out);
    let next = match step.next {
        handshake::Next::More => Next::More,
        handshake::Next::Close => Next::Close,
        handshake::Next::Serve(admission, agreement, answer) => {
            out.extend_from_slice(&answer);
            Next::Serve(Accepted::new(admission, agreement))
        }
    };
    Step { taken: step.taken, next }
}

#[cfg(test)]
mod tests {
    use crate::limits::TLS_TIME_MAX;
    use crate::registry::Registry;
    use crate::reservation_thread::ReservationThread;
    use crate::target::TargetConfig;
    use std::sync::Arc;
    use strake_export_net::Protocol;

    /// The time limit of a connection that sent these bytes; tests of the acceptor cover the limit of the whole
    /// handshake.
    #[test]
    fn tls_has_a_time_of_its_own_from_its_first_byte() {
        let (reservation_thread, thread) = ReservationThread::start(Vec::new()).expect("a thread");
        let registry =
            Arc::new(Registry::new(Vec::new(), &TargetConfig::default(), reservation_thread));
        for (said, expected) in [
            (&[][..], None),
            (&[0], None),
            (&[22], Some(TLS_TIME_MAX)),
            (&[22, 3, 1], Some(TLS_TIME_MAX)),
        ] {
            let (mut beginning, _) = registry.greet(None);
            let _ = registry.step(&mut beginning, said, &mut Vec::new());
            assert_eq!(registry.part_time_max(&beginning), expected, "{said:?}");
            assert_eq!(registry.is_costly(&beginning, &[22]), said != [0], "{said:?}");
        }
        registry.reservation_thread.close();
        thread.join().expect("it ends");
    }
}
