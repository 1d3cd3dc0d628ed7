//! What can happen to an array, by name.

use std::fmt;
use std::str::FromStr;

/// Everything bad that happens in worlds, one bit each in [`Kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block turns out to be unreadable.
    Medium,
    /// An I/O fails, and with it the member.
    Error,
    /// A drive is pulled.
    Vanish,
    /// An I/O is not answered for longer than the engine waits.
    Hang,
    /// An I/O takes milliseconds to seconds.
    Delay,
    /// A write of several blocks of 512 B is done in part.
    Torn512,
    /// A write of several blocks of 4 KiB is done in part.
    Torn4K,
    /// A drive takes many times as long as the others.
    Slow,
    /// No drive answers anything for seconds.
    Stall,
    /// Several drives fail in one moment, each in its way, and the others stall.
    AllAtOnce,
    /// A drive acknowledges flushes, does nothing, and loses power after an orderly stop.
    FlushLie,
    /// A drive comes back with what it held some time before.
    ReturnStale,
    /// A drive comes back smaller.
    Shrink,
    /// Drives are found under each other's names.
    Swap,
    /// A bit of what a drive holds is another one.
    BitFlip,
    /// A drive acknowledges a write and does not do it.
    LostWrite,
    /// A drive misdirects a write: it writes the data to another address.
    Misdirected,
    /// A drive answers for a time with what it held before the last write.
    StaleRead,
    /// A sound array is scrubbed.
    Scrub,
    /// Writes are made safe against crashes in another way.
    Mode,
    /// The operator takes a member out of use.
    Fail,
    /// A member that is out is replaced.
    Replace,
    /// A drive is taken back.
    Readd,
    /// The array is stopped in order and started again.
    Stop,
    /// The process is killed.
    Kill,
    /// The power fails.
    Power,
    /// A drive is lost in the event that stops the machine.
    CrashAndLoss,
    /// More drives are pulled than the array survives.
    Lose,
    /// A drive answers nothing for a time, or permanently.
    Silence,
    /// The same, from some request of an assembly on.
    SilentStart,
    /// The same while the array is stopped in order.
    SilentStop,
    /// No drive answers anything for longer than a drive may take.
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

/// A set of kinds. In words they are separated by commas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    /// Whether `kind` is among them.
    #[must_use]
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u64 != 0
    }

    /// These and `kind`.
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
