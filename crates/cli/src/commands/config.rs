//! `strake config ...`.

use crate::args::config::ConfigVerb;
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::CONFIG_BYTES_MAX;
use crate::output::{Format, Output};
use crate::{daemon, keep, tables};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use strake_api::v1::{ConfigDocument, GetConfigRequest, GetDaemonRequest, RestoreConfigRequest};

mod replaced;

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the file cannot be read or written.
pub async fn run(
    verb: ConfigVerb,
    socket: Result<PathBuf, CliError>,
    out: &Output,
) -> Result<Exit, CliError> {
    match verb {
        ConfigVerb::Check { file } => match out.format() {
            Format::Table => return Err(daemon::become_check(&file)),
            Format::Json => out.text(daemon::checked_options(&file)?.trim_end())?,
        },
        ConfigVerb::Show => {
            let document = get(&socket?).await?;
            match out.format() {
                Format::Table => out.print(&document, tables::config::show)?,
                Format::Json => {
                    let value: Value = serde_json::from_str(&document.json).map_err(|error| {
                        CliError::mismatch(format!("the configuration is not JSON: {error}"))
                    })?;
                    out.print(&value, |_, _| String::new())?;
                }
            }
        }
        ConfigVerb::Backup { file, overwrite } => backup(&file, overwrite, &socket?, out).await?,
        ConfigVerb::Restore { file, dry_run } => {
            let request = RestoreConfigRequest { json: read(&file)?, dry_run };
            let mut config = Connection::open(&socket?).await?.config();
            let change = config.restore_config(request).await?.into_inner();
            warn(&change.warnings);
            out.print(&change, tables::config::change)?;
            // Steps that were not done.
            if !change.warnings.is_empty() {
                return Ok(Exit::Degraded);
            }
        }
    }
    Ok(Exit::Fine)
}

async fn get(socket: &Path) -> Result<ConfigDocument, CliError> {
    let mut config = Connection::open(socket).await?.config();
    Ok(config.get_config(GetConfigRequest {}).await?.into_inner())
}

async fn backup(file: &str, overwrite: bool, socket: &Path, out: &Output) -> Result<(), CliError> {
    if file == "-" && out.is_quiet() {
        return Err(CliError::usage("the backup goes to standard output: omit --quiet"));
    }
    let document = get(socket).await?;
    if file == "-" {
        return Ok(out.text(document.json.trim_end())?);
    }
    let mut daemon = Connection::open(socket).await?.daemon();
    let state = daemon.get_daemon(GetDaemonRequest {}).await?.into_inner().state_dir;
    replaced::check(Path::new(file), &document.json, Path::new(&state), overwrite)?;
    keep::write(Path::new(file), format!("{}\n", document.json.trim_end()).as_bytes())?;
    match out.format() {
        Format::Json => {
            let path = std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
            let written = json!({ "result": "written", "file": path.display().to_string() });
            out.print(&written, |_, _| String::new())?;
        }
        Format::Table => crate::output::tell(format_args!(
            "the configuration is in {file}; restore it with: strake config restore {file}"
        )),
    }
    Ok(())
}

/// The document from `file` or from standard input.
fn read(file: &str) -> Result<String, CliError> {
    let fail = |e: std::io::Error| CliError::io(format_args!("cannot read {file}"), &e);
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text),
        _ => File::open(file).map_err(fail)?.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text),
    };
    let read = read.map_err(fail)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > CONFIG_BYTES_MAX {
        let limit = strake_units::ByteSize(CONFIG_BYTES_MAX);
        return Err(CliError::usage(format!(
            "{file} is larger than {limit}: it was not written by `strake config backup`"
        )));
    }
    Ok(text)
}
