//! The specification of a hook by the operator, and its check.

use std::fmt;

use serde::{Deserialize, Serialize};
use strake_api::v1;
use strake_units::Name;

use crate::error::AlertError;
use crate::limits::TARGET_BYTES_MAX;
use crate::mail::Mail;
use crate::program::{Program, Programs};
use crate::severity::Severity;
use crate::text::one_line;
use crate::webhook::Webhook;

/// The text that replaces a secret in output.
pub(crate) const MASK: &str = "***";

/// The receiver of a hook, the way of delivery, and the severity. The fields are those of `AddHookRequest`.
///
/// It contains the credentials of the target or the server, so it may be written only to a file that only the daemon
/// reads. `Debug` omits the credentials, and output for users comes from [`HookSpec::listed`].
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookSpec {
    /// The name of the hook.
    pub name: String,
    /// `webhook`, `email` or `exec`.
    pub kind: String,
    /// `https://...`, an address, or the path of a program.
    pub target: String,
    /// The minimum severity: `info`, `warning` or `critical`. Empty for `warning`.
    #[serde(default)]
    pub severity: String,
    /// The server of an e-mail hook: `smtp://host:port` or `smtps://host:port`. Empty for `smtp://localhost:25`.
    #[serde(default)]
    pub server: String,
    /// The sender of an e-mail hook.
    #[serde(default)]
    pub from: String,
}

impl From<v1::AddHookRequest> for HookSpec {
    fn from(asked: v1::AddHookRequest) -> Self {
        let v1::AddHookRequest { name, kind, target, severity, server, from } = asked;
        Self { name, kind, target, severity, server, from }
    }
}

impl fmt::Debug for HookSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, severity, from, target: _, server: _ } = self;
        f.debug_struct("HookSpec")
            .field("name", name)
            .field("kind", kind)
            .field("severity", severity)
            .field("from", from)
            .finish_non_exhaustive()
    }
}

impl HookSpec {
    /// Returns the hook as it is listed: without credentials, and with no counts.
    ///
    /// # Errors
    /// `Usage`: a field is invalid.
    pub fn listed(&self) -> Result<v1::Hook, AlertError> {
        Checked::new(self.clone()).map(|hook| hook.listed())
    }

    /// Returns the specification with masked credentials, for a document that other users may read. Such a hook is
    /// refused when it is added, so that it cannot be confused with the real hook.
    ///
    /// # Errors
    /// `Usage`: as [`Self::listed`].
    pub fn masked(&self) -> Result<Self, AlertError> {
        let v1::Hook { name, kind, target, severity, server, from, .. } = self.listed()?;
        Ok(Self { name, kind, target, severity, server, from })
    }

    fn refused(&self, why: &str) -> AlertError {
        AlertError::usage(format!("hook {:?}: {why}", one_line(&self.name)))
    }
}

/// A hook whose fields were checked.
#[derive(Debug)]
pub(crate) struct Checked {
    pub spec: HookSpec,
    pub severity: Severity,
    pub way: Way,
}

/// The way of delivery of a hook.
#[derive(Debug)]
pub(crate) enum Way {
    Webhook(Webhook),
    Mail(Mail),
    Exec(Program),
}

impl Checked {
    pub(crate) fn new(mut spec: HookSpec) -> Result<Self, AlertError> {
        if let Err(error) = spec.name.parse::<Name>() {
            return Err(spec.refused(&format!("{error}; choose another name")));
        }
        if spec.severity.is_empty() {
            spec.severity = Severity::Warning.word().to_string();
        }
        let Some(severity) = Severity::parse(&spec.severity) else {
            return Err(spec.refused("the severity is info, warning or critical"));
        };
        for (field, text) in [("target", &spec.target), ("server", &spec.server)] {
            if text.len() > TARGET_BYTES_MAX {
                let why = format!("the {field} is longer than {TARGET_BYTES_MAX} bytes");
                return Err(spec.refused(&why));
            }
            if text.contains(MASK) {
                let why = format!(
                    "the {field} was copied from a listing, where secrets are masked; give the full value"
                );
                return Err(spec.refused(&why));
            }
        }
        let way = way(&mut spec).map_err(|why| spec.refused(&why))?;
        Ok(Self { spec, severity, way })
    }

    /// Checks whether the program of an exec hook may run at this moment. Other hooks have no program.
    ///
    /// # Errors
    /// `Usage`: the program is missing or may not be run, with the reason and the remedy.
    pub(crate) fn check(&self, programs: &Programs) -> Result<(), AlertError> {
        match &self.way {
            Way::Exec(program) => {
                programs.may_run(program).map(drop).map_err(|e| self.spec.refused(&e.what))
            }
            Way::Webhook(_) | Way::Mail(_) => Ok(()),
        }
    }

    pub(crate) fn listed(&self) -> v1::Hook {
        let (target, server) = match &self.way {
            Way::Webhook(webhook) => (webhook.masked(), String::new()),
            Way::Mail(mail) => (mail.to.to_string(), mail.server.masked()),
            Way::Exec(program) => (program.path.display().to_string(), String::new()),
        };
        v1::Hook {
            name: self.spec.name.clone(),
            kind: self.spec.kind.clone(),
            target,
            severity: self.spec.severity.clone(),
            server,
            from: self.spec.from.clone(),
            ..v1::Hook::default()
        }
    }
}

fn way(spec: &mut HookSpec) -> Result<Way, String> {
    if spec.kind != "email" && !(spec.server.is_empty() && spec.from.is_empty()) {
        return Err("a mail server and a sender are for hooks of kind email only".into());
    }
    match spec.kind.as_str() {
        "webhook" => Webhook::parse(&spec.target).map(Way::Webhook),
        "exec" => Program::parse(&spec.target).map(Way::Exec),
        "email" => {
            if spec.server.is_empty() {
                spec.server = "smtp://localhost:25".into();
            }
            Mail::parse(&spec.target, &spec.from, &spec.server).map(Way::Mail)
        }
        _ => Err("the kind is webhook, email or exec".into()),
    }
}
