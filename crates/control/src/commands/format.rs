//! Formats of NVMe drives.

use std::sync::Arc;

use strake_api::v1::{DriveChange, FormatDriveRequest};
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::maintenance::AdminCommand;
use strake_nvme_wire::maintenance::format::{BlockFormat, Erase, Formats, format};

use crate::bounded;
use crate::commands::begun::Begun;
use crate::commands::erase::{Erasable, Wanted, answer};
use crate::control::Control;
use crate::drives::DriveKind;
use crate::drives::maintenance::{Undone, judged};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::EventKind;
use crate::limits::LOOK_LIMIT;
use crate::state::maintenance::Operation;

/// Formats an NVMe drive. Waits a minute for the end; a longer format continues, and the result is "started".
///
/// # Errors
/// If the drive is in use or holds content whose loss the request does not accept, it does not support the format or
/// the erasure, other namespaces would be erased, or it does not answer.
pub fn format_drive(
    control: &Control,
    request: &FormatDriveRequest,
) -> Result<DriveChange, ControlError> {
    let erase = erasure(&request.erase)?;
    if request.lbaf.is_some() && request.block_bytes != 0 {
        return Err(ControlError::usage("name a format or the size of blocks, not both"));
    }
    let FormatDriveRequest { path, serial, force, .. } = request;
    let erasable = Erasable::check(control, &Wanted { path, serial, force: *force })?;
    check_functions(&erasable, erase)?;
    let (nsid, chosen) = chosen_format(&erasable, request)?;
    let bytes = 1_u32 << chosen.block_log2;
    let mut plan = erasable.plan.clone();
    plan.push(format!(
        "format {} with blocks of {bytes} bytes (format {}), secure erasure: {}",
        erasable.title(),
        chosen.number,
        erase.word()
    ));
    if request.dry_run {
        return Ok(erasable.answer(control, "planned", plan));
    }
    let what = format!("a format of {} started", erasable.title());
    let begun = erasable.begin(control, Operation::Format, what)?;
    let (path, serial) = (erasable.subject.path.clone(), erasable.maintained.facts.serial.clone());
    let own = control.clone();
    let job = move || execute(&own, erasable, begun, format(nsid, chosen.number, erase));
    let limit = control.with(|m| m.options.bind_limit)?;
    let result = match bounded::begin("drive format", limit, job) {
        Ok(Some(Ok(()))) => "changed",
        Ok(Some(Err(error))) => return Err(error),
        Ok(None) => "started",
        Err(error) => {
            let what = format!("the format of {path} cannot be executed: {error}");
            return Err(ControlError::new(ControlErrorKind::Internal, what));
        }
    };
    Ok(answer(control, &path, &serial, result, plan))
}

/// Formats a drive, and records the end. The drive stays open and reserved until then.
fn execute(
    control: &Control,
    mut erasable: Erasable,
    mut begun: Begun,
    command: AdminCommand,
) -> Result<(), ControlError> {
    // A stop of the daemon does not wait for the format, which no daemon can stop.
    erasable.subject.reserved.end_command();
    begun.sent();
    let why = match executed(control, &erasable, command) {
        Ok(()) => {
            begun.finished();
            return Ok(());
        }
        Err(Undone::Unchanged(why)) => {
            begun.restored(EventKind::DriveMaintenanceFailed, "was refused by the drive", &why);
            why
        }
        Err(Undone::Unknown(why)) => {
            begun.failed(&format!("{why}; format the drive again before it is used"));
            why
        }
    };
    Err(ControlError::device(format!("{} is not formatted: {why}", erasable.subject.path)))
}

/// Executes a format: of a drive of the kernel in a process of its own, which a killed daemon leaves.
fn executed(control: &Control, erasable: &Erasable, command: AdminCommand) -> Result<(), Undone> {
    let broken = |error: ControlError| Undone::Unchanged(error.what);
    let identity = erasable.drive.device.identity();
    let found = control.with(|m| {
        let open = m.drives.all().iter().find(|open| open.drive.device.identity() == identity);
        let local = open.filter(|open| open.kind == DriveKind::Block)?.local.clone()?;
        Some((m.options.formatter.clone()?, local))
    });
    let Some((formatter, device)) = found.map_err(broken)? else {
        return erasable.maintained.execute(command);
    };
    let claim = device.claim().map_err(|error| Undone::Unchanged(error.to_string()))?;
    formatter.run(&command, claim).and_then(|status| judged(command.name(), status))
}

fn erasure(word: &str) -> Result<Erase, ControlError> {
    let word = if word.is_empty() { Erase::None.word() } else { word };
    Erase::from_word(word).ok_or_else(|| {
        let kinds = Erase::ALL.map(Erase::word).join(", ");
        ControlError::usage(format!("there is no erasure {word:?}; use: {kinds}"))
    })
}

/// Refuses a format that the drive does not support, or that erases other namespaces, too.
fn check_functions(erasable: &Erasable, erase: Erase) -> Result<(), ControlError> {
    let (path, functions) = (&erasable.subject.path, &erasable.maintained.functions);
    if !functions.formats {
        return Err(ControlError::state(format!("{path} does not support Format NVM")));
    }
    if erase == Erase::Crypto && !functions.format.crypto {
        return Err(ControlError::state(format!(
            "{path} does not support the cryptographic erasure; use the erasure user"
        )));
    }
    if functions.format.applies_to_all(erase) {
        erasable.refuse_others("this format")?;
    }
    Ok(())
}

/// Returns the namespace ID of the drive, and the format that the request names.
fn chosen_format(
    erasable: &Erasable,
    request: &FormatDriveRequest,
) -> Result<(u32, BlockFormat), ControlError> {
    let path = &erasable.subject.path;
    let (maintained, source) =
        (Arc::clone(&erasable.maintained), Arc::clone(&erasable.subject.source));
    let look = move || {
        let nsid = source.namespace()?;
        let page = maintained.page(AdminCommand::identify(cns::NAMESPACE, nsid))?;
        Ok((nsid, Formats::parse(&page)))
    };
    let looked = bounded::ask(&format!("formats of {path}"), LOOK_LIMIT, look)?;
    let (nsid, formats) = looked.map_err(|why: String| {
        ControlError::device(format!("the formats of {path} cannot be read: {why}"))
    })?;
    let found = match (request.lbaf, request.block_bytes) {
        (Some(number), _) => u8::try_from(number).ok().and_then(|n| formats.numbered(n)),
        (None, 0) => formats.numbered(formats.current),
        (None, bytes) => formats.of_bytes(bytes),
    };
    let Some(found) = found else {
        return Err(ControlError::state(format!(
            "{path} has no such format; its formats are: {}",
            described(&formats)
        )));
    };
    if found.metadata_bytes != 0 || !matches!(found.block_log2, 9 | 12) {
        return Err(ControlError::refused(format!(
            "format {} has blocks of 2^{} bytes with {} bytes of metadata, and only blocks of 512 or 4096 bytes \
             without metadata are supported; the formats of {path} are: {}",
            found.number,
            found.block_log2,
            found.metadata_bytes,
            described(&formats)
        )));
    }
    Ok((nsid, *found))
}

fn described(formats: &Formats) -> String {
    let one = |format: &BlockFormat| {
        let metadata = match format.metadata_bytes {
            0 => String::new(),
            bytes => format!(" + {bytes}"),
        };
        format!("{} (2^{} bytes{metadata})", format.number, format.block_log2)
    };
    formats.all.iter().map(one).collect::<Vec<_>>().join(", ")
}
