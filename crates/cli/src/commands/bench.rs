//! `strake bench ...`.

use crate::args::bench::{BenchRun, BenchVerb, Benchmark};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::{Layout, Output, json};
use crate::tables;
use clap::ValueEnum;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use strake_bench::{Report, g9, page, plot};
use strake_parity::Kernel;

/// Carries out `verb`.
///
/// # Errors
/// When the kernel that is asked for is not on this machine, or the answer cannot be written.
pub fn run(verb: BenchVerb, out: &Output) -> Result<Exit, CliError> {
    match verb {
        BenchVerb::List => out.print(&list(), tables::bench::list)?,
        BenchVerb::Run(arguments) => measure(&arguments, out)?,
    }
    Ok(Exit::Fine)
}

/// Names and descriptions, as the help of `bench run` has them.
fn list() -> Vec<(String, String)> {
    let values = Benchmark::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values
        .map(|v| {
            (v.get_name().to_owned(), v.get_help().map(ToString::to_string).unwrap_or_default())
        })
        .collect()
}

fn measure(arguments: &BenchRun, out: &Output) -> Result<(), CliError> {
    let options = g9::Options {
        filter: arguments.filter.clone(),
        repeats: usize::from(arguments.repeats),
        isal: arguments.isal.clone(),
        kernel: kernel(arguments.kernel.as_deref())?,
    };
    let report = match arguments.benchmark {
        Benchmark::G9 => g9::run(&options, progress),
    };
    progress("");
    if report.rows.is_empty() {
        let text = arguments.filter.as_deref().unwrap_or_default();
        return Err(CliError::usage(format!(
            "no case has {text:?} in its name: see the names with --output json"
        )));
    }
    if let Some(folder) = &arguments.save {
        save(&report, folder)?;
    }
    out.print(&report, tables::bench::report)
}

fn kernel(name: Option<&str>) -> Result<Kernel, CliError> {
    let Some(name) = name else {
        return Ok(Kernel::fit());
    };
    Kernel::named(name).ok_or_else(|| {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        CliError::usage(format!("no kernel {name:?} runs here: use one of {}", names.join(", ")))
    })
}

/// Says on a terminal what is being measured, in place.
fn progress(what: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A terminal that is gone must not end the measurement.
        let _ = write!(stderr, "\r\x1b[K{what}").and_then(|()| stderr.flush());
    }
}

fn save(report: &Report, folder: &Path) -> Result<(), CliError> {
    let name = report.benchmark.to_lowercase();
    let files = [
        (format!("{name}.json"), json(report, Layout::Pretty) + "\n"),
        (format!("{name}.md"), page::markdown(report)),
        (format!("{name}.svg"), plot::svg(report)),
    ];
    std::fs::create_dir_all(folder)
        .and_then(|()| files.iter().try_for_each(|(n, text)| std::fs::write(folder.join(n), text)))
        .map_err(|e| {
            CliError::io(format_args!("cannot write the report to {}", folder.display()), &e)
        })
}
