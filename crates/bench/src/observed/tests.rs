use super::{Company, Point, points, rows};
use crate::report::{Meets, Row};

/// The rows of all points, whose rates are 100 but for those in `company`.
fn check(company: Company, found: &Result<Vec<f64>, String>) -> Vec<Row> {
    let mut points: Vec<Point> = points();
    for point in &mut points {
        let is_it = point.company == company;
        point.found = if is_it { found.clone() } else { Ok(vec![100.0, 100.0, 100.0]) };
    }
    rows(&points)
}

fn short(rows: &[Row]) -> usize {
    rows.iter().filter(|row| row.goal.is_some() && row.meets == Meets::None).count()
}

#[test]
fn a_tenth_may_be_lost_to_company() {
    let all = check(Company::Watched, &Ok(vec![90.0, 200.0, 10.0]));
    assert_eq!((all.len(), short(&all)), (12 + 7, 0));
    let fewer = check(Company::Watched, &Ok(vec![89.0, 89.0, 89.0]));
    assert_eq!(short(&fewer), 3, "RAID 0 reads, RAID 6 reads and writes");
    let slower_reference = check(Company::MemberOut, &Ok(vec![200.0, 200.0, 200.0]));
    assert_eq!(short(&slower_reference), 2, "the paused rebuild is compared with a member out");
}

#[test]
fn what_cannot_be_measured_says_why() {
    let rows = check(Company::CopyPaused, &Err("there is no drive".to_owned()));
    let open: Vec<&Row> = rows.iter().filter(|row| row.median.is_none()).collect();
    assert_eq!(open.len(), 4);
    assert!(open.iter().all(|row| row.note.contains("there is no drive")));
}

#[test]
fn rows_have_names_of_their_own() {
    let rows = check(Company::None, &Ok(Vec::new()));
    let names: std::collections::BTreeSet<&str> = rows.iter().map(|r| r.case.as_str()).collect();
    assert_eq!(names.len(), rows.len());
}
