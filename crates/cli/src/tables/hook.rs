//! Hooks, which deliver events.

use super::grid::{Column, Grid};
use super::{field, sentence, wrapped};
use strake_api::v1::{Hook, HookChange, ListHooksResponse};

/// Every hook, one a line, then what went wrong with them.
#[must_use]
pub fn list(answer: &ListHooksResponse, width: usize) -> String {
    if answer.hooks.is_empty() {
        return sentence("No hooks: events are not delivered to other programs.", width)
            + &sentence(
                "Add one: strake hook add NAME --webhook URL | --email ADDRESS | --exec PROGRAM",
                width,
            );
    }
    let mut grid = Grid::new(&[
        Column::Name("hook"),
        Column::Word("kind"),
        Column::Path("target"),
        Column::Word("from"),
        Column::Number("sent"),
        Column::Number("failed"),
        Column::Number("held back"),
    ]);
    for hook in &answer.hooks {
        grid.row([
            hook.name.clone(),
            hook.kind.clone(),
            hook.target.clone(),
            hook.severity.clone(),
            hook.delivered.to_string(),
            hook.failed.to_string(),
            hook.held_back.to_string(),
        ]);
    }
    let mut out = grid.render(width);
    for hook in answer.hooks.iter().filter(|h| !h.last_error.is_empty()) {
        let text = format!("{}: {}", hook.name, hook.last_error);
        out.push('\n');
        out.push_str(&sentence(&text, width));
    }
    out
}

/// What a command did to a hook.
#[must_use]
pub fn change(change: &HookChange, width: usize) -> String {
    let Some(hook) = &change.hook else {
        return format!("hook: {}\n{}", change.result, said(&change.what, width));
    };
    let mut out = sentence(&format!("hook {}: {}", hook.name, change.result), width);
    out.push_str(&said(&change.what, width));
    show(hook, width, &mut out);
    out
}

fn said(what: &str, width: usize) -> String {
    if what.is_empty() { String::new() } else { format!("  {}\n", wrapped(what, width, 2)) }
}

fn show(hook: &Hook, width: usize, out: &mut String) {
    field(out, &hook.kind, &hook.target, width);
    field(out, "server", &hook.server, width);
    field(out, "sender", &hook.from, width);
    if !hook.severity.is_empty() {
        field(out, "minimum severity", &hook.severity, width);
    }
    field(out, "last error", &hook.last_error, width);
}
