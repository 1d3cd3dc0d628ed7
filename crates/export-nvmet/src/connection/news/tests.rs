use super::News;
use crate::controller::{Controller, Host};
use crate::namespace::Export;
use crate::registry::Registry;
use crate::reservation_thread::ReservationThread;
use crate::subsystem::Subsystem;
use crate::target::TargetConfig;
use std::sync::Arc;
use std::thread;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::log::{Request, page};
use strake_nvme_wire::reservation::NoticeKind;

/// A controller, and the registry for other events.
fn controller() -> (Arc<Controller>, Registry) {
    let export = Export {
        nqn: String::new(),
        namespace: 1,
        uuid: [1; 16],
        device: None,
        read_only: false,
        ledger: None,
        hosts: Vec::new(),
        secure: false,
        limits: None,
    };
    let host = Host { nqn: String::new(), id: [1; 16] };
    let subsystem = Some(Arc::new(Subsystem::of(&export, 1)));
    let controller = Arc::new(Controller::new(1, host, subsystem, Vec::new()));
    let (reservation_thread, _thread) = ReservationThread::start(Vec::new()).expect("a thread");
    // No request is sent to it here.
    reservation_thread.close();
    (controller, Registry::new(Vec::new(), &TargetConfig::default(), reservation_thread))
}

const NOTICES: Request =
    Request { page: page::RESERVATION, specific: 0, length: 64, offset: 0, retains_event: false };

#[test]
fn a_notice_from_before_the_admin_queue_was_opened_is_news() {
    let (controller, registry) = controller();
    controller.notify(NoticeKind::ReservationPreempted, 1);
    let mut news = News::of(&controller, &registry);
    assert_eq!(news.next(0, &controller, &registry), Some(event::RESERVATION_RESULT));
    assert_eq!(news.next(0, &controller, &registry), None, "once");
    let read = news.read_notice(&NOTICES, &controller).map(|notice| notice.number);
    assert_eq!((read, news.next(0, &controller, &registry)), (Some(1), None), "that was all");
}

/// A host that finds no notice and receives no event has read all notices, even if notices arrive during the read. A
/// notice that arrived between the read and its record was never reported.
#[test]
fn no_notice_is_left_that_no_host_is_sent() {
    let (controller, registry) = controller();
    let mut news = News::of(&controller, &registry);
    for round in 0..100 {
        let source = Arc::clone(&controller);
        let other = thread::spawn(move || {
            (0..20).for_each(|_| source.notify(NoticeKind::ReservationReleased, 1));
        });
        let read = |news: &mut News| while news.read_notice(&NOTICES, &controller).is_some() {};
        while !other.is_finished() {
            read(&mut news);
        }
        other.join().expect("no panic");
        while news.next(0, &controller, &registry).is_some() {
            read(&mut news);
        }
        assert_eq!(controller.notices().first(), None, "round {round}");
    }
}
