//! The events of worlds, by name.

use std::fmt;
use std::str::FromStr;

/// The events of worlds, with one bit each in [`Kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block becomes unreadable.
    Medium,
    /// An I/O fails, and the array fails the member.
    Error,
    /// A drive is removed.
    Vanish,
    /// An I/O takes longer than the time limit of the engine.
    Hang,
    /// An I/O takes milliseconds to seconds.
    Delay,
    /// A write of several blocks of 512 B is torn.
    Torn512,
    /// A write of several blocks of 4 KiB is torn.
    Torn4K,
    /// A drive takes many times as long as the others.
    Slow,
    /// No drive answers for seconds.
    Stall,
    /// Several drives fail at the same time, in different ways, and the others stall.
    AllAtOnce,
    /// A drive completes flushes without an effect, and loses power after a clean shutdown.
    FlushLie,
    /// A drive returns with older content.
    ReturnStale,
    /// A drive returns with a smaller size.
    Shrink,
    /// The names of drives are exchanged.
    Swap,
    /// A bit of a drive's content is flipped.
    BitFlip,
    /// A drive completes a write without executing it.
    LostWrite,
    /// A drive misdirects a write: it writes the data to another address.
    Misdirected,
    /// A drive returns its content from before the last write for a time.
    StaleRead,
    /// A consistent array is scrubbed.
    Scrub,
    /// The consistency mode is changed.
    Mode,
    /// The operator fails a member.
    Fail,
    /// A member that is out is replaced.
    Replace,
    /// A member is re-added.
    Readd,
    /// The array is stopped cleanly and started again.
    Stop,
    /// The process is killed.
    Kill,
    /// The power fails.
    Power,
    /// A drive is lost in the same event as the crash.
    CrashAndLoss,
    /// More drives are removed than the array tolerates.
    Lose,
    /// A drive does not answer for a time, or permanently.
    Silence,
    /// A drive stops answering at some request of an assembly.
    SilentStart,
    /// A drive stops answering during a clean shutdown.
    SilentStop,
    /// No drive answers for longer than the time limit of a member.
    Standstill,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 32] = [
        Self::Medium,
        Self::Error,
        Self::Vanish,
        Self::Hang,
        Self::Delay,
        Self::Torn512,
        Self::Torn4K,
        Self::Slow,
        Self::Stall,
        Self::AllAtOnce,
        Self::FlushLie,
        Self::ReturnStale,
        Self::Shrink,
        Self::Swap,
        Self::BitFlip,
        Self::LostWrite,
        Self::Misdirected,
        Self::StaleRead,
        Self::Scrub,
        Self::Mode,
        Self::Fail,
        Self::Replace,
        Self::Readd,
        Self::Stop,
        Self::Kill,
        Self::Power,
        Self::CrashAndLoss,
        Self::Lose,
        Self::Silence,
        Self::SilentStart,
        Self::SilentStop,
        Self::Standstill,
    ];

    /// Its name in counts and on command lines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::Error => "error",
            Self::Vanish => "vanish",
            Self::Hang => "hang",
            Self::Delay => "delay",
            Self::Torn512 => "torn_512",
            Self::Torn4K => "torn_4k",
            Self::Slow => "slow",
            Self::Stall => "stall",
            Self::AllAtOnce => "all_at_once",
            Self::FlushLie => "flush_lie",
            Self::ReturnStale => "return_stale",
            Self::Shrink => "shrink",
            Self::Swap => "swap",
            Self::BitFlip => "bit_flip",
            Self::LostWrite => "lost_write",
            Self::Misdirected => "misdirected",
            Self::StaleRead => "stale_read",
            Self::Scrub => "scrub",
            Self::Mode => "mode",
            Self::Fail => "fail",
            Self::Replace => "replace",
            Self::Readd => "readd",
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Power => "power",
            Self::CrashAndLoss => "crash_and_loss",
            Self::Lose => "lose",
            Self::Silence => "silence",
            Self::SilentStart => "silent_start",
            Self::SilentStop => "silent_stop",
            Self::Standstill => "standstill",
        }
    }
}

/// A set of kinds. As text, the names are separated by commas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    /// True if the set contains `kind`.
    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// The set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u64)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> =
            Kind::ALL.into_iter().filter(|k| self.has(*k)).map(Kind::word).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        words.split(',').try_fold(Self::default(), |kinds, word| {
            let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
            Ok(kinds.with(kind.ok_or(format!("{word} is no kind of fault"))?))
        })
    }
}
