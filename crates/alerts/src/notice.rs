//! The message about one event to one hook.

use serde::Serialize;
use strake_api::v1::Event;

/// The version of the JSON document. It increases if a field changes its meaning, and not if a field is added.
pub const DOCUMENT_VERSION: u32 = 1;

/// The document for a receiver: the event as in gRPC, and its host.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    host: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// An event and its host.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub host: String,
    pub event: Event,
}

impl Message {
    /// Returns the document for programs.
    pub(crate) fn json(&self) -> Vec<u8> {
        let document = Document { version: DOCUMENT_VERSION, host: &self.host, event: &self.event };
        serde_json::to_vec(&document).expect("texts and numbers are always JSON")
    }
}
