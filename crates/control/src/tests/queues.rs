//! The counters of NVMe/TCP queues, as both sides report them.

use super::life::write;
use super::remote::{HOST, Machine, connect};
use super::{Testbed, check_refused, raid6};
use crate::error::ControlErrorKind;
use std::collections::BTreeSet;
use strake_api::v1::{Controller, CreateArrayRequest, Queue};

#[test]
fn an_export_tells_its_hosts_and_what_their_queues_have_done() {
    let machine = Machine::new(1);
    let reported = || {
        let export = machine.control.run(|m| m.export("lun0")).expect("it is offered");
        assert_eq!(export.connections as usize, all(&export.controllers).count());
        export.controllers
    };
    let unknown = machine.control.run(|m| m.export("lun7"));
    check_refused(unknown, ControlErrorKind::NotFound, "existing names: lun0");
    assert_eq!(reported(), [], "nobody is connected");

    let control = Testbed::new();
    let address = machine.addresses[0].clone();
    connect(&control, &address).expect("it is connected");
    let create = CreateArrayRequest { level: "0".into(), ..raid6(vec![address]) };
    control.create_array(&create).expect("it is created");
    write(&control, "tank", 3);

    let controllers = reported();
    let [host] = &controllers[..] else { panic!("one host: {controllers:?}") };
    assert_eq!((host.nqn.as_str(), host.keep_alive_ms), (HOST, 3000));
    let admin = &host.queues[0];
    assert_eq!((admin.number, admin.reads, admin.writes), (0, 0, 0));
    assert!(admin.others > 0 && admin.sent_bytes > 0, "it was asked what there is");
    let sum = |of: fn(&Queue) -> u64| -> u64 { all(&controllers).map(of).sum() };
    assert!(sum(|queue| queue.writes) >= 3, "a command moves 1 MiB at most");
    assert!(sum(|queue| queue.received_bytes) >= 3 << 20);
    for queue in all(&controllers) {
        assert!(queue.address.starts_with("127.0.0.1:"), "{}", queue.address);
        assert!(queue.header_digest && queue.data_digest && !queue.tls, "as drives ask for");
    }

    let drive = control.drive(&machine.addresses[0]).expect("it is connected");
    assert_eq!((drive.association, drive.reconnects), (1, 0));
    let sum = |of: fn(&Queue) -> u64| -> u64 { drive.queues.iter().map(of).sum() };
    assert!(sum(|queue| queue.writes) >= 3 && sum(|queue| queue.sent_bytes) >= 3 << 20);
    assert!(drive.queues.iter().all(|queue| (queue.association, queue.held) == (1, 0)));
    let numbers = |queues: &[Queue]| queues.iter().map(|q| q.number).collect::<BTreeSet<_>>();
    let theirs = numbers(&host.queues[1..]);
    assert_eq!(numbers(&drive.queues), theirs, "both sides know them by the same numbers");
}

fn all(controllers: &[Controller]) -> impl Iterator<Item = &Queue> {
    controllers.iter().flat_map(|controller| &controller.queues)
}
