//! Sanitize: the drive erases all its data, also what no host can read (Base, sections 5.24 and 8.20).

use crate::bytes::{u16_at, u32_at};
use crate::command::admin;
use crate::maintenance::{AdminCommand, Transfer};

/// Identifier of the Sanitize Status page (Base, section 5.16.1.25).
pub const STATUS_PAGE: u8 = 0x81;
/// Bytes of that page.
pub const STATUS_BYTES: usize = 512;

/// A kind of erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Erase blocks of the medium.
    Block,
    /// Write a pattern over the medium, once.
    Overwrite,
    /// Change the key with which the medium is encrypted.
    Crypto,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 3] = [Self::Block, Self::Crypto, Self::Overwrite];

    /// The name of the action in commands and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Overwrite => "overwrite",
            Self::Crypto => "crypto",
        }
    }

    /// The action with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }

    /// SANACT (Base, Figure 303).
    const fn code(self) -> u32 {
        match self {
            Self::Block => 0b010,
            Self::Overwrite => 0b011,
            Self::Crypto => 0b100,
        }
    }

    const fn of_code(code: u32) -> Option<Self> {
        match code & 0b111 {
            0b010 => Some(Self::Block),
            0b011 => Some(Self::Overwrite),
            0b100 => Some(Self::Crypto),
            _ => None,
        }
    }
}

/// The supported actions (Base, Figure 275, SANICAP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    bits: u32,
}

impl Capabilities {
    pub(super) fn of(page: &[u8; 4096]) -> Self {
        Self { bits: u32_at(page, 328) }
    }

    /// Whether `action` is supported.
    #[must_use]
    pub const fn has(self, action: Action) -> bool {
        let bit = match action {
            Action::Crypto => 0,
            Action::Block => 1,
            Action::Overwrite => 2,
        };
        self.bits & 1 << bit != 0
    }

    /// The supported actions.
    pub fn actions(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |action| self.has(*action))
    }
}

/// The command that starts `action`. The completion mode is restricted (AUSE is 0): after a failure, the drive accepts
/// no reads and writes until a sanitize operation succeeds. An overwrite has one pass with zeroes.
#[must_use]
pub fn start(action: Action) -> AdminCommand {
    let passes = if matches!(action, Action::Overwrite) { 1 << 4 } else { 0 };
    let plain = AdminCommand::new(admin::SANITIZE, "Sanitize", Transfer::Nothing);
    AdminCommand { dwords: [action.code() | passes, 0, 0, 0, 0, 0], ..plain }
}

/// The command that reads the status.
#[must_use]
pub fn read_status() -> AdminCommand {
    AdminCommand::log_page(STATUS_PAGE, (0, STATUS_BYTES as u32), 0, true)
}

/// The state of the most recent sanitize operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The drive was never sanitized.
    Never,
    /// The operation succeeded.
    Completed,
    /// The operation is in progress.
    Running,
    /// The operation failed.
    Failed,
    /// A reserved code.
    Unknown(u8),
}

/// The Sanitize Status page (Base, section 5.16.1.25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The state.
    pub state: State,
    /// The action of the most recent operation.
    pub action: Option<Action>,
    /// Progress, in parts of 65,536.
    pub done: u16,
    /// The drive's estimate of the whole duration, if it reports one.
    pub estimate_s: Option<u32>,
}

impl Progress {
    /// Parses the page.
    #[must_use]
    pub fn parse(page: &[u8; STATUS_BYTES]) -> Self {
        let state = match page[2] & 0b111 {
            0 => State::Never,
            // 4: completed, although the drive deallocated blocks that the host wanted to keep.
            1 | 4 => State::Completed,
            2 => State::Running,
            3 => State::Failed,
            code => State::Unknown(code),
        };
        let action = Action::of_code(u32_at(page, 4));
        let estimate_at = match action {
            Some(Action::Overwrite) => Some(8),
            Some(Action::Block) => Some(12),
            Some(Action::Crypto) => Some(16),
            None => None,
        };
        let estimate = estimate_at.map(|at| u32_at(page, at)).filter(|s| *s != u32::MAX);
        Self { state, action, done: u16_at(page, 0), estimate_s: estimate }
    }

    /// Percent of the operation that are done.
    #[must_use]
    pub const fn percent(&self) -> u32 {
        match self.state {
            State::Running => self.done as u32 * 100 / 65_536,
            State::Completed => 100,
            State::Never | State::Failed | State::Unknown(_) => 0,
        }
    }
}
