//! A person at a terminal: a pseudo-terminal whose other end reads what is printed and types what is asked for.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};

/// What a confirmation ends with.
const ASKED: (&str, &str) = ("\nType ", " to continue: ");

/// A command that runs on a terminal.
pub struct Terminal {
    screen: File,
    child: Child,
    /// Everything it has printed, to standard output and to standard error.
    pub printed: String,
}

impl Terminal {
    /// Starts `command` on a terminal of 80 columns and 24 rows.
    pub fn start(mut command: Command) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&screen).expect("it is ours");
        unlockpt(&screen).expect("it is ours");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).expect("it has a size");
        let name = ptsname(&screen, Vec::new()).expect("it has a name");
        let name = name.into_string().expect("an ASCII name");
        let open = || File::options().read(true).write(true).open(&name).expect("it opens");
        command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open());
        let child = command.spawn().expect("strake runs");
        // It holds its ends open itself; ours must go, or the screen never ends.
        drop(command);
        Self { screen: File::from(screen), child, printed: String::new() }
    }

    /// Reads on until what was printed so far satisfies `enough`, or the command has ended.
    pub fn until(&mut self, enough: impl Fn(&str) -> bool) {
        while !enough(&self.printed) {
            let mut bytes = [0; 4096];
            // Once no process has the other end open, reading is an error (pty(7)).
            match self.screen.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(n) => {
                    let text = std::str::from_utf8(&bytes[..n]).expect("ASCII");
                    self.printed.push_str(&text.replace("\r\n", "\n"));
                }
            }
        }
    }

    /// True if the terminal gives whole lines and prints what is typed, as a shell expects it.
    pub fn is_ordinary(&self) -> bool {
        let modes = tcgetattr(&self.screen).expect("it is a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Types `text`.
    pub fn type_in(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).expect("somebody reads the terminal");
    }

    /// Tells the command what Ctrl-C tells it.
    pub fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    }

    /// True if the command has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Types what every confirmation asks for, until the command ends.
    pub fn confirm_all(mut self) -> (ExitStatus, String) {
        let mut answered = 0;
        loop {
            self.until(|text| text.matches(ASKED.1).count() > answered);
            let Some(name) = asked(&self.printed, answered) else { break };
            answered += 1;
            self.type_in(&format!("{name}\n"));
        }
        self.end()
    }

    /// Reads to the end.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.until(|_| false);
        (self.child.wait().expect("it is our child"), self.printed)
    }
}

/// What the `nth` confirmation in `text` asks for.
fn asked(text: &str, nth: usize) -> Option<String> {
    let (begin, _) = text.match_indices(ASKED.1).nth(nth)?;
    let before = &text[..begin];
    let from = before.rfind(ASKED.0)? + ASKED.0.len();
    Some(before[from..].to_owned())
}
