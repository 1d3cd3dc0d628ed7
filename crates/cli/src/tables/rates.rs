//! Rates of arrays.

use super::grid::{Column, Grid};
use crate::rates::Report;

/// The rates of each array, and of its members if `has_members`.
#[must_use]
pub fn report(report: &Report, has_members: bool, width: usize) -> String {
    if report.arrays.is_empty() {
        return "No running arrays.\n".to_owned();
    }
    let mut grid = Grid::new(&[
        Column::Word("array"),
        Column::Number("r/s"),
        Column::Number("w/s"),
        Column::Number("rMiB/s"),
        Column::Number("wMiB/s"),
        Column::Number("r_ms"),
        Column::Number("w_ms"),
    ]);
    let rate = |value: f64| format!("{value:.1}");
    let mib = |bytes: f64| format!("{:.2}", bytes / f64::from(1 << 20));
    let ms = |mean: Option<f64>| mean.map_or("-".to_owned(), |mean| format!("{mean:.3}"));
    for array in &report.arrays {
        grid.row([
            array.name.clone(),
            rate(array.reads_per_s),
            rate(array.writes_per_s),
            mib(array.read_bytes_per_s),
            mib(array.write_bytes_per_s),
            ms(array.read_ms),
            ms(array.write_ms),
        ]);
        for member in array.members.iter().filter(|_| has_members) {
            // The bytes of a drive are not counted.
            let none = || "-".to_owned();
            grid.row([
                format!("{}/{}", array.name, member.position),
                rate(member.reads_per_s),
                rate(member.writes_per_s),
                none(),
                none(),
                ms(member.read_ms),
                ms(member.write_ms),
            ]);
        }
    }
    grid.render(width)
}
