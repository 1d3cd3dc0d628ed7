//! From arguments to an exit code.

use crate::args::{Cli, Command, mistakes};
use crate::commands::{
    array, bench, config, daemon, drive, event, export, hook, host, iostat, job, log, pool, qos,
    snapshot, spare, status, top, trace, volume,
};
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::output::Format;
use crate::{completion, demo, manual, wait};
use clap::Parser as _;
use std::ffi::OsString;
use std::io::Write as _;

/// Runs the command that `arguments` spell, the first of them being the program's own name. Answers go to
/// standard output, errors to standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(exit) = completion::answer(&arguments) {
        return exit;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&mistakes::explained(error, &arguments), &arguments),
    };
    let format = cli.global.format();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(CliError::io("cannot start", &error)),
    };
    result.unwrap_or_else(|error| {
        match format {
            _ if error.kind == ErrorKind::ReaderGone => {}
            Format::Json => report_json(&error.text, error.kind, error.exit()),
            Format::Table => crate::fold::tell_person(&format!("strake: {error}")),
        }
        error.exit()
    })
}

/// The name of a status code as gRPC defines it, such as `NOT_FOUND`.
fn grpc_name(code: tonic::Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Prints an error to standard error as one line of JSON, for programs.
fn report_json(message: &str, kind: ErrorKind, exit: Exit) {
    let code = match kind {
        ErrorKind::Refused(code) => grpc_name(code),
        _ => String::new(),
    };
    let error = serde_json::json!({
        "message": message.trim_end(), "code": code, "exit_code": exit.code()
    });
    // Nothing can be done when standard error itself is gone.
    let _ = writeln!(std::io::stderr(), "{}", serde_json::json!({ "error": error }));
}

/// Whether arguments that are not a command request JSON.
fn wants_json(arguments: &[OsString]) -> bool {
    let is_json = |pair: &[OsString]| pair[0] == "--output" && pair[1] == "json";
    arguments.iter().any(|word| word == "--json" || word == "--output=json")
        || arguments.windows(2).any(is_json)
}

/// Help and version are answers; everything else clap says is a misuse, which is 3 here and 2 with clap.
fn refused(error: &clap::Error, arguments: &[OsString]) -> Exit {
    if error.use_stderr() && wants_json(arguments) {
        report_json(&error.to_string(), ErrorKind::Usage, Exit::Usage);
        return Exit::Usage;
    }
    // Nothing can be done when standard error itself is gone.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Fine }
}

async fn run(cli: Cli) -> Result<Exit, CliError> {
    let out = cli.global.output();
    let socket = || cli.global.socket();
    match cli.command {
        Command::Status(watched) => status::run(watched, &socket()?, &out).await,
        Command::Doctor => status::doctor(&socket()?, &out).await,
        Command::Array(verb) => array::run(verb, &socket()?, &out).await,
        Command::Drive(verb) => drive::run(verb, &socket()?, &out).await,
        Command::Spare(verb) => spare::run(verb, &socket()?, &out).await,
        Command::Job(verb) => job::run(verb, &socket()?, &out).await,
        Command::Pool(verb) => pool::run(verb, &socket()?, &out).await,
        Command::Volume(verb) => volume::run(verb, &socket()?, &out).await,
        Command::Qos(verb) => qos::run(verb, &socket()?, &out).await,
        Command::Snapshot(verb) => snapshot::run(verb, &socket()?, &out).await,
        Command::Export(verb) => export::run(verb, &socket()?, &out).await,
        Command::Iostat(arguments) => iostat::run(arguments, &socket()?, &out).await,
        Command::Top(arguments) => top::run(arguments, &socket()?, &out).await,
        Command::Trace(arguments) => trace::run(arguments, &socket()?, &out).await,
        Command::Event(verb) => event::run(verb, &socket()?, &out).await,
        Command::Log(verb) => log::run(verb, &socket()?, &out).await,
        Command::Hook(verb) => hook::run(verb, &socket()?, &out).await,
        Command::Host(verb) => host::run(verb, &socket()?, &out).await,
        Command::Config(verb) => config::run(verb, socket(), &out).await,
        Command::Daemon(verb) => daemon::run(verb, &socket()?, &out).await,
        Command::Wait(arguments) => wait::run(&arguments, &socket()?, &out).await,
        Command::Demo(arguments) => demo::run(&arguments, out.format()).await,
        Command::Bench(arguments) => Err(bench::become_bench(&arguments, out.format())),
        Command::Completions { shell } => completion::script(shell),
        Command::Man { dir } => manual::pages(&dir, &out),
    }
}
