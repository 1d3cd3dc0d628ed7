//! What each call does: check the size of what came, and hand it to the control plane. One file per service.

mod arrays;
mod config;
mod daemon;
mod drives;
mod events;
mod exports;
mod jobs;
mod spares;

use tonic::Status;

/// A call of the interface that this daemon does not carry out.
fn not_here(call: &str) -> Status {
    Status::unimplemented(format!(
        "{call} is not carried out by this version of straked; nothing was done"
    ))
}
