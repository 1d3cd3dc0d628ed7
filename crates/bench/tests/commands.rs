//! `strake-bench` needs no daemon: numbers are saved, pages are written from them again, nonsense is refused, and the
//! examples of its help run.

use clap::{Command, CommandFactory as _};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use strake_bench::folder::Folder;
use strake_bench::program::args::Cli;
use strake_terminal::examples;

/// What a command printed.
struct Ran {
    stdout: String,
    stderr: String,
}

/// Runs `strake-bench` with the arguments after `bench` of `line` in `folder`, and compares the exit code.
fn check(folder: &Path, line: &str, code: i32) -> Ran {
    let arguments = line.strip_prefix("bench ").expect("it is a command of strake bench");
    let output = Process::new(env!("CARGO_BIN_EXE_strake-bench"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("strake-bench runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    let (ended, ran) =
        (output.status.code(), Ran { stdout: text(output.stdout), stderr: text(output.stderr) });
    assert_eq!(ended, Some(code), "{line}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    ran
}

const RUN: &str = "bench run G2 --repeats 1 --milliseconds 10 --save .";

#[test]
fn pages_are_written_from_saved_numbers_again() {
    let folder = Folder::new("report").expect("a folder");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    check(folder.path(), RUN, 0);
    let (numbers, page) = (read("g2.json"), read("report.md"));
    assert!(page.contains("Not found out yet: `docs/benchmarks/floors/G2.md`"), "{page}");
    std::fs::remove_file(folder.path().join("g2.svg")).expect("there was a plot");
    std::fs::create_dir(folder.path().join("floors")).expect("a folder");
    std::fs::write(folder.path().join("floors/G2.md"), "It takes time.").expect("a text");
    let ran = check(folder.path(), "bench report .", 0);
    assert!(ran.stdout.contains("G2"), "{}", ran.stdout);
    assert_eq!(read("g2.json"), numbers, "numbers stay as they were measured");
    assert!(read("report.md").contains("It takes time."));
    assert!(read("g2.svg").starts_with("<svg") && read("report.svg").starts_with("<svg"));
}

#[test]
fn what_is_no_saved_number_is_refused_with_a_remedy() {
    for (name, text, said) in [
        ("nothing.json", "", "has no numbers"),
        ("g9.json", r#"{"benchmark": "G9"}"#, "bench run G9 --save"),
    ] {
        let folder = Folder::new("refused").expect("a folder");
        std::fs::write(folder.path().join(name), text).expect("a file");
        let ran = check(folder.path(), "bench report .", 3);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
        assert!(!folder.path().join("report.md").exists());
    }
    let folder = Folder::new("renamed").expect("a folder");
    check(folder.path(), RUN, 0);
    std::fs::rename(folder.path().join("g2.json"), folder.path().join("g1.json")).expect("renamed");
    let ran = check(folder.path(), "bench report .", 3);
    assert!(ran.stderr.contains("has the numbers of G2"), "{}", ran.stderr);
}

#[test]
fn what_changes_nothing_is_refused() {
    let folder = Folder::new("nonsense").expect("a folder");
    for (line, said) in [
        ("bench run G1 --compare fio", "--compare is about G14"),
        ("bench run latency --compare nothing", "--compare is about G14"),
        ("bench run G14 --compare md", "possible values: fio, nothing"),
        ("bench run contentions", "contention"),
        ("bench run observed --filter nobody-is-called-this", "no case has"),
    ] {
        let ran = check(folder.path(), line, 3);
        assert!(ran.stderr.contains(said), "{line}: {}", ran.stderr);
    }
}

/// Calls `each` with every command below `command`, itself included, and the words that lead to it.
fn walk(command: &Command, words: &str, each: &mut impl FnMut(&str, &Command)) {
    each(words, command);
    for below in command.get_subcommands() {
        walk(below, &format!("{words} {}", below.get_name()), each);
    }
}

#[test]
fn every_command_has_an_example_that_parses() {
    walk(&Cli::command(), "strake bench", &mut |words, command| {
        let examples = examples::of(command);
        assert!(!examples.is_empty(), "the help of `{words}` has no example");
        for example in examples {
            assert!(example.starts_with(words), "{example:?} is no example of `{words}`");
            assert!(example.len() <= 78, "{example:?} is folded on a narrow screen");
            let arguments = example.split(' ').skip(1).take_while(|word| *word != ">");
            if let Err(error) = Cli::command().try_get_matches_from(arguments) {
                panic!("{example}: {error}");
            }
        }
    });
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let folder = Folder::new("manual").expect("a folder");
    check(folder.path(), "bench man pages", 0);
    let page =
        |name: &str| std::fs::read_to_string(folder.path().join("pages").join(name)).expect(name);
    assert!(page("strake-bench.1").contains("strake\\-bench\\-run"), "it names those below it");
    assert!(page("strake-bench-load.1").contains("\nstrake bench load \\-\\-drives null:8"));
}

#[test]
fn help_names_the_command_that_operators_type() {
    let folder = Folder::new("help").expect("a folder");
    let ran = check(folder.path(), "bench run --help", 0);
    assert!(ran.stdout.contains("Usage: strake bench run"), "{}", ran.stdout);
    let ran = check(folder.path(), "bench list --output json", 0);
    assert!(ran.stdout.starts_with('['), "{}", ran.stdout);
}
