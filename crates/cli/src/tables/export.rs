//! Exports.

use super::{columns, head, or_dash, render, right, size, tail, widest, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{Export, ExportChange, ListExportsResponse};

/// Every export, one a line, then what to give to clients.
#[must_use]
pub fn list(answer: &ListExportsResponse, width: usize) -> String {
    if answer.exports.is_empty() {
        return "No exports. Create one: strake export create ARRAY --via nbd --listen unix:/path\n".to_owned();
    }
    let mut out = rows(&answer.exports, width);
    out.push('\n');
    for export in &answer.exports {
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "{}: {}", export.name, or_dash(&export.uri));
        if !export.reason.is_empty() {
            let _ = writeln!(out, "  {}: {}", export.state, wrapped(&export.reason, width, 4));
        }
    }
    out
}

/// The table of [`list`].
pub(super) fn rows(exports: &[Export], width: usize) -> String {
    let mut table = columns(&["state", "export", "array", "clients", "read", "written", "listen"]);
    let name_width =
        widest(exports.iter().flat_map(|e| [e.name.as_str(), e.array.as_str()]), 6, 12);
    // State, clients and two sizes at their widest, with the space after each.
    let listen_width = width.saturating_sub((name_width + 2) * 2 + 9 + 9 + 11 + 11).max(12);
    for export in exports {
        table.add_row([
            export.state.clone(),
            head(&export.name, name_width),
            head(&export.array, name_width),
            export.connections.to_string(),
            size(export.read_bytes),
            size(export.write_bytes),
            tail(or_dash(&export.listen), listen_width),
        ]);
    }
    for column in 3..6 {
        right(&mut table, column);
    }
    render(table)
}

/// What a command did to an export.
#[must_use]
pub fn change(change: &ExportChange, width: usize) -> String {
    let Some(export) = &change.export else {
        return format!("export: {}\n", change.result);
    };
    let mut out = format!("export {}: {}\n", export.name, change.result);
    for step in &change.plan {
        let _ = writeln!(out, "  - {}", wrapped(step, width, 4));
    }
    if !export.uri.is_empty() {
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "uri        {}", export.uri);
    }
    if !export.reason.is_empty() {
        let _ = writeln!(out, "reason     {}", wrapped(&export.reason, width, 11));
    }
    out
}
