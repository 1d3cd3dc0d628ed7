use super::{NOT_SHOWN, Texts, in_order, markdown};
use crate::measure::Samples;
use crate::plot;
use crate::report::{Metric, Report, Row, Target};

/// A report with one row that reaches so much of a goal of 10.
fn report(id: &str, median: f64) -> Report {
    let mut report = Report::new(id, &format!("the work of {id}"));
    let samples = Samples::new(vec![median]);
    let name = format!("case of {id}");
    report.rows.push(Row::new(name, Metric::Bandwidth, &samples, Target::goals(10.0, 20.0)));
    report
}

fn check(reports: &[Report], texts: &[(&str, &str)]) -> String {
    let texts: Texts = texts.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
    markdown(reports, &texts)
}

/// The lines about `id`, from its heading on.
fn part<'a>(page: &'a str, id: &str) -> &'a str {
    let start = page.find(&format!("\n## {id}\n")).expect("a heading") + 1;
    let end = page[start..].find("\n## ").map_or(page.len(), |at| start + at);
    &page[start..end]
}

#[test]
fn goal_moonshot_and_result_stand_side_by_side() {
    let page = check(&[report("G4", 9.0), report("G1", 25.0)], &[]);
    let line = |id: &str| page.lines().find(|line| line.starts_with(id)).expect("a line");
    assert!(line("| [G1](#g1) |").ends_with(
        "| 3x SPDK, 36 M, and >= 70 % of our own raw null | 55 M | 25.0 GB/s | 1 of 1, 1 moonshot |"
    ));
    assert!(
        line("| [G4](#g4) |")
            .ends_with("| 1.2x SPDK and 100 / 75 GB/s | 130 / 100 | 9.00 GB/s | **0 of 1** |")
    );
    assert!(line("| G2 |").ends_with("| not measured | - |"));
}

#[test]
fn what_was_missed_has_its_floor_and_what_was_met_has_none() {
    let reports = [report("G4", 9.0), report("G5", 9.5), report("G1", 25.0)];
    let page = check(&reports, &[("G4", "Memory is read at 9 GB/s.\n"), ("G1", "never shown")]);
    assert!(part(&page, "G4").contains("### What stops G4"));
    assert!(part(&page, "G4").contains("- case of G4: 0.90 of its goal"));
    assert!(part(&page, "G4").contains("Memory is read at 9 GB/s."));
    assert!(part(&page, "G5").contains("Not found out yet: `docs/benchmarks/floors/G5.md`"));
    assert!(!part(&page, "G1").contains("What stops"));
    assert!(!page.contains("never shown"));
}

#[test]
fn the_page_says_what_it_does_not_show_and_where_it_was_measured() {
    let page = check(&[report("G1", 1.0)], &[(NOT_SHOWN, "No real drives.")]);
    assert!(part(&page, "What this does not show").contains("No real drives."));
    assert!(page.contains("G1 ("), "{page}");
}

#[test]
fn a_busy_machine_is_reported() {
    for (others, reported) in
        [(Some(0.03), false), (Some(0.1), true), (Some(1.2), true), (None, false)]
    {
        let mut busy = report("G1", 1.0);
        busy.machine.others = others;
        let text = check(&[busy], &[]);
        assert_eq!(
            text.contains("**Others used the machine** while G1 ran"),
            reported,
            "{others:?}"
        );
    }
}

#[test]
fn many_rows_are_summed_up() {
    let mut many = report("G9", 5.0);
    let row = many.rows[0].clone();
    let another = |at: usize| Row { case: format!("case {at}"), ..row.clone() };
    many.rows.extend((0..30).map(another));
    let page = check(&[many], &[]);
    assert!(page.contains("| 0.50 to 0.50 of the goal, middle 0.50 | **0 of 31** |"), "{page}");
    assert!(part(&page, "G9").contains("31 rows, in [g9.md](g9.md)"));
}

#[test]
fn reports_are_in_the_order_of_the_list_and_the_last_of_two_counts() {
    let all = [report("vendors", 1.0), report("G2", 1.0), report("G2", 15.0)];
    let ordered = in_order(&all);
    let found: Vec<(&str, Option<f64>)> =
        ordered.iter().map(|r| (r.id.as_str(), r.rows[0].median)).collect();
    assert_eq!(found, [("G2", Some(15.0)), ("vendors", Some(1.0))]);
    let picture = plot::overview(&ordered);
    assert!(picture.contains(">G2</text>") && picture.contains("case of vendors"), "{picture}");
}
