//! A format in a process of its own.
//!
//! The kernel executes a format in the system call of its caller, and no signal ends this wait. A daemon that is killed
//! during the call would keep its drives and its state directory until the drive has finished, for hours if necessary.
//! Therefore another process waits. It has only the device of the drive, which it keeps from other programs until the
//! end, also without the daemon.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use strake_dev_uring::{NvmeCommand, NvmeData, nvme_command};
use strake_nvme_wire::Status;
use strake_nvme_wire::maintenance::AdminCommand;
use strake_nvme_wire::maintenance::format::of_dword;

use super::{Undone, is_unsent};
use crate::drives::health::in_words;

/// Exit codes of a process that ends before it formats: it refuses its options, or its standard input.
const UNSENT: [i32; 2] = [1, 3];

/// The program that formats drives, and its option, which the namespace ID and dword 10 follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatter {
    /// The program.
    pub program: PathBuf,
    /// Its option.
    pub option: String,
}

impl Formatter {
    /// Starts a process that executes the format `command` on the device `claim`, and waits for its end.
    ///
    /// # Errors
    /// The reason why there is no answer. A status of the drive is an answer.
    pub(crate) fn run(&self, command: &AdminCommand, claim: OwnedFd) -> Result<Status, Undone> {
        let [dword, ..] = *command.dwords();
        let child = Command::new(&self.program)
            .args([self.option.clone(), command.nsid().to_string(), dword.to_string()])
            .stdin(claim)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Undone::Unchanged(format!("the process of the format cannot be started: {error}"))
            })?;
        let ended = child.wait_with_output().map_err(|error| {
            Undone::Unknown(format!("the process of the format does not answer: {error}"))
        })?;
        answer_of(&String::from_utf8_lossy(&ended.stdout)).unwrap_or_else(|| {
            let why = format!("the process of the format ended with {}", ended.status);
            Err(match ended.status.code() {
                Some(code) if UNSENT.contains(&code) => Undone::Unchanged(why),
                Some(_) | None => Undone::Unknown(why),
            })
        })
    }
}

/// Returns the answer in the output of the process.
fn answer_of(output: &str) -> Option<Result<Status, Undone>> {
    let (kind, number) = output.trim_end().split_once(' ')?;
    match kind {
        "answer" => Some(Ok(Status::of_word(number.parse::<u16>().ok()? << 1))),
        "error" => {
            let error = io::Error::from_raw_os_error(number.parse().ok()?);
            let why = in_words(&error);
            Some(Err(if is_unsent(&error) { Undone::Unchanged(why) } else { Undone::Unknown(why) }))
        }
        _ => None,
    }
}

/// Formats the drive at the standard input: the work of the process that [`Formatter`] starts. `words` are the
/// namespace ID and dword 10. Returns the line to print.
///
/// # Errors
/// The words describe no format, or there is no standard input; the drive got no command.
pub fn format_apart(words: &[u32]) -> Result<String, String> {
    let command = match *words {
        [nsid, dword] => of_dword(nsid, dword),
        _ => None,
    };
    let command = command.ok_or("these numbers describe no format")?;
    let device = io::stdin().as_fd().try_clone_to_owned();
    let device = File::from(device.map_err(|error| format!("there is no device: {error}"))?);
    Ok(line(&device, &command))
}

fn line(device: &File, command: &AdminCommand) -> String {
    let passed = NvmeCommand {
        opcode: command.opcode(),
        nsid: command.nsid(),
        dwords: *command.dwords(),
        data: NvmeData::None,
        time_s: command.time_s(),
    };
    match nvme_command(device, passed) {
        Ok(answer) => format!("answer {}", answer.status),
        Err(error) => format!("error {}", error.raw_os_error().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Formatter, Status, Undone, answer_of, format_apart, line};
    use std::fs::{File, write};
    use strake_nvme_wire::maintenance::format::{Erase, format};
    use strake_testkit::Folder;

    /// Runs a format in a process that executes `script`.
    fn run(script: &str) -> Result<Status, Undone> {
        let folder = Folder::new("strake-apart");
        let file = folder.join("script");
        write(&file, script).expect("a file");
        let option = file.to_str().expect("it is text").to_owned();
        let formatter = Formatter { program: "/bin/sh".into(), option };
        let device = File::open("/dev/null").expect("it exists");
        formatter.run(&format(3, 1, Erase::User), device.into())
    }

    #[test]
    fn the_answer_of_the_process_is_that_of_the_drive() {
        assert_eq!(run("echo answer 0"), Ok(Status::SUCCESS));
        assert_eq!(run(r#"[ "$*" = "3 513" ] && echo answer 2"#), Ok(Status::of_word(4)));
        assert!(matches!(run("echo error 13"), Err(Undone::Unchanged(_))));
        assert!(matches!(run("echo error 5"), Err(Undone::Unknown(_))));
        // The process was killed: the drive may still execute the format.
        assert!(matches!(run("kill -9 $$"), Err(Undone::Unknown(_))));
        assert!(matches!(run("exit 101"), Err(Undone::Unknown(_))));
        assert!(matches!(run("exit 3"), Err(Undone::Unchanged(_))), "it refuses its options");
        assert!(matches!(run("echo answer many"), Err(Undone::Unknown(_))));
        let nothing = Formatter { program: "/nowhere".into(), option: String::new() };
        let device = File::open("/dev/null").expect("it exists");
        let unsent = nothing.run(&format(1, 0, Erase::None), device.into());
        assert!(matches!(unsent, Err(Undone::Unchanged(_))), "{unsent:?}");
    }

    #[test]
    fn the_process_executes_formats_only() {
        for words in [&[1][..], &[1, 1 << 16], &[1, 3 << 9], &[u32::MAX, 0], &[0, 0]] {
            assert!(format_apart(words).is_err(), "{words:?}");
        }
        // /dev/null has no such ioctl.
        let device = File::open("/dev/null").expect("it exists");
        let line = line(&device, &format(1, 0, Erase::None));
        assert!(matches!(answer_of(&line), Some(Err(Undone::Unchanged(_)))), "{line}");
    }
}
