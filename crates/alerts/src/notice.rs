//! One event on its way to one hook.

use serde::Serialize;
use strake_api::v1::Event;

/// Version of the JSON document; raised when a field changes its meaning, not when one is added.
pub const DOCUMENT_VERSION: u32 = 1;

/// What a receiver gets: the event as gRPC has it, and where it comes from.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    host: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// An event and the machine it happened on.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub host: String,
    pub event: Event,
}

impl Message {
    /// The document for programs.
    pub(crate) fn json(&self) -> Vec<u8> {
        let document = Document { version: DOCUMENT_VERSION, host: &self.host, event: &self.event };
        serde_json::to_vec(&document).expect("texts and numbers are always JSON")
    }
}
