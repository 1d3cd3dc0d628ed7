//! The policy of the operator for the start of an array.

/// Exceptions that the operator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblePolicy {
    /// Start with fewer members than before, as long as redundancy suffices.
    pub allow_degraded: bool,
    /// Start although blocks may be damaged, for example by a crash while members were missing.
    pub accept_loss: bool,
}
