//! Reports in a folder: the numbers of each as JSON, and pages and pictures made of those.

use std::path::Path;

use serde::Serialize;
use strake_terminal::output::{Layout, Output, json};

use super::failure::Failure;
use super::tables;
use crate::book::{self, Texts};
use crate::report::{Report, Tally};
use crate::run::RUNS;
use crate::{page, plot};

/// Texts by hand, each named like its goal.
const FLOORS: &str = "floors";

/// What was written again.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The name of the goal.
    pub id: String,
    /// Rows that reach their goal.
    pub goal: usize,
    /// Rows that reach the moonshot.
    pub moonshot: usize,
    /// Rows that fall short.
    pub short: usize,
    /// Rows that could not be measured.
    pub open: usize,
}

impl Written {
    fn new(report: &Report) -> Self {
        let Tally { goal, moonshot, short, open } = report.tally();
        Self { id: report.id.clone(), goal, moonshot, short, open }
    }
}

/// Writes the numbers of `report`.
///
/// # Errors
/// When they cannot be written.
pub fn one(report: &Report, folder: &Path) -> Result<(), Failure> {
    let text = json(report, Layout::Pretty) + "\n";
    write(folder, &[(format!("{}.json", report.id.to_lowercase()), text)])
}

/// Writes every page and picture of the numbers in `folder` again.
///
/// # Errors
/// When there are no numbers, they are of another program, or nothing can be written.
pub fn book(folder: &Path) -> Result<Vec<Report>, Failure> {
    let reports: Vec<Report> =
        RUNS.iter().filter_map(|id| read(folder, id).transpose()).collect::<Result<_, _>>()?;
    if reports.is_empty() {
        let folder = folder.display();
        return Err(Failure::usage(format!(
            "{folder} has no numbers, such as g1.json: write some with strake bench run all --save {folder}"
        )));
    }
    let mut files = Vec::new();
    for report in &reports {
        let name = report.id.to_lowercase();
        files.push((format!("{name}.md"), page::markdown(report)));
        files.push((format!("{name}.svg"), plot::svg(report)));
    }
    files.push(("report.md".to_owned(), book::markdown(&reports, &texts(folder))));
    files.push(("report.svg".to_owned(), plot::overview(&book::in_order(&reports))));
    write(folder, &files)?;
    Ok(reports)
}

/// `strake bench report`.
pub(super) fn again(folder: &Path, out: &Output) -> Result<(), Failure> {
    let reports = book(folder)?;
    let written: Vec<Written> = reports.iter().map(Written::new).collect();
    Ok(out.print(&written, tables::written)?)
}

/// The numbers of one goal; `None` when there are none.
fn read(folder: &Path, id: &str) -> Result<Option<Report>, Failure> {
    let path = folder.join(format!("{}.json", id.to_lowercase()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::io(format_args!("cannot read {}", path.display()), &error));
        }
    };
    let report: Result<Report, _> = serde_json::from_str(&text);
    match report {
        Ok(report) if report.id == id => Ok(Some(report)),
        Ok(report) => {
            let (path, other) = (path.display(), report.id);
            Err(Failure::usage(format!(
                "{path} has the numbers of {other}, and its name says {id}: rename it"
            )))
        }
        Err(error) => {
            let (path, folder) = (path.display(), folder.display());
            Err(Failure::usage(format!(
                "{path} was not written by this program ({error}): measure again with strake bench run {id} --save \
                 {folder}"
            )))
        }
    }
}

/// What is written by hand about goals that are missed, and about what nothing here shows.
fn texts(folder: &Path) -> Texts {
    let names = RUNS.into_iter().chain([book::NOT_SHOWN]);
    let text = |name: &str| {
        let path = folder.join(FLOORS).join(format!("{name}.md"));
        // If there is no text, the page says so. The page is one folder above the text, and so are its links.
        let text = std::fs::read_to_string(path).ok()?;
        Some((name.to_owned(), text.replace("](../", "](")))
    };
    names.filter_map(text).collect()
}

fn write(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .and_then(|()| files.iter().try_for_each(|(n, text)| std::fs::write(folder.join(n), text)))
        .map_err(|e| {
            Failure::io(format_args!("cannot write the report to {}", folder.display()), &e)
        })
}
