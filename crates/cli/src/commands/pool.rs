//! `strake pool ...`.

use crate::args::Watch;
use crate::args::pool::{Create, Destroy, PoolVerb};
use crate::commands::confirm::{self, Question};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{
    CreatePoolRequest, DestroyPoolRequest, GetPoolRequest, ListPoolsRequest, PoolChange,
};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: PoolVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        PoolVerb::Create(arguments) => changed(&create(arguments, socket).await?, out),
        PoolVerb::List(watched) => list(watched, socket, out).await,
        PoolVerb::Show { name, watch } => show(name, watch, socket, out).await,
        PoolVerb::Destroy(arguments) => changed(&destroy(arguments, socket).await?, out),
    }
}

fn changed(change: &PoolChange, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, tables::pool::change)?;
    Ok(Exit::Fine)
}

async fn list(watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look = async || Ok(connection.pools().list_pools(ListPoolsRequest {}).await?.into_inner());
    watch::answer(watched, out, look, tables::pool::list, |_| {}, |_| Exit::Fine).await
}

async fn show(name: String, watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look = async || {
        let request = GetPoolRequest { name: name.clone() };
        Ok(connection.pools().get_pool(request).await?.into_inner())
    };
    watch::answer(watched, out, look, tables::pool::show, |_| {}, Exit::of_pool).await
}

/// The steps and warnings of a dry run.
fn steps(plan: PoolChange) -> Vec<String> {
    [plan.plan, plan.warnings].concat()
}

async fn create(arguments: Create, socket: &Path) -> Result<PoolChange, CliError> {
    let Create { name, array, overwrite, yes, dry_run } = arguments;
    let request = CreatePoolRequest { name, array, dry_run, overwrite };
    let mut pools = Connection::open(socket).await?.pools();
    if overwrite && !yes && !dry_run {
        confirm::possible(&format!("overwrite array {}", request.array))?;
        let plan = CreatePoolRequest { dry_run: true, ..request.clone() };
        let plan = steps(pools.create_pool(plan).await?.into_inner());
        let what =
            format!("use array {} for pool {}; its data are lost", request.array, request.name);
        confirm::ask(&Question { what: &what, plan: &plan, answer: &request.array })?;
    }
    Ok(pools.create_pool(request).await?.into_inner())
}

async fn destroy(arguments: Destroy, socket: &Path) -> Result<PoolChange, CliError> {
    let Destroy { name, force, yes, dry_run } = arguments;
    let request = DestroyPoolRequest { name, dry_run, force };
    let mut pools = Connection::open(socket).await?.pools();
    if !yes && !dry_run {
        confirm::possible(&format!("destroy pool {}", request.name))?;
        let plan = DestroyPoolRequest { dry_run: true, ..request.clone() };
        let plan = pools.destroy_pool(plan).await?.into_inner();
        let what = tables::pool::loss(plan.pool.as_ref(), &request.name);
        let what = format!("destroy pool {}: {what}", request.name);
        confirm::ask(&Question { what: &what, plan: &steps(plan), answer: &request.name })?;
    }
    Ok(pools.destroy_pool(request).await?.into_inner())
}
