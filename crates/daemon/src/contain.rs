//! The containment of this process: rights that the process gives up at its start.
//!
//! Each measure limits the damage by a fault in code that parses input of others. Threads and hooks inherit all
//! measures, so [`enter`] runs before the first thread starts. Pure functions decide what is permitted; the functions
//! named `enter` are the only effects. [Decision 43](../../../docs/decisions/0043-containment.md) has the reasons.

mod calls;
mod dumps;
mod files;

#[cfg(test)]
mod tests;

use rustix::thread::set_no_new_privs;
use strake_control::Measure;

pub use dumps::CoreDumps;
pub use files::{Folders, Places, Writes};

/// The choices of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Whether the kernel may write core dumps.
    pub core_dumps: CoreDumps,
    /// The folders that may be written and that have programs.
    pub places: Places,
}

/// Gives up rights, and returns the measures for the diagnosis. Measures that are not in force are logged.
///
/// # Errors
/// A measure that every supported kernel has could not be taken, or a named folder cannot be used.
pub fn enter(choices: &Choices) -> Result<Vec<Measure>, String> {
    let mut measures = vec![dumps::enter(choices.core_dumps)?, enter_no_new_privs()?];
    measures.extend(files::enter(&choices.places)?);
    measures.push(calls::enter());
    for measure in &measures {
        if let Some(remedy) = &measure.remedy {
            tracing::warn!(measure = measure.name, %remedy, "{}", measure.what);
        }
    }
    Ok(measures)
}

/// Gives up the rights that a program with a set-user-ID bit or with file capabilities would give. The filters of files
/// and of system calls also need this (landlock(7), seccomp(2)).
fn enter_no_new_privs() -> Result<Measure, String> {
    set_no_new_privs(true).map_err(|error| format!("cannot give up new privileges: {error}"))?;
    let what = "none; a hook gets no rights through programs such as sudo";
    Ok(Measure::in_force("new privileges", what))
}
