//! Suggestions for commands and options that do not exist. clap compares letters, and suggests `array undelete` for
//! `array delete`. The tables of this file compare meanings.

use crate::args::Cli;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};
use std::ffi::OsString;

/// Maximum number of commands in one tip.
const TIPS_MAX: usize = 3;

/// Words that other programs use for a command of Strake: the object, the words, and the commands. An empty object
/// stands for every object that has the command.
const COMMANDS: [(&str, &[&str], &[&str]); 32] = [
    ("array", &["delete", "rm", "wipe"], &["destroy"]),
    ("array", &["remove"], &["fail", "unload", "destroy"]),
    ("array", &["start", "assemble", "open", "load", "run"], &["import"]),
    ("array", &["stop", "close", "shutdown"], &["unload"]),
    ("array", &["make", "new"], &["create"]),
    ("array", &["expand", "extend", "resize"], &["grow"]),
    ("array", &["check", "verify", "repair"], &["scrub"]),
    ("array", &["recover", "restore"], &["undelete", "import"]),
    ("array", &["fault", "offline", "detach"], &["fail"]),
    ("array", &["attach", "online"], &["readd", "add"]),
    ("drive", &["attach", "add"], &["connect", "take"]),
    ("drive", &["detach", "remove", "delete"], &["disconnect", "release"]),
    ("drive", &["wipe", "erase", "zero"], &["clean", "sanitize", "format"]),
    ("pool", &["delete", "rm", "remove"], &["destroy"]),
    ("pool", &["new", "make", "add", "init"], &["create"]),
    ("volume", &["delete", "rm", "remove"], &["destroy"]),
    ("volume", &["new", "make", "add"], &["create"]),
    ("volume", &["grow", "extend", "expand", "shrink", "reduce"], &["resize"]),
    ("volume", &["copy"], &["clone"]),
    ("volume", &["change", "modify", "quota"], &["set"]),
    ("snapshot", &["delete", "rm", "remove"], &["destroy"]),
    ("snapshot", &["new", "make", "add", "take"], &["create"]),
    ("snapshot", &["restore", "revert", "merge"], &["rollback"]),
    ("snapshot", &["compare", "changes"], &["diff"]),
    ("export", &["start", "add", "new"], &["create"]),
    ("job", &["stop", "kill", "delete", "remove"], &["cancel"]),
    ("job", &["start", "continue", "unpause"], &["resume"]),
    ("event", &["watch", "tail"], &["follow"]),
    ("", &["status", "info", "get", "detail", "details"], &["show"]),
    ("", &["ls"], &["list"]),
    ("", &["delete", "rm", "destroy", "stop"], &["remove"]),
    ("", &["create", "new"], &["add"]),
];

/// Words that other programs use without an object, and the commands of Strake.
const OBJECTS: [(&[&str], &[&str]); 22] = [
    (&["delete"], &["array destroy"]),
    (&["delete-array", "remove-array"], &["array destroy"]),
    (&["logs", "history", "audit"], &["event list", "log list"]),
    (&["perf", "stat", "stats"], &["iostat", "array stats"]),
    (&["blktrace", "slow", "latency"], &["trace", "array stats"]),
    (&["info", "health", "state"], &["status"]),
    (&["check", "verify"], &["doctor", "array scrub"]),
    (&["zpool", "vg"], &["pool"]),
    (&["zfs"], &["volume", "snapshot"]),
    (&["lv", "zvol", "lun"], &["volume"]),
    (&["snap", "snapshots"], &["snapshot"]),
    (&["vgs", "vgdisplay"], &["pool list"]),
    (&["vgcreate"], &["pool create"]),
    (&["vgremove"], &["pool destroy"]),
    (&["lvs", "lvdisplay"], &["volume list", "snapshot list"]),
    (&["lvcreate"], &["volume create", "snapshot create"]),
    (&["lvremove"], &["volume destroy", "snapshot destroy"]),
    (&["lvresize", "lvextend", "lvreduce"], &["volume resize"]),
    (&["lvchange"], &["volume set"]),
    (&["lvconvert"], &["snapshot rollback"]),
    (&["pvs", "pvdisplay"], &["drive list"]),
    (&["restart"], &["daemon restart"]),
];

/// Options of other programs, and options of Strake. A tip names the first of these Strake options that the command
/// has.
const OPTIONS: [(&[&str], &[&str]); 7] = [
    (&["--chunk", "--chunk-size", "--strip-size", "--stripe", "--stripe-size"], &["--strip"]),
    (
        &["--devices", "--disks", "--disk", "--device", "--members"],
        &["--drives", "--drive", "--with"],
    ),
    (&["--raid-level"], &["--level"]),
    (&["--force"], &["--overwrite", "--accept-loss", "--yes"]),
    (&["--position", "--slot"], &["--member"]),
    (&["--new"], &["--with"]),
    (&["--priority"], &["--rebuild-priority"]),
];

/// Returns `error` about `arguments` with two changes. Tips name similar commands and options, and the usage is the
/// usage from the help of the command. Reason: if an environment variable sets an option, clap's own usage shows the
/// option as required.
#[must_use]
pub fn explained(mut error: Error, arguments: &[OsString]) -> Error {
    let mut root = Cli::command();
    root.build();
    let mut path: Vec<String> = Vec::new();
    let mut command = &mut root;
    for word in words(arguments) {
        if command.find_subcommand(&word).is_none() {
            break;
        }
        command = command.find_subcommand_mut(&word).expect("it was just found");
        path.push(word);
    }
    if error.get(ContextKind::Usage).is_some() {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    }
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = text(&error, ContextKind::InvalidSubcommand);
            let meant = commands(&path, &typed, &Cli::command());
            if !meant.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
            }
            // Without this line, clap prints the tip `strake -- WORD`. The tip is useless, because no word begins with
            // a dash.
            error.insert(ContextKind::Suggested, ContextValue::None);
        }
        ErrorKind::UnknownArgument => {
            let typed = text(&error, ContextKind::InvalidArg);
            if let Some(meant) = option(&typed, command) {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(meant.to_owned()));
            }
            error.insert(ContextKind::Suggested, separate(&typed, command));
        }
        _ => {}
    }
    error
}

/// Returns the words of `arguments` before the first argument that only a command can interpret. The program and the
/// options of every command are left out.
fn words(arguments: &[OsString]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = rest.next() {
        if ["--output", "--socket", "--color"].contains(&word.as_ref()) {
            rest.next();
        } else if !word.starts_with('-') {
            words.push(word.into_owned());
        }
    }
    words
}

fn text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Returns the possible intended commands for `typed` after the words of `path`, in the form for this place.
fn commands(path: &[String], typed: &str, root: &Command) -> Vec<String> {
    let named = |(_, meant): &(_, &[&str])| meant.iter().map(|&m| m.to_owned()).collect();
    if path.is_empty() {
        let known = OBJECTS.iter().find(|(words, _)| words.contains(&typed));
        let objects =
            root.get_subcommands().filter(|object| object.find_subcommand(typed).is_some());
        let verbs = objects.map(|object| format!("{} {typed}", object.get_name()));
        return known.map(named).unwrap_or_else(|| verbs.take(TIPS_MAX).collect());
    }
    let Some(object) = path.iter().try_fold(root, |at, word| at.find_subcommand(word)) else {
        return Vec::new();
    };
    let exists = |verbs: &[&str]| verbs.iter().all(|verb| object.find_subcommand(verb).is_some());
    let known = COMMANDS.iter().find(|(of, words, verbs)| {
        (of.is_empty() || path == [*of]) && words.contains(&typed) && exists(verbs)
    });
    known.map(|(_, words, verbs)| named(&(words, verbs))).unwrap_or_default()
}

/// Returns the option of `command` that the user may have intended with `typed`.
fn option(typed: &str, command: &Command) -> Option<&'static str> {
    let (_, options) = OPTIONS.iter().find(|(words, _)| words.contains(&typed))?;
    let has = |option: &&&str| {
        let name = option.trim_start_matches("--").split(' ').next();
        command.get_arguments().any(|argument| argument.get_long() == name)
    };
    options.iter().find(has).copied()
}

/// Returns the tip that commas separate drives, if `typed` is a surplus word and `command` has a list of drives.
fn separate(typed: &str, command: &Command) -> ContextValue {
    let lists = command.get_arguments().any(|argument| argument.get_long() == Some("drives"));
    match lists && !typed.starts_with('-') {
        true => {
            let tip = "drives are separated by commas: --drives DRIVE,DRIVE";
            ContextValue::StyledStrs(vec![StyledStr::from(tip)])
        }
        false => ContextValue::None,
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, OBJECTS, OPTIONS, explained};
    use crate::args::Cli;
    use clap::{Command, CommandFactory as _, Parser as _};
    use std::ffi::OsString;

    fn said(line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&arguments).expect_err(line);
        explained(error, &arguments).to_string()
    }

    /// The history of the bug: the tips were 'undelete' for `array delete`, 'set' for `array stop`, 'stats' for `array
    /// start`, and '-- --chunk' for `--chunk`.
    #[test]
    fn tips_name_what_was_meant() {
        let check = |line: &str, tip: &str| {
            let text = said(line);
            assert!(text.contains(&format!("tip: {tip}\n")), "{line}: {text}");
            assert_eq!(text.matches("tip:").count(), 1, "{line}: {text}");
        };
        check("strake array delete tank", "a similar subcommand exists: 'destroy'");
        check("strake array start tank", "a similar subcommand exists: 'import'");
        check("strake array stop tank", "a similar subcommand exists: 'unload'");
        check("strake array status tank", "a similar subcommand exists: 'show'");
        check(
            "strake array remove tank",
            "some similar subcommands exist: 'fail', 'unload', 'destroy'",
        );
        check("strake --output json array ls", "a similar subcommand exists: 'list'");
        check("strake export delete x", "a similar subcommand exists: 'remove'");
        check("strake export referral rm x", "a similar subcommand exists: 'remove'");
        check(
            "strake list",
            "some similar subcommands exist: 'array list', 'drive list', 'spare list'",
        );
        check(
            "strake show",
            "some similar subcommands exist: 'array show', 'drive show', 'pool show'",
        );
        check("strake volume rm data/vm1", "a similar subcommand exists: 'destroy'");
        check("strake volume extend data/vm1 +1G", "a similar subcommand exists: 'resize'");
        check("strake snapshot ls", "a similar subcommand exists: 'list'");
        check("strake zpool list", "a similar subcommand exists: 'pool'");
        check(
            "strake zfs snapshot data/vm1@now",
            "some similar subcommands exist: 'volume', 'snapshot'",
        );
        check(
            "strake lvcreate -L 1G",
            "some similar subcommands exist: 'volume create', 'snapshot create'",
        );
        check("strake rollback data/vm1", "a similar subcommand exists: 'snapshot rollback'");
        check("strake scrub tank", "a similar subcommand exists: 'array scrub'");
        check("strake delete tank", "a similar subcommand exists: 'array destroy'");
        check("strake aray", "a similar subcommand exists: 'array'");
        check(
            "strake array create t --level 6 --chunk 64k",
            "a similar argument exists: '--strip'",
        );
        check(
            "strake array create t --drives a b",
            "drives are separated by commas: --drives DRIVE,DRIVE",
        );
    }

    #[test]
    fn an_option_that_a_command_does_not_have_is_no_value() {
        let text = said("strake array set tank --dry-run");
        assert!(!text.contains("tip:"), "{text}");
    }

    /// The history of the bug: the usage was `strake array undelete --socket <PATH> <ARRAY>`.
    #[test]
    fn the_usage_shows_only_what_is_required() {
        let check = |line: &str, usage: &str| {
            let text = said(line);
            assert!(text.contains(&format!("\nUsage: {usage}\n")), "{line}: {text}");
        };
        check("strake --socket /s array undelete", "strake array undelete [OPTIONS] <ARRAY>");
        check(
            "strake --output json array fail tank",
            "strake array fail [OPTIONS] --member <POSITION|DRIVE> <ARRAY>",
        );
        check("strake --socket /s array delete", "strake array [OPTIONS] <COMMAND>");
    }

    #[test]
    fn every_tip_can_be_typed() {
        let root = Cli::command();
        let find = |at: &Command, path: &str| {
            let mut words = path.split(' ');
            words.try_fold(at.clone(), |at, word| at.find_subcommand(word).cloned()).is_some()
        };
        for (object, words, verbs) in COMMANDS {
            let objects =
                root.get_subcommands().filter(|o| object.is_empty() || o.get_name() == object);
            let has = |o: &&Command| verbs.iter().all(|verb| find(o, verb));
            let found: Vec<&Command> = objects.filter(has).collect();
            assert!(!found.is_empty(), "{object} {verbs:?}");
            let taken = |word: &&&str| !object.is_empty() && find(found[0], word);
            assert_eq!(words.iter().find(taken), None, "{object} has this command");
        }
        for (words, commands) in OBJECTS {
            assert!(commands.iter().all(|path| find(&root, path)), "{commands:?}");
            assert!(words.iter().all(|word| !find(&root, word)), "{words:?}");
        }
        let longs: Vec<String> = all(&root)
            .iter()
            .flat_map(Command::get_arguments)
            .filter_map(|a| a.get_long())
            .map(|l| format!("--{l}"))
            .collect();
        for (_, options) in OPTIONS {
            for option in options {
                let long = option.split(' ').next().expect("a word");
                assert!(longs.iter().any(|l| l == long), "{option}");
            }
        }
    }

    fn all(command: &Command) -> Vec<Command> {
        let below = command.get_subcommands().flat_map(all);
        std::iter::once(command.clone()).chain(below).collect()
    }
}
