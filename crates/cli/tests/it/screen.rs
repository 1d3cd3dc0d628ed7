//! What a person at a terminal sees and is asked.

use crate::fake::{Script, Served, array};
use crate::terminal::Terminal;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::Duration;
use strake_testkit::Folder;

fn healthy() -> Script {
    Script { arrays: vec![array(&["online"], &["in_sync"; 4])], ..Script::default() }
}

/// Runs `line` on a terminal and types what `answer` says; ends with the exit code, what was printed, and what the
/// daemon heard.
fn asked(line: &str, answer: &str) -> (Option<i32>, String, Vec<String>) {
    let served = Served::new("asked", healthy());
    let mut terminal = Terminal::start(served.command(&line.split(' ').collect::<Vec<_>>()));
    terminal.until(|text| text.contains(" to continue: "));
    terminal.type_in(answer);
    let (status, printed) = terminal.end();
    (status.code(), printed, served.heard())
}

#[test]
fn failing_a_member_in_sync_names_the_loss_and_sends_that_it_was_accepted() {
    let (code, printed, heard) = asked("array fail tank --member 2", "tank\n");
    assert_eq!(code, Some(0), "{printed}");
    let sentence = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(sentence.contains("which is in sync: the array loses redundancy."), "{printed}");
    assert!(printed.contains("  - mark every label"), "the plan is shown: {printed}");
    let [plan, done] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(plan.contains("dry_run: true"), "{plan}");
    assert!(done.contains("dry_run: false, accept: [\"redundancy\"]"), "{done}");
}

#[test]
fn nothing_is_done_when_something_else_is_typed() {
    let lines = [
        "array fail tank --member 2",
        "array destroy tank",
        "array create tank --level 6 --drives ram:1GiB --overwrite",
        "drive clean /dev/null",
        "spare add /dev/null --overwrite",
    ];
    for line in lines {
        for answer in ["yes\n", "\n", "tan\n"] {
            let (code, printed, heard) = asked(line, answer);
            assert_eq!(code, Some(3), "{line}: {printed}");
            assert!(printed.contains("nothing was done"), "{line}: {printed}");
            let changed: Vec<_> = heard.iter().filter(|h| !h.contains("dry_run: true")).collect();
            assert!(changed.is_empty(), "{line}: {changed:?}");
        }
    }
}

#[test]
fn a_watched_screen_is_drawn_in_place_and_given_back() {
    let served = Served::new("watched", healthy());
    let mut terminal = Terminal::start(served.command(&["array", "list", "--watch"]));
    terminal.until(|text| text.contains("\x1b[J"));
    terminal.interrupt();
    let (status, printed) = terminal.end();
    assert_eq!(status.code(), Some(0), "{printed}");
    let (drawn, after) = printed.split_once("\x1b[?25h\x1b[?1049l").expect("it is given back");
    assert!(drawn.starts_with("\x1b[?1049h\x1b[?25l\x1b[H"), "{printed:?}");
    assert!(after.contains("HEALTH"), "the latest answer stays: {printed:?}");
}

#[test]
fn top_obeys_its_keys_and_gives_the_terminal_back() {
    let served = Served::new("top", healthy());
    for end in ["q", "interrupt"] {
        let mut terminal = Terminal::start(served.command(&["top", "0.1"]));
        terminal.until(|text| text.contains("sorted by requests"));
        assert!(!terminal.is_ordinary());
        for (key, shown) in [("s", "sorted by bytes"), (" ", "paused"), ("s", "sorted by latency")]
        {
            terminal.type_in(key);
            terminal.until(|text| text.contains(shown));
        }
        match end {
            "q" => terminal.type_in("q"),
            _ => terminal.interrupt(),
        }
        terminal.until(|_| false);
        assert!(terminal.is_ordinary(), "after {end}");
        let (status, printed) = terminal.end();
        assert_eq!(status.code(), Some(0), "{printed}");
        assert!(printed.starts_with("\x1b[?1049h") && printed.contains("\x1b[?25h\x1b[?1049l"));
    }
}

/// History: `strake top` could be ended only by a kill while the daemon did not answer.
#[test]
fn a_command_ends_while_the_daemon_hangs() {
    let commands = [
        &["top"][..],
        &["iostat"],
        &["array", "list", "--watch"],
        &["array", "show", "tank", "--watch"],
        &["event", "follow"],
    ];
    for words in commands {
        let folder = Folder::new("hangs");
        let socket = folder.join("straked.sock");
        let listener = UnixListener::bind(&socket).expect("the folder is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_strake"));
        command.arg("--socket").arg(&socket).args(words);
        let mut terminal = Terminal::start(command);
        listener.set_nonblocking(true).expect("there is such an option");
        let mut calls = loop {
            match listener.accept() {
                Ok((calls, _)) => break calls,
                Err(_) => assert!(!terminal.has_ended(), "{words:?} does not call the daemon"),
            }
            thread::yield_now();
        };
        calls.set_nonblocking(false).expect("there is such an option");
        calls.read_exact(&mut [0; 1]).expect("it asks");
        terminal.interrupt();
        // A command that goes on is refused after a while, and says so.
        calls.set_read_timeout(Some(Duration::from_secs(30))).expect("there is such an option");
        let reader = thread::spawn(move || {
            let _ = calls.read_to_end(&mut Vec::new());
        });
        terminal.until(|_| false);
        assert!(terminal.is_ordinary(), "{words:?}");
        let (_, printed) = terminal.end();
        assert!(!printed.contains("daemon"), "{words:?}: {printed}");
        reader.join().expect("it ends");
    }
}

#[test]
fn top_is_for_terminals() {
    let served = Served::new("top-piped", healthy());
    for words in [&["top"][..], &["top", "--json"]] {
        let output = served.command(words).output().expect("strake runs");
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("strake iostat --json"), "{said}");
    }
    assert!(served.heard().is_empty());
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let run = |name: &str, value: &str| {
        let served = Served::new("colour", healthy());
        let mut command = served.command(&["array", "list"]);
        command.env_remove("NO_COLOR").env(name, value);
        Terminal::start(command).end().1
    };
    let painted = run("STRAKE_NOTHING", "");
    let plain = run("NO_COLOR", "1");
    assert!(painted.contains("\x1b[32mok\x1b[0m"), "{painted:?}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    assert_eq!(strake_cli::output::paint::plain(&painted), plain, "colour adds nothing");
}

#[test]
fn what_comes_from_elsewhere_cannot_tell_the_terminal_to_do_something() {
    let mut array = array(&["online"], &["in_sync"; 4]);
    array.members[0].path = "/dev/\x1b]0;evil\x07\x1b[2J".into();
    let served = Served::new("escapes", Script { arrays: vec![array], ..Script::default() });
    let mut command = served.command(&["array", "show", "tank"]);
    command.env("NO_COLOR", "1");
    let (_, printed) = Terminal::start(command).end();
    assert!(printed.contains("evil"), "{printed:?}");
    assert!(!printed.contains(['\x1b', '\x07']), "{printed:?}");
}

#[test]
fn a_frame_fits_its_screen() {
    use strake_cli::watch::frame;
    assert_eq!(frame("a\nb", 80, 2), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
    let text = "1\n2\n3\n4\n5";
    assert_eq!(
        frame(text, 80, 3),
        "\x1b[H1\x1b[K\r\n2\x1b[K\r\n... 3 more lines\x1b[K\x1b[J",
        "what does not fit is counted"
    );
    let folded = format!("{}\nx", "-".repeat(81));
    assert!(frame(&folded, 80, 2).contains("... 2 more lines"), "two rows for a line too long");
    assert!(frame(&format!("\x1b[32m{}\x1b[0m\nx", "-".repeat(80)), 80, 2).contains('x'));
}
