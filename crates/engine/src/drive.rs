//! A device with its name.

use std::fmt;
use std::sync::Arc;

use strake_block::BlockDevice;

/// A device with the name that the operator used.
#[derive(Clone)]
pub struct Drive {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Path or specification, for messages.
    pub path: String,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({})", self.path)
    }
}
