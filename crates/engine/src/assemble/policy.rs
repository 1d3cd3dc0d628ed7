//! What an operator allows when an array starts.

/// What the operator allows beyond the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblePolicy {
    /// Start with fewer members than were last seen together, as long as redundancy covers it.
    pub allow_degraded: bool,
    /// Start although a crash while degraded may have damaged the blocks that were being written.
    pub accept_loss: bool,
}
