//! One module per object. A command sends its arguments to the daemon and prints the answer. If something may be lost,
//! a dry run comes first.

pub mod array;
pub mod bench;
pub mod config;
pub mod confirm;
pub mod daemon;
pub mod drive;
pub mod event;
pub mod export;
pub mod hook;
pub mod host;
pub mod iostat;
pub mod job;
pub mod log;
pub mod pool;
pub mod qos;
pub mod snapshot;
pub mod spare;
pub mod status;
pub mod top;
pub mod trace;
pub mod volume;

/// Warnings of an answer go to standard error, in either format.
fn warn(warnings: &[String]) {
    for warning in warnings {
        crate::fold::tell_person(&format!("strake: warning: {warning}"));
    }
}
