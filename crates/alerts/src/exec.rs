//! Delivery to a program on this host.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::limits::EXCERPT_BYTES;
use crate::notice::Message;
use crate::program::Program;
use crate::text::{cut, one_line};
use crate::way::Setting;

/// The search path for programs that the program runs. It is fixed, because the environment of the daemon does not
/// describe the needs of a hook.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The exit code with which a program asks for another attempt (`EX_TEMPFAIL`, sysexits.h(3head)).
pub const TRY_AGAIN: u8 = 75;

/// Maximum number of bytes of one environment variable.
const VARIABLE_BYTES_MAX: usize = 256;

impl Program {
    /// One attempt: runs the program to its end.
    pub(crate) async fn tell(&self, message: &Message, setting: &Setting) -> Result<(), Failure> {
        let programs = &setting.programs;
        let path = programs.may_run(self)?;
        let mut run = Run::start(programs.launched(&path), message)
            .map_err(|e| Failure::passing(format!("cannot start {}: {e}", path.display())))?;
        // The program ran, so it may have notified a person. Another attempt could notify the person twice.
        let ended = setting.in_time(run.ended()).await;
        let (status, said) = ended.map_err(|failure| Failure::lasting(failure.what))?;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) if code == i32::from(TRY_AGAIN) => {
                Err(Failure::passing(ending(status, &said)))
            }
            _ => Err(Failure::lasting(ending(status, &said))),
        }
    }
}

/// A program that runs, alone in its process group. Dropping it ends the group.
struct Run {
    group: Arc<Group>,
    status: oneshot::Receiver<io::Result<ExitStatus>>,
    output: pipe::Receiver,
}

/// The process group of a program, until the program is reaped. Afterwards another group may have its ID.
#[derive(Default)]
struct Group(Mutex<Option<Pid>>);

impl Group {
    fn lock(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(group: Pid) {
        // A call fails if all processes have already ended, which is the intended state. A process that was just
        // started may have no group yet.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = kill_process(group, Signal::KILL);
    }
}

impl Run {
    fn start(launched: Command, message: &Message) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let output = pipe::Receiver::from_owned_fd(reader.into())?;
        let group = Arc::new(Group::default());
        // The thread is started first: a program must not start without a thread that can wait for it.
        let (give, take) = mpsc::channel();
        let (tell, status) = oneshot::channel();
        let shared = group.clone();
        let reap = move || {
            if let Ok(child) = take.recv() {
                // A cancelled delivery no longer receives the status.
                let _ = tell.send(reap(child, &shared));
            }
        };
        thread::Builder::new().name("strake-hook".into()).spawn(reap)?;
        let child = command(launched, message, writer)?.spawn()?;
        *group.lock() = Some(Pid::from_child(&child));
        give.send(child).map_err(|_| io::Error::other("the thread that waits for it has ended"))?;
        Ok(Self { group, status, output })
    }

    /// Returns the exit status of the program and the beginning of its output. The rest of the output is read and
    /// dropped, so that the program does not block and memory is bounded.
    async fn ended(&mut self) -> Result<(ExitStatus, String), Failure> {
        let mut said = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        let mut open = true;
        let status = loop {
            tokio::select! {
                status = &mut self.status => break status,
                got = self.output.read(&mut buffer), if open => match got {
                    Ok(0) | Err(_) => open = false,
                    Ok(bytes) => keep(&mut said, &buffer[..bytes]),
                },
            }
        };
        self.rest(&mut said, &mut buffer);
        let text = cut(&one_line(&String::from_utf8_lossy(&said)), EXCERPT_BYTES);
        match status {
            Ok(Ok(status)) => Ok((status, text)),
            Ok(Err(e)) => Err(Failure::lasting(format!("cannot learn how the program ended: {e}"))),
            Err(_) => Err(Failure::lasting("the thread that waits for the program panicked")),
        }
    }
}

impl Run {
    /// Reads the output that is in the pipe after the program ended, up to the kept size. Reads directly from the
    /// kernel, because tokio may not have received the readiness yet. Does not wait, because a process that left the
    /// group may keep the pipe open.
    fn rest(&self, said: &mut Vec<u8>, buffer: &mut [u8]) {
        while said.len() < EXCERPT_BYTES
            && let Ok(bytes @ 1..) = rustix::io::read(&self.output, &mut *buffer)
        {
            keep(said, &buffer[..bytes]);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(group) = *self.group.lock() {
            Group::kill(group);
        }
    }
}

/// Waits for the end of a program, kills the remaining processes of its group, and only then reaps the program.
fn reap(mut child: Child, group: &Group) -> io::Result<ExitStatus> {
    let id = Pid::from_child(&child);
    waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let mut group = group.lock();
    *group = None;
    Group::kill(id);
    child.wait()
}

/// Returns the command with the environment of a program, which inherits only the event: no shell, few variables. Every
/// descriptor of this process is closed on exec, because the standard library and rustix open them in this way.
fn command(
    mut launched: Command,
    message: &Message,
    output: io::PipeWriter,
) -> io::Result<Command> {
    launched
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("STRAKE_EVENT_KIND", variable(&message.event.kind))
        .env("STRAKE_EVENT_SEVERITY", variable(&message.event.severity))
        .env("STRAKE_EVENT_OBJECT", variable(&message.event.object))
        .current_dir("/")
        .stdin(input(&message.json())?)
        .stdout(output.try_clone()?)
        .stderr(output);
    Ok(launched)
}

fn keep(said: &mut Vec<u8>, bytes: &[u8]) {
    let room = EXCERPT_BYTES.saturating_sub(said.len());
    said.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Returns `bytes` as standard input. It is a file in memory, because a pipe would need a writer.
fn input(bytes: &[u8]) -> io::Result<Stdio> {
    let mut file = File::from(memfd_create("strake-event", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

fn variable(text: &str) -> String {
    cut(&one_line(text), VARIABLE_BYTES_MAX)
}

fn ending(status: ExitStatus, said: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("the program ended with status {code}"),
        (None, Some(signal)) => format!("the program was ended by signal {signal}"),
        (None, None) => "the program ended with an unknown status".to_string(),
    };
    if said.is_empty() { how } else { format!("{how}: {said}") }
}
