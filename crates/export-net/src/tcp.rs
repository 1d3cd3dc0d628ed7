//! Options of accepted TCP sockets.
//!
//! A peer whose machine failed sends nothing, not even the end of the connection. Protocols have time limits for this,
//! but a peer can do without them: NBD has none, and an NVMe host may disable its keep-alive timer. Therefore TCP
//! limits the silence of every peer.

use crate::limits::{DEAD_PEER_TIME_MAX, PROBE_AFTER, PROBE_EVERY};
use rustix::net::sockopt;
use std::os::fd::AsFd;

/// Sets the options of an accepted TCP socket. The connection of a peer whose machine failed ends within
/// [`DEAD_PEER_TIME_MAX`], also while the peer has data to acknowledge. The same applies to a peer that reads nothing
/// for this time although data for it are due.
///
/// A failure of these settings is no reason to reject a peer.
pub fn prepare_accepted(socket: impl AsFd) {
    // Every send is complete, so Nagle's algorithm would only add delay.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    // Probes are sent only while nothing is in flight.
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, PROBE_AFTER);
    let _ = sockopt::set_tcp_keepintvl(&socket, PROBE_EVERY);
    // Without this option, data in flight are sent again for about 15 minutes (tcp(7), tcp_retries2). It also limits
    // the time of unanswered probes; their number then has no effect.
    let _ = sockopt::set_tcp_user_timeout(&socket, DEAD_PEER_TIME_MAX.as_millis() as u32);
}

#[cfg(test)]
mod tests {
    use super::prepare_accepted;
    use crate::limits::{DEAD_PEER_TIME_MAX, PROBE_AFTER, PROBE_EVERY};
    use rustix::net::sockopt;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn accepted_sockets_have_these_options() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let _peer =
            TcpStream::connect(listener.local_addr().expect("its address")).expect("a peer");
        let (socket, _) = listener.accept().expect("the peer");
        prepare_accepted(&socket);
        assert_eq!(sockopt::tcp_nodelay(&socket), Ok(true));
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&socket), Ok(PROBE_AFTER));
        assert_eq!(sockopt::tcp_keepintvl(&socket), Ok(PROBE_EVERY));
        let bound = DEAD_PEER_TIME_MAX.as_millis() as u32;
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(bound));
    }
}
