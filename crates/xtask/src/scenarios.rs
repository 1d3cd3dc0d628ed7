//! `cargo xtask scenarios`: which test shows which scenario, and which scenario nothing shows yet.

pub mod catalogue;
mod ids;
mod repeat;

#[cfg(test)]
mod tests;

pub use ids::all as ids;

use std::path::Path;
use std::process::ExitCode;

use catalogue::{Scenario, Shown};

use crate::run::Outcome;
use crate::tidy::repo::Repo;

/// Exit code for a command line that makes no sense.
const EXIT_USAGE: u8 = 3;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    json: bool,
    repeat: Option<u32>,
    filter: String,
}

/// Lists the scenarios, or repeats their tests. Fails when the catalogue claims what is not so.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let wish = match parse(arguments) {
        Ok(wish) => wish,
        Err(why) => {
            eprintln!("xtask scenarios: {why}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match answer(root, &wish) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask scenarios: cannot read the repository: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Wish, String> {
    let mut wish = Wish::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--output" => match value()?.as_str() {
                "json" => wish.json = true,
                "table" => wish.json = false,
                other => return Err(format!("--output is json or table, not {other:?}")),
            },
            "--repeat" => {
                let text = value()?;
                let times = text.parse().ok().filter(|n| *n > 0);
                wish.repeat =
                    Some(times.ok_or(format!("--repeat takes a number from 1 on, not {text:?}"))?);
            }
            "--filter" => wish.filter = value()?.to_lowercase(),
            other => return Err(format!("there is no option {other:?}; see cargo xtask help")),
        }
    }
    Ok(wish)
}

fn answer(root: &Path, wish: &Wish) -> std::io::Result<bool> {
    let repo = Repo::load(root)?;
    let findings = catalogue::check(&repo);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let mut scenarios =
        catalogue::parse(repo.files.get(catalogue::PATH).map_or("", String::as_str));
    scenarios.retain(|s| chosen(s, &wish.filter));
    if let Some(times) = wish.repeat {
        let Outcome { tally, note, .. } = repeat::run(root, &repo, &scenarios, times);
        println!("{} passed, {} failed: {note}", tally.passed, tally.failed);
        return Ok(findings.is_empty() && tally.failed == 0);
    }
    if wish.json {
        println!("{}", serde_json::to_string_pretty(&scenarios)?);
    } else {
        print!("{}", table(&scenarios));
    }
    Ok(findings.is_empty())
}

/// A scenario is chosen by a part of its id or of one of its tests, in any case of letters.
fn chosen(scenario: &Scenario, filter: &str) -> bool {
    let names = std::iter::once(&scenario.id).chain(scenario.claims());
    names.map(|name| name.to_lowercase()).any(|name| name.contains(filter))
}

fn table(scenarios: &[Scenario]) -> String {
    let mut text = String::new();
    let width = scenarios.iter().map(|s| s.id.len()).max().unwrap_or(0);
    for scenario in scenarios {
        let Scenario { id, meaning, tests, note, .. } = scenario;
        let count = match tests {
            Shown::By(tests) if tests.len() == 1 => "1 test".to_string(),
            Shown::By(tests) => format!("{} tests", tests.len()),
            Shown::NoneYet(words) => (*words).to_string(),
        };
        text += &format!("{id:width$}  {count:8}  {meaning}");
        text += &if note.is_empty() { "\n".to_string() } else { format!(" ({note})\n") };
        scenario.claims().iter().for_each(|test| text += &format!("{:width$}    {test}\n", ""));
    }
    let shown = scenarios.iter().filter(|s| !s.claims().is_empty()).count();
    text + &format!("\n{shown} of {} scenarios have a test\n", scenarios.len())
}
