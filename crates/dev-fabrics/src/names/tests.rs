//! Resolution of names that succeeds, never returns, or returns late.

use super::places_by;
use crate::address::Address;
use crate::error::Reason;
use crate::stream::Until;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

fn address(machine: &str) -> Address {
    format!("nvme-tcp://{machine}/nqn.2014-08.org.example:a").parse().expect("an address")
}

fn soon() -> Until {
    Until::within(Duration::from_millis(1))
}

fn late() -> Until {
    Until::within(Duration::from_secs(60))
}

fn place(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

#[test]
fn a_name_means_what_is_answered() {
    let known = |name: &str, port| {
        assert_eq!((name, port), ("store", 4420));
        Ok(vec![place(8009)])
    };
    assert_eq!(places_by(&address("store"), late(), known), Ok(vec![place(8009)]));
    let unknown = |_: &str, _| Err(io::ErrorKind::NotFound.into());
    assert_eq!(places_by(&address("store"), late(), unknown), Err(Reason::NoSuchMachine));
    let no_answer = |_: &str, _| -> io::Result<Vec<SocketAddr>> { panic!("nobody is asked") };
    let place = SocketAddr::new("::1".parse().expect("an address"), 7);
    assert_eq!(places_by(&address("[::1]:7"), late(), no_answer), Ok(vec![place]));
}

/// A resolver may not return: a path once waited for it without a limit. Later, each attempt left a thread behind that
/// kept waiting.
#[test]
fn a_name_that_is_not_resolved_in_time_is_waited_for_once() {
    let (end, is_over) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let silent = move |_: &str, _| {
        begun.send(()).expect("the test waits for it");
        // The resolver returns when the test sends.
        let _ = is_over.recv();
        Ok(vec![place(1)])
    };
    let name = address("silent");
    let refused = places_by(&name, soon(), silent);
    assert!(matches!(refused, Err(Reason::NamesSilent | Reason::Silent)), "{refused:?}");
    has_begun.recv().expect("it was asked");
    let other = |_: &str, _| Ok(vec![place(2)]);
    assert_eq!(places_by(&address("other"), late(), other), Ok(vec![place(2)]));

    let (again, was_asked) = mpsc::channel();
    let asked_again = move |_: &str, _| {
        again.send(()).expect("the test waits for it");
        Ok(vec![place(2)])
    };
    let refused = places_by(&name, soon(), asked_again);
    assert!(matches!(refused, Err(Reason::NamesSilent | Reason::Silent)), "{refused:?}");
    assert!(was_asked.recv().is_err(), "whoever could have asked is gone");
    drop(end);
    let answer = places_by(&name, late(), other);
    assert!([Ok(vec![place(1)]), Ok(vec![place(2)])].contains(&answer), "{answer:?}");
}
