//! Time limits of drives.

use std::str::FromStr;

use strake_block::DeviceKind;
use strake_units::Nanos;

use crate::limits::{IO_LIMIT_BLOCK, IO_LIMIT_FILE, IO_LIMIT_MAX, IO_LIMIT_MIN, IO_LIMIT_REMOTE};

/// Time limits of one I/O by kind of drive. A member that exceeds its limit fails. The engine answers the requests
/// without the member as soon as the failure is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Limit of a local drive.
    pub block: Nanos,
    /// Limit of a file.
    pub file: Nanos,
    /// Limit of a remote drive.
    pub remote: Nanos,
}

impl Default for IoLimits {
    /// 8, 15 and 30 seconds.
    fn default() -> Self {
        Self { block: IO_LIMIT_BLOCK, file: IO_LIMIT_FILE, remote: IO_LIMIT_REMOTE }
    }
}

impl IoLimits {
    /// The limit for a device of `kind`.
    #[must_use]
    pub const fn of(&self, kind: DeviceKind) -> Nanos {
        match kind {
            DeviceKind::Block => self.block,
            DeviceKind::File => self.file,
            DeviceKind::Remote => self.remote,
        }
    }
}

/// Parses limits in seconds by kind, such as `block=8,file=15,remote=30`. Kinds without a value have the default limit.
impl FromStr for IoLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        for part in text.split(',') {
            let (kind, seconds) = part.split_once('=').unwrap_or((part, ""));
            // A smaller limit would fail drives that are only busy, and remote drives that are about to reconnect.
            let (limit, least) = match kind {
                "block" => (&mut limits.block, IO_LIMIT_MIN),
                "file" => (&mut limits.file, IO_LIMIT_MIN),
                "remote" => (&mut limits.remote, IO_LIMIT_REMOTE),
                _ => {
                    return Err(format!(
                        "{part:?}: name a kind and seconds, such as block=8; kinds are block, file, remote"
                    ));
                }
            };
            let asked = seconds.parse::<u32>().ok().map(|s| Nanos::SECOND.times(s.into()));
            *limit =
                asked.filter(|asked| (least..=IO_LIMIT_MAX).contains(asked)).ok_or_else(|| {
                    let (least, most) =
                        (least.0 / Nanos::SECOND.0, IO_LIMIT_MAX.0 / Nanos::SECOND.0);
                    format!(
                        "{part:?}: write {least} to {most} whole seconds, such as {kind}={least}"
                    )
                })?;
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceKind, IoLimits, Nanos};

    #[test]
    fn limits_are_read_by_kind_and_kept_within_reason() {
        let seconds = |text: &str| {
            let read = text.parse::<IoLimits>().map(|limits| {
                [DeviceKind::Block, DeviceKind::File, DeviceKind::Remote]
                    .map(|kind| limits.of(kind).0 / Nanos::SECOND.0)
            });
            read.map_err(|why| why.contains("write 6 to 300") || why.contains("write 30 to 300"))
        };
        assert_eq!(seconds("block=8,file=15,remote=30"), Ok([8, 15, 30]));
        assert_eq!(seconds("file=20"), Ok([8, 20, 30]));
        assert_eq!(seconds("remote=300,block=6"), Ok([6, 15, 300]));
        for beyond in ["block=5", "block=301", "block=", "block", "file=1.5", "remote=29"] {
            assert_eq!(seconds(beyond), Err(true), "{beyond}");
        }
        for unknown in ["", "8", "nvme=8", "block=8,"] {
            assert_eq!(seconds(unknown), Err(false), "{unknown}");
        }
    }
}
