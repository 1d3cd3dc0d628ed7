//! Exports.

use super::grid::{Column, Grid};
use super::job::time;
use super::queue::{queues, securities, sources};
use super::{field, or_dash, sentence, size, steps, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{
    Controller, Export, ExportChange, ListExportsResponse, ListReferralsResponse, ReferralChange,
    Registrant,
};

/// Every export, one a line, then what to give to clients.
#[must_use]
pub fn list(answer: &ListExportsResponse, width: usize) -> String {
    if answer.exports.is_empty() {
        return sentence(
            "No exports. Create one: strake export create ARRAY --via nbd --listen unix:/path",
            width,
        );
    }
    let mut out = rows(&answer.exports, width);
    out.push('\n');
    for export in &answer.exports {
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "{}: {}", export.name, or_dash(&export.uri));
        if !export.reason.is_empty() {
            let reason = format!("{}: {}", export.state, export.reason);
            let _ = writeln!(out, "  {}", wrapped(&reason, width, 4));
        }
    }
    out
}

/// The table of [`list`].
pub(super) fn rows(exports: &[Export], width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Word("state"),
        Column::Name("export"),
        Column::Name("array"),
        Column::Word("via"),
        Column::Word("access"),
        Column::Number("clients"),
        Column::Number("read"),
        Column::Number("written"),
        Column::Path("listen"),
    ]);
    for export in exports {
        grid.row([
            export.state.clone(),
            export.name.clone(),
            export.array.clone(),
            export.via.clone(),
            if export.read_only { "ro" } else { "rw" }.to_owned(),
            export.connections.to_string(),
            size(export.read_bytes),
            size(export.write_bytes),
            export.listen.clone(),
        ]);
    }
    grid.render(width)
}

/// One export.
#[must_use]
pub fn show(export: &Export, width: usize) -> String {
    let mut out = rows(std::slice::from_ref(export), width);
    out.push('\n');
    if !export.uri.is_empty() {
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "uri        {}", export.uri);
    }
    field(&mut out, "hosts", &export.allow_hosts.join(", "), width);
    let encryption = match (export.secure, export.insecure) {
        (true, _) => "required: connections without TLS are rejected",
        (false, true) => "not required (--insecure)",
        (false, false) => "",
    };
    field(&mut out, "encryption", encryption, width);
    field(&mut out, "limits", &super::qos::line(&export.limits), width);
    field(&mut out, "reason", &export.reason, width);
    if let Some(reservation) = &export.reservation {
        let lasts = if reservation.persistent { ", also after a restart" } else { "" };
        let kind = match reservation.r#type.as_str() {
            "" => "nothing",
            kind => kind,
        };
        field(&mut out, "reserved", &format!("{kind}{lasts}"), width);
        for known in registrants(export) {
            field(&mut out, "registered", &known, width);
        }
    }
    for controller in &export.controllers {
        out.push('\n');
        field(&mut out, "connected", &host(controller), width);
        out.push_str(&queues(&controller.queues, width));
    }
    out
}

/// A host that is connected.
fn host(controller: &Controller) -> String {
    let Controller { id, nqn, keep_alive_ms, queues, .. } = controller;
    let from = sources(queues);
    let lasts = match keep_alive_ms {
        0 => "no keep-alive timeout".to_owned(),
        ms => format!("keep-alive timeout {}", time(u64::from(*ms).div_ceil(1000))),
    };
    format!("{nqn} from {from} over {}, controller {id}, {lasts}", securities(queues))
}

/// Hosts that registered, a line each.
#[must_use]
pub fn registrants(export: &Export) -> Vec<String> {
    let all = export.reservation.iter().flat_map(|reservation| &reservation.registrants);
    let line = |known: &Registrant| {
        let holds = if known.holds { ", holds the reservation" } else { "" };
        format!("{} (host {}, key {}){holds}", known.nqn, known.host_id, known.key)
    };
    all.map(line).collect()
}

/// What a command did to an export.
#[must_use]
pub fn change(change: &ExportChange, width: usize) -> String {
    let Some(export) = &change.export else {
        return format!("export: {}\n", change.result);
    };
    let mut out = sentence(&format!("export {}: {}", export.name, change.result), width);
    steps(&mut out, &change.plan, width);
    if !export.uri.is_empty() {
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "uri        {}", export.uri);
    }
    field(&mut out, "reason", &export.reason, width);
    out
}

/// The discovery services that hosts are referred to, one a line.
#[must_use]
pub fn referrals(answer: &ListReferralsResponse, width: usize) -> String {
    if answer.referrals.is_empty() {
        let what = "No referrals: discovery lists only the exports of this host.";
        return sentence(what, width)
            + &sentence("Add one: strake export referral add nvme-tcp://ADDRESS:PORT", width);
    }
    // Never shortened: they are there to be copied.
    answer.referrals.iter().map(|referral| format!("{}\n", referral.address)).collect()
}

/// What a command did to a referral.
#[must_use]
pub fn referral_change(change: &ReferralChange, width: usize) -> String {
    let address = change.referral.as_ref().map_or("-", |referral| or_dash(&referral.address));
    sentence(&format!("referral {address}: {}", change.result), width)
}
