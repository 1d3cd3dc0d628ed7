//! `strake qos ...`.

use crate::args::qos::{Kind, Object, QosVerb, Set};
use crate::commands::volume::named;
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{ClearQosRequest, GetQosRequest, ListQosRequest, QosChange, SetQosRequest};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request.
pub async fn run(verb: QosVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let change = match verb {
        QosVerb::List { watch } => {
            let connection = Connection::open(socket).await?;
            let look =
                async || Ok(connection.qos().list_qos(ListQosRequest {}).await?.into_inner());
            let fine = |_: &_| Exit::Fine;
            return watch::answer(watch, out, look, tables::qos::list, |_| {}, fine).await;
        }
        QosVerb::Show(object) => {
            let (kind, name) = of(object)?;
            let mut qos = Connection::open(socket).await?.qos();
            let answer = qos.get_qos(GetQosRequest { kind, name }).await?.into_inner();
            out.print(&answer, tables::qos::show)?;
            return Ok(Exit::Fine);
        }
        QosVerb::Set(arguments) => {
            let request = request(arguments)?;
            Connection::open(socket).await?.qos().set_qos(request).await?.into_inner()
        }
        QosVerb::Clear { object, dry_run } => {
            let (kind, name) = of(object)?;
            let request = ClearQosRequest { kind, name, dry_run };
            Connection::open(socket).await?.qos().clear_qos(request).await?.into_inner()
        }
    };
    changed(&change, out)
}

fn changed(change: &QosChange, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, tables::qos::change)?;
    Ok(Exit::Fine)
}

/// The kind and the name of an object.
fn of(Object { kind, name }: Object) -> Result<(String, String), CliError> {
    let name = match kind {
        Kind::Volume => named(name)?,
        Kind::Export | Kind::Pool => name,
    };
    Ok((kind.word().to_owned(), name))
}

fn request(arguments: Set) -> Result<SetQosRequest, CliError> {
    let (kind, name) = of(arguments.object)?;
    Ok(SetQosRequest {
        kind,
        name,
        iops: arguments.iops.map(|rate| rate.0),
        read_iops: arguments.read_iops.map(|rate| rate.0),
        write_iops: arguments.write_iops.map(|rate| rate.0),
        bandwidth_bytes: arguments.bandwidth.map(|rate| rate.0),
        read_bandwidth_bytes: arguments.read_bandwidth.map(|rate| rate.0),
        write_bandwidth_bytes: arguments.write_bandwidth.map(|rate| rate.0),
        // The interface uses 0 for the present burst.
        burst_ms: arguments.burst_ms.unwrap_or_default(),
        dry_run: arguments.dry_run,
    })
}
