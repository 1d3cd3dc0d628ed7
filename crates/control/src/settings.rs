//! How arrays behave.

use strake_api::v1::ArraySettings;

use crate::store::Settings;

impl Settings {
    /// As a message.
    pub(crate) fn message(self) -> ArraySettings {
        ArraySettings {
            rebuild_priority: u32::from(self.rebuild_priority),
            auto_replace: self.auto_replace,
            auto_readd: self.auto_readd,
            replace_after_errors: self.replace_after_errors,
        }
    }
}
