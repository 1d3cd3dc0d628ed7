//! What a connection from this machine to itself does without.

use rustix::io::Errno;
use rustix::net::{getpeername, getsockname, sockopt};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// The congestion control that paces, by the beginning of its name (Linux, `net/ipv4/tcp_bbr.c`).
const PACES: &str = "bbr";
/// Those that do not, the first that the machine lets us have; the last is always there.
const INSTEAD: [&str; 2] = ["cubic", "reno"];

/// Where both ends of a connected TCP socket are on this machine, has it not paced. BBR finds out what the path between
/// machines takes and sends no faster, by a timer. Here there is no path, and waiting for the timer costs a third of
/// what memory allows.
///
/// # Errors
/// Those of the kernel, after which the socket is as it was.
pub fn skip_pacing_if_local(socket: impl AsFd) -> Result<(), Errno> {
    let socket = socket.as_fd();
    let Some(there) = getpeername(socket)? else { return Ok(()) };
    let (here, there) = (getsockname(socket)?, SocketAddr::try_from(there)?);
    if !are_one_machine(SocketAddr::try_from(here)?, there) {
        return Ok(());
    }
    if !sockopt::tcp_congestion(socket)?.starts_with(PACES) {
        return Ok(());
    }
    let mut tried = INSTEAD.iter().map(|name| sockopt::set_tcp_congestion(socket, name));
    tried.find(Result::is_ok).unwrap_or(Err(Errno::PERM))
}

/// Whether these are addresses of one machine, as far as they tell.
fn are_one_machine(here: SocketAddr, there: SocketAddr) -> bool {
    let (here, there) = (here.ip().to_canonical(), there.ip().to_canonical());
    here == there || there.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn machines_are_distinguished_by_their_addresses() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert!(are_one_machine(at("192.0.2.1:4420"), at("192.0.2.1:50000")));
        assert!(are_one_machine(at("127.0.0.1:4420"), at("127.0.0.9:50000")));
        assert!(are_one_machine(at("[::ffff:192.0.2.1]:4420"), at("192.0.2.1:50000")));
        assert!(!are_one_machine(at("192.0.2.1:4420"), at("192.0.2.2:50000")));
        assert!(!are_one_machine(at("[2001:db8::1]:4420"), at("[2001:db8::2]:50000")));
    }

    #[test]
    fn what_stays_on_this_machine_is_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let before = sockopt::tcp_congestion(&socket).expect("TCP has one");
        skip_pacing_if_local(&socket).expect("a connected socket");
        let after = sockopt::tcp_congestion(&socket).expect("TCP has one");
        assert!(!after.starts_with(PACES), "{after}");
        assert!(before.starts_with(PACES) || before == after, "{before} did not pace");
    }
}
