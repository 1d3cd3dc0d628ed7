//! Texts below the clients name requests, and no commands. A client shows a request in its own way: the command line as
//! a command with flags, a page as a button.

use super::finding::Finding;
use super::repo::Repo;
use super::source::Source;
use super::words::TOOLS;

/// Crates that spell commands: the clients, and the table of commands. Others name requests.
const SPELLS_COMMANDS: [&str; 4] = ["bench", "cli", "terminal", "wording"];

/// Where the daemon declares its own options. Its other sources use these names.
const DAEMON_OPTIONS: &str = "crates/daemon/src/args";

/// What follows `strake` in a command.
const NOUNS: [&str; 13] = [
    "array", "config", "daemon", "doctor", "drive", "event", "export", "hook", "host", "job",
    "spare", "status", "wait",
];

/// Programs of the system that a text may name, with their flags.
const PROGRAMS: [&str; 4] = ["nvme", "smartctl", "systemctl", "wipefs"];

/// Most words between such a program and its last flag.
const PROGRAM_WORDS: usize = 2;

/// Checks the literals of every source outside of tests.
pub fn check(repo: &Repo) -> Vec<Finding> {
    repo.sources.iter().filter(|source| is_below(source)).flat_map(check_source).collect()
}

fn is_below(source: &Source) -> bool {
    let folder = source.crate_folder().unwrap_or_default();
    !folder.is_empty() && !TOOLS.contains(&folder) && !SPELLS_COMMANDS.contains(&folder)
}

fn check_source(source: &Source) -> Vec<Finding> {
    let declares_options = source.path.starts_with(DAEMON_OPTIONS);
    let mut findings = Vec::new();
    for (line, literal) in source.literals() {
        let words = words_of(literal);
        let mut find = |rule, what| {
            let message = format!(
                "{what} in a text: a request of `strake-wording` names it, and each client spells it"
            );
            findings.push(Finding { path: source.path.clone(), line, rule, message });
        };
        if names_command(&words) {
            find("commands", "a command");
        }
        if names_flag(&words) && !declares_options {
            find("flags", "a flag");
        }
    }
    findings
}

fn words_of(literal: &str) -> Vec<&str> {
    let apart = literal.split(|c: char| c.is_whitespace() || "(\")\\".contains(c));
    apart.filter(|word| !word.is_empty()).collect()
}

fn names_command(words: &[&str]) -> bool {
    words.windows(2).any(|pair| pair[0] == "strake" && NOUNS.contains(&pair[1]))
}

fn names_flag(words: &[&str]) -> bool {
    let is_flag = |word: &str| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let is_of_program = |at: usize| {
        let before = &words[at.saturating_sub(PROGRAM_WORDS)..at];
        before.iter().any(|word| PROGRAMS.contains(word))
    };
    words.iter().enumerate().any(|(at, word)| is_flag(word) && !is_of_program(at))
}
