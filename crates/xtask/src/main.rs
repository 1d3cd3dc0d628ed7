//! Project automation: `cargo xtask COMMAND`.
//!
//! **What it is.** The checks of the rules in STYLE.md (`tidy`), and the command that both developers and continuous
//! integration run (`ci`). STYLE.md states the check of each rule.
//!
//! **What it must never do.** Change a source file, except for `fmt` and for generated files. It decides nothing about
//! RAID and no crate may depend on it. It needs nothing but cargo and the standard tools of a Linux machine; a step
//! whose tool is missing is reported as skipped, with the reason, never as passed.
//!
//! **Where to start.** [`tidy`] for the rules about sources, [`ci`] for the steps, [`run`] for how a step is run and
//! counted, [`sim`] for crashes and worlds, [`scenarios`] for the catalogue of scenarios.

#![forbid(unsafe_code)]

mod ci;
mod e2e;
mod flamegraph;
mod instructions;
mod model;
mod mutants;
mod nightly;
mod releases;
mod run;
mod scenarios;
mod sim;
mod suite;
mod tidy;
mod write_log;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  tidy        check the house rules that no compiler checks, print the longest files and functions
  api         write crates/api/generated: the code and the descriptors that strake.proto gives
  monitoring  write packaging/prometheus and packaging/grafana: the rules of alerts, their tests and the dashboard
  fmt         format every crate
  clippy      lint every crate and every test, warnings are errors
  doc         build the documentation, warnings are errors
  deny        check licences, bans and sources of dependencies, and advisories when they can be fetched
  miri        run the pure crates, the buffers and the portable parity code under Miri (slow)
  test        run the tests of the workspace, crash states, worlds of the simulator and the end-to-end scripts
  instructions
              count the instructions and allocations of requests with valgrind; 5 % more
              instructions than docs/benchmarks/instructions.json has fail, and more
              than one allocation in 50 requests; --update writes the file
  flamegraph  record the data core under the load of G1 and of G2 with perf; writes docs/benchmarks/flame-g1.svg and
              flame-g2.svg
  ci          all of the above, formatting only checked: what continuous integration runs
  nightly     the long checks: 3000000 crash states, pairs of events, 300000 corruptions, 200000 worlds, mutants,
              100000 stripes per parity kernel, fuzzing, Miri, aarch64 under emulation, the parity of Linux md,
              kill -9, power cuts, NVMe/TCP hosts and a target in a guest, faults without merging, steering and
              caching, all of `strake bench run G9`; what this machine lacks is skipped with the reason
                [--minutes N] only what looks for lost data (crash states, pairs, corruptions, worlds, mutants), in so
                many minutes; all counts in a closing line of JSON
  crash       cut short histories of small arrays at every write and look at what comes of every state
                --states N [--seed S]; a closing line of JSON
                --pairs [--seed S] every cut of the smallest ones with every member lost in it, and more; the same
                --restart N [--seed S] the time to the first answers after a kill, of arrays of modelled
                drives of 7.68 TB: fast and slow ones, 8 and 64, and with a drive that hangs on the way
  corrupt     write over any 4 KiB of any one member of arrays that are not in use, and start them
                --runs N [--seed S]; a closing line of JSON
  sim         worlds of the simulator, those that failed once first
                --seeds N [--seed S]; a closing line of JSON
                --shrink SEED makes one that fails as small as it still fails
  model       run TLC on the specification in docs/model and compare states and diameters with the record; without
              tla2tools.jar (TLA2TOOLS_JAR) it is skipped, with the reason
                [TEXT] the configurations with TEXT in their name; a line of JSON for each
  mutants     patch seeded bugs of the folder mutants into a copy one by one, and see which tier finds each
                [TEXT] those with TEXT in their name; a closing line of JSON
  scenarios   list every scenario of docs/scenarios.md with the tests that show it, and check that they exist
                [--output json] [--filter TEXT]
                [--repeat N] run the Rust tests among them N times
  write-log   take apart and replay what QEMU's blklogwrites wrote down of a drive
                cuts LOG, or apply LOG --from A --to B --slice BYTES [--some SEED] IMAGE...
  releases    print what this version and those before it make of labels of each format
                --write puts that into docs/on-disk.md
  hash-docs   print the lines that tie format sources to their documents
";

fn main() -> ExitCode {
    let root = repository_root();
    let command = std::env::args().nth(1).unwrap_or_default();
    let steps: Vec<ci::Step> = match command.as_str() {
        "tidy" => vec![ci::TIDY],
        "api" => vec![ci::API],
        "monitoring" => vec![ci::MONITORING],
        "fmt" => vec![ci::FORMAT],
        "clippy" => vec![ci::CLIPPY],
        "doc" => vec![ci::DOC],
        "deny" => vec![ci::DENY, ci::ADVISORIES],
        "miri" => vec![ci::MIRI_BUFFERS, ci::MIRI_PARITY, ci::MIRI_PURE],
        "test" => vec![ci::TEST, ci::CRASH, ci::CORRUPT, ci::SIM, ci::BINARIES, ci::END_TO_END],
        "instructions" if std::env::args().nth(2).as_deref() == Some("--update") => {
            vec![ci::KEEP_INSTRUCTIONS]
        }
        "instructions" => vec![ci::INSTRUCTIONS],
        "flamegraph" => vec![ci::FLAMEGRAPH],
        "ci" => return ci::all(&root),
        "nightly" if std::env::args().nth(2).is_some() => {
            return nightly::run(&root, &std::env::args().skip(2).collect::<Vec<_>>());
        }
        "nightly" => ci::NIGHTLY.to_vec(),
        "crash" | "corrupt" | "sim" => {
            return sim::run(&root, &command, &std::env::args().skip(2).collect::<Vec<_>>());
        }
        "model" => return model::run(&root, std::env::args().nth(2).as_deref()),
        "mutants" => return mutants::run(&root, std::env::args().nth(2).as_deref()),
        "scenarios" => return scenarios::run(&root, &std::env::args().skip(2).collect::<Vec<_>>()),
        "hash-docs" => return hash_docs(&root),
        "releases" => {
            return releases::run(&root, &std::env::args().skip(2).collect::<Vec<_>>());
        }
        "write-log" => {
            return write_log::run(&std::env::args().skip(2).collect::<Vec<_>>());
        }
        "" | "help" | "-h" | "--help" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: there is no command {other:?}\n\n{USAGE}");
            return ExitCode::from(3);
        }
    };
    ci::run(&root, &steps)
}

/// The checkout this binary was built from: two folders above this crate.
fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

fn hash_docs(root: &Path) -> ExitCode {
    match tidy::repo::Repo::load(root) {
        Ok(repo) => {
            print!("{}", tidy::formats::lines_to_paste(&repo));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: cannot read the repository: {error}");
            ExitCode::FAILURE
        }
    }
}
