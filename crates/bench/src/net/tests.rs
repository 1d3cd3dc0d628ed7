use std::collections::BTreeSet;
use std::time::Duration;

use super::{About, Bench, Neighbour, Peer, answer, lines};
use crate::report::{Meets, Report, Row};
use crate::scenario::Options;

#[test]
fn rows_have_names_of_their_own() {
    let names: BTreeSet<String> = lines().iter().map(super::Line::name).collect();
    assert_eq!(names.len(), lines().len());
    assert!(names.contains("nvme-tcp randread 4KiB qd128 null cores=1"), "{names:?}");
    assert!(names.contains("nvme-tcp write 128KiB qd32 ram cores=1"), "{names:?}");
}

/// Every kind of row has a number, and every neighbour is one that the target lets in as far as it should.
#[test]
fn what_is_asked_is_measured() {
    for filter in ["randread 4KiB qd1 null", "write 128KiB qd32 ram", "digests", "p99 beside"] {
        let options = Options {
            filter: Some(filter.to_owned()),
            repeats: Some(1),
            span: Duration::from_millis(5),
            ..Options::default()
        };
        let mut report = Report::new("net", "");
        answer(&mut report, &options, None, |_| {});
        let wanted = lines().iter().filter(|line| line.name().contains(filter)).count();
        assert_eq!(report.rows.len(), wanted);
        for row in &report.rows {
            assert!(row.median.is_some_and(|median| median > 0.0), "{}: {}", row.case, row.note);
        }
    }
    let goal = |about| lines().iter().find(|line| line.about == about).unwrap().target().goal;
    assert!(goal(About::Beside(Neighbour::Floods)).is_some_and(|goal| goal < 2.0));
    assert_eq!(goal(About::Beside(Neighbour::FloodsElsewhere)), None);
}

/// Another target of ours is the peer: every line has a row of its own, one of the peer's, and one that divides them.
#[test]
fn a_peer_stands_beside_ours() {
    let other = Bench::new((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let [null, _] = other.addresses();
    let peer = Peer { address: null.parse().unwrap(), process: None };
    let options = Options {
        filter: Some("randread 4KiB qd32 null".to_owned()),
        repeats: Some(3),
        span: Duration::from_millis(5),
        ..Options::default()
    };
    let mut report = Report::new("net", "");
    answer(&mut report, &options, Some(&peer), |_| {});
    let named = |name: &str| report.rows.iter().find(|row| row.case == name).unwrap();
    let plain = "nvme-tcp randread 4KiB qd32 null cores=1";
    let times = named(&format!("{plain} times the peer"));
    assert!(named(&format!("{plain} peer")).median.is_some_and(|median| median > 0.0));
    assert_eq!((times.goal, times.repeats), (Some(1.0), 3));
    assert!(!report.rows.iter().any(|row| row.case.contains("digests times")));
}

/// A round is divided by its own round, and what the peer could not do has no number.
#[test]
fn rounds_are_compared_with_themselves() {
    let line = super::Line::of(crate::scenario::Case::RAW);
    let [_, times] = line.rows_beside(&Ok(vec![2.0, 9.0, 8.0]), &Ok(vec![4.0, 3.0, 2.0]));
    assert_eq!((times.median, times.meets), (Some(3.0), Meets::Moonshot));
    let [theirs, times] = line.rows_beside(&Ok(vec![2.0]), &Err("it is gone".to_owned()));
    let open = |row: &Row| (row.median, row.note.clone());
    assert_eq!(open(&theirs), (None, "it is gone".to_owned()));
    assert_eq!(open(&times), (None, "it is gone".to_owned()));
}
