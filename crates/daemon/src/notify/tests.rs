use super::{Environment, Message, Pace, Service, address, datagram, summary};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use strake_api::v1::Array;
use strake_testkit::Folder;

const PID: u32 = 77;

fn environment(socket: &str) -> Environment {
    Environment { socket: Some(socket.into()), ..Environment::default() }
}

fn received(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 512];
    let length = socket.recv(&mut bytes).expect("a datagram has arrived");
    String::from_utf8(bytes[..length].to_vec()).expect("it is text")
}

#[test]
fn messages_are_lines_and_a_status_stays_one() {
    let check = |messages: &[Message], want: &str| assert_eq!(datagram(messages), want);
    check(&[], "");
    check(&[Message::Stopping], "STOPPING=1\n");
    check(&[Message::Ready, Message::Status("on".into())], "READY=1\nSTATUS=on\n");
    check(&[Message::Alive], "WATCHDOG=1\n");
    check(&[Message::Status("a\nREADY=1\r".into())], "STATUS=a READY=1 \n");
}

#[test]
fn paths_and_abstract_sockets_receive_messages() {
    let folder = Folder::new("straked-notify");
    let path = folder.join("notify");
    let bound = UnixDatagram::bind(&path).expect("the path is free");
    let service = Service::new(&environment(path.to_str().expect("it is text")), PID);
    service.send(&[Message::Ready]);
    assert_eq!(received(&bound), "READY=1\n");

    let name = format!("straked-notify-{}", std::process::id());
    let to = SocketAddr::from_abstract_name(&name).expect("it is short");
    let bound = UnixDatagram::bind_addr(&to).expect("the name is free");
    let service = Service::new(&environment(&format!("@{name}")), PID);
    service.send(&[Message::Stopping, Message::Status("stopping".into())]);
    assert_eq!(received(&bound), "STOPPING=1\nSTATUS=stopping\n");
}

/// If the service manager cannot be reached, the daemon serves nevertheless.
#[test]
fn a_manager_that_cannot_be_reached_is_no_failure() {
    for wrong in ["relative", "vsock:2:1234", "/no/such/socket", &format!("/{}", "x".repeat(200))] {
        Service::new(&environment(wrong), PID).send(&[Message::Ready]);
    }
    assert!(address("relative".as_ref()).is_err());
    assert!(address(format!("/{}", "x".repeat(200)).as_ref()).is_err());
    Service::new(&Environment::default(), PID).send(&[Message::Ready]);
}

#[test]
fn the_watchdog_is_that_of_this_process() {
    let check = |us: Option<&str>, pid: Option<&str>, want: Option<u64>| {
        let environment = Environment {
            watchdog_us: us.map(Into::into),
            watchdog_pid: pid.map(Into::into),
            ..Environment::default()
        };
        assert_eq!(environment.period(PID), want.map(Duration::from_micros), "{us:?} {pid:?}");
    };
    check(None, None, None);
    check(Some("30000000"), None, Some(30_000_000));
    check(Some("30000000"), Some("77"), Some(30_000_000));
    check(Some("30000000"), Some("78"), None);
    check(Some("30000000"), Some("x"), None);
    check(Some("0"), None, None);
    check(Some("-1"), None, None);
    check(Some("soon"), None, None);
}

#[test]
fn four_messages_fit_into_a_period() {
    let folder = Folder::new("straked-watchdog");
    let path = folder.join("notify");
    let _bound = UnixDatagram::bind(&path).expect("the path is free");
    let every = |socket: Option<&str>, watchdog_us: Option<&str>| {
        let environment = Environment {
            socket: socket.map(Into::into),
            watchdog_us: watchdog_us.map(Into::into),
            watchdog_pid: None,
        };
        Service::new(&environment, PID).every()
    };
    assert_eq!(every(path.to_str(), Some("8000000")), Some(Duration::from_secs(2)));
    // The status remains current without a watchdog, and with a long period.
    assert_eq!(every(path.to_str(), None), Some(Duration::from_secs(10)));
    assert_eq!(every(path.to_str(), Some("300000000")), Some(Duration::from_secs(10)));
    // No message could be sent.
    assert_eq!(every(None, Some("8000000")), None);

    let (start, mut pace) = (Instant::now(), Pace::new(Some(Duration::from_secs(2))));
    let at = |s| start + Duration::from_secs(s);
    let due: Vec<bool> = [0, 1, 2, 3, 5, 6].into_iter().map(|s| pace.is_due(at(s))).collect();
    assert_eq!(due, [true, false, true, false, true, false]);
    assert!(!Pace::new(None).is_due(start));
}

#[test]
fn the_status_names_arrays_that_are_not_only_online() {
    let array = |name: &str, states: &[&str]| Array {
        name: name.into(),
        states: states.iter().map(ToString::to_string).collect(),
        ..Array::default()
    };
    let check = |arrays: Vec<Array>, want: &str| assert_eq!(summary(&arrays), want);
    check(vec![], "Serving, no arrays");
    check(vec![array("a", &["online"])], "Serving 1 array, all online");
    let two = vec![array("a", &["online"]), array("b", &["online", "degraded"])];
    check(two, "Serving 2 arrays: b degraded");
    let six = (0..6).map(|n| array(&format!("a{n}"), &["starting"])).collect();
    let want = "Serving 6 arrays: a0 starting, a1 starting, a2 starting, a3 starting and 2 more";
    check(six, want);
}
