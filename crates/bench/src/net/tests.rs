use std::collections::BTreeSet;
use std::time::Duration;

use super::{About, answer, lines};
use crate::report::Report;
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
        answer(&mut report, &options, |_| {});
        let wanted = lines().iter().filter(|line| line.name().contains(filter)).count();
        assert_eq!(report.rows.len(), wanted);
        for row in &report.rows {
            assert!(row.median.is_some_and(|median| median > 0.0), "{}: {}", row.case, row.note);
        }
    }
    let beside = |line: &super::Line| matches!(line.about, About::Beside(_));
    assert!(lines().iter().filter(|line| beside(line)).all(|line| line.target().goal.is_some()));
}
