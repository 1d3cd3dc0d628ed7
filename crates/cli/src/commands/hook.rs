//! `strake hook ...`.

use crate::args::hook::{Add, HookVerb};
use crate::args::parse::word;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{secret, tables};
use std::path::Path;
use strake_api::v1::{AddHookRequest, ListHooksRequest, RemoveHookRequest, TestHookRequest};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or a test event could not be delivered.
pub async fn run(verb: HookVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut events = Connection::open(socket).await?.events();
    let change = match verb {
        HookVerb::List => {
            let answer = events.list_hooks(ListHooksRequest {}).await?.into_inner();
            out.print(&answer, tables::hook::list)?;
            return Ok(Exit::Fine);
        }
        HookVerb::Add(arguments) => events.add_hook(add_request(arguments)?).await?,
        HookVerb::Remove(which) => {
            events.remove_hook(RemoveHookRequest { name: which.name }).await?
        }
        HookVerb::Test(which) => events.test_hook(TestHookRequest { name: which.name }).await?,
    };
    let change = change.into_inner();
    out.print(&change, tables::hook::change)?;
    // Only a test can: its event was sent, and did not arrive.
    Ok(if change.result == "failed" { Exit::Failed } else { Exit::Fine })
}

fn add_request(arguments: Add) -> Result<AddHookRequest, CliError> {
    let Add { name, webhook, webhook_file, email, exec, server, server_file, from, severity } =
        arguments;
    let webhook = address(webhook, webhook_file, "webhook")?;
    let server = address(server, server_file, "server")?;
    let exec = match exec {
        Some(program) => Some(crate::paths::absolute(&program)?.display().to_string()),
        None => None,
    };
    let targets = [("webhook", webhook), ("email", email), ("exec", exec)];
    let given = targets.into_iter().find_map(|(kind, target)| Some((kind, target?)));
    let Some((kind, target)) = given else {
        return Err(CliError::usage("name a destination with --webhook, --email or --exec"));
    };
    Ok(AddHookRequest {
        name,
        kind: kind.to_owned(),
        target,
        severity: word(&severity),
        server: server.unwrap_or_default(),
        from: from.unwrap_or_default(),
    })
}

/// The address given as an argument, or in a file.
fn address(
    argument: Option<String>,
    file: Option<String>,
    option: &str,
) -> Result<Option<String>, CliError> {
    match (argument, file) {
        (Some(url), _) => secret::open(&url, option).map(|()| Some(url)),
        (None, Some(file)) => secret::address(&file).map(Some),
        (None, None) => Ok(None),
    }
}
