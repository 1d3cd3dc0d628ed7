//! The locate LED of a slot: the patterns that it can show, and the writes for each pattern.
//!
//! The writes are a value ([`Light::writes`]). Only [`Light::show`] accesses the kernel, which may wait for firmware
//! meanwhile: an NPEM command may take a second, and platforms with `_DSM` send IPMI messages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::sysfs::attribute;

/// Interval at which an LED is read until it shows the written value. An NPEM command takes milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The patterns of an LED for the drive in its slot, in the order of urgency: if several apply, the last one is shown.
/// The names are those of IBPI (SFF-8489) and of PCIe enclosure management (PCI Express Base Specification 6.1, section
/// 6.28).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// The slot has no drive in use.
    #[default]
    Off,
    /// The drive is in use without faults.
    Ok,
    /// The drive is in an array without redundancy left: one more failure loses data.
    Ica,
    /// The drive is in a failed array: more members are absent than the level tolerates.
    Ifa,
    /// The drive is a spare.
    Hotspare,
    /// Predicted failure: the drive works and should be replaced.
    Pfa,
    /// A rebuild or a copy writes to the drive.
    Rebuild,
    /// The drive failed and should be removed.
    Fail,
    /// The operator requested the position of the drive.
    Locate,
}

impl Pattern {
    /// Every pattern, in the order of urgency.
    pub const ALL: [Self; 9] = [
        Self::Off,
        Self::Ok,
        Self::Ica,
        Self::Ifa,
        Self::Hotspare,
        Self::Pfa,
        Self::Rebuild,
        Self::Fail,
        Self::Locate,
    ];

    /// The name of the pattern; except for `off`, it is the name of the indication in the kernel (drivers/pci/npem.c,
    /// `npem_indications`).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Ok => "ok",
            Self::Ica => "ica",
            Self::Ifa => "ifa",
            Self::Hotspare => "hotspare",
            Self::Pfa => "pfa",
            Self::Rebuild => "rebuild",
            Self::Fail => "fail",
            Self::Locate => "locate",
        }
    }
}

/// An LED that can be switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Light(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An element of a SCSI enclosure (Documentation/ABI/testing/sysfs-class-enclosure): `locate` and `fault`.
    Ses { folder: PathBuf, has_fault: bool },
    /// PCIe enclosure management, of the drive or of the port above it: an LED of the LED class for each indication
    /// that the slot supports (drivers/pci/npem.c).
    Npem { folder: PathBuf, device: String, shows: Vec<Pattern> },
    /// The indicators of a slot behind Intel VMD, which accept the raw values of the two fields of the Slot Control
    /// register (drivers/pci/hotplug/pciehp_hpc.c, `pciehp_set_raw_indicator_status`).
    Vmd(PathBuf),
    /// The attention indicator of a hot-plug slot.
    Attention(PathBuf),
}

impl Light {
    /// The LED of the enclosure element at `folder`, if it has a locate attribute.
    pub(crate) fn of_enclosure(folder: &Path) -> Option<Self> {
        let has_fault = folder.join("fault").exists();
        let ses = Kind::Ses { folder: folder.to_owned(), has_fault };
        folder.join("locate").exists().then_some(Self(ses))
    }

    /// The LEDs of the PCI function at `folder` in the kernel.
    pub(crate) fn of_npem(folder: &Path) -> Option<Self> {
        let device = folder.file_name()?.to_str()?.to_owned();
        let folder = folder.join("leds");
        let led = |pattern: &Pattern| folder.join(led_of(&device, *pattern)).exists();
        let shows: Vec<Pattern> = Pattern::ALL.into_iter().filter(led).collect();
        let can_locate = shows.contains(&Pattern::Locate);
        can_locate.then_some(Self(Kind::Npem { folder, device, shows }))
    }

    /// The indicator of the hot-plug slot at `folder` with the address `address`.
    pub(crate) fn of_hotplug(folder: &Path, address: &str) -> Option<Self> {
        let attention = folder.join("attention");
        if !attention.exists() {
            return None;
        }
        let kind = if is_behind_vmd(address) { Kind::Vmd } else { Kind::Attention };
        Some(Self(kind(attention)))
    }

    /// The interface of the LED: `ses`, `npem`, `vmd` or `attention`.
    #[must_use]
    pub const fn backend(&self) -> &'static str {
        match &self.0 {
            Kind::Ses { .. } => "ses",
            Kind::Npem { .. } => "npem",
            Kind::Vmd(_) => "vmd",
            Kind::Attention(_) => "attention",
        }
    }

    /// A name that distinguishes the LED from others, independent of the drive in the slot and of its driver.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Ses { folder, .. } => folder.join("locate").display().to_string(),
            Kind::Npem { folder, device, .. } => {
                folder.join(format!("{device}:enclosure:*")).display().to_string()
            }
            Kind::Vmd(attention) | Kind::Attention(attention) => attention.display().to_string(),
        }
    }

    /// The visible pattern if the LED is to show `pattern`. An LED without an indication for a pattern stays off,
    /// because a wrong pattern leads to the removal of a wrong drive.
    #[must_use]
    pub fn seen(&self, pattern: Pattern) -> Pattern {
        let can = match &self.0 {
            Kind::Ses { has_fault, .. } => {
                pattern == Pattern::Locate || (*has_fault && pattern == Pattern::Fail)
            }
            Kind::Npem { shows, .. } => shows.contains(&pattern),
            Kind::Vmd(_) => matches!(pattern, Pattern::Locate | Pattern::Fail | Pattern::Rebuild),
            Kind::Attention(_) => matches!(pattern, Pattern::Locate | Pattern::Fail),
        };
        if can { pattern } else { Pattern::Off }
    }

    /// The attributes, and the values with which the LED shows `pattern`.
    #[must_use]
    pub fn writes(&self, pattern: Pattern) -> Vec<(PathBuf, &'static str)> {
        let bit = |on: bool| if on { "1" } else { "0" };
        match &self.0 {
            Kind::Ses { folder, has_fault } => {
                let locate = (folder.join("locate"), bit(pattern == Pattern::Locate));
                let fault = (folder.join("fault"), bit(pattern == Pattern::Fail));
                std::iter::once(locate).chain(has_fault.then_some(fault)).collect()
            }
            Kind::Npem { folder, device, shows } => shows
                .iter()
                .map(|led| (folder.join(led_of(device, *led)), bit(pattern == *led)))
                .collect(),
            Kind::Vmd(attention) => vec![(attention.clone(), raw_indicators(pattern))],
            Kind::Attention(attention) => vec![(attention.clone(), attention_of(pattern))],
        }
    }

    /// True if all attributes of the LED still exist.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.writes(Pattern::Off).iter().all(|(attribute, _)| attribute.exists())
    }

    /// Shows `pattern`, independent of the previous pattern. This may wait for firmware, and at most for `settle` until
    /// the LED shows the pattern.
    /// The kernel switches an LED of the LED class after the write, in a work queue: until then a read returns the old
    /// value, and a failure is visible only in a later read. So each LED is written regardless of its current value,
    /// and read afterwards. Other attributes that already have the right value are not written.
    ///
    /// Returns an error if the kernel rejects a write, as it does for users other than root; the other attributes were
    /// written. Returns an error if an LED does not show the written value.
    pub fn show(&self, pattern: Pattern, settle: Duration) -> io::Result<()> {
        self.write(pattern, settle, matches!(self.0, Kind::Npem { .. }))
    }

    /// As [`show`](Self::show), for an LED that has shown `pattern`: only attributes that differ are written.
    ///
    /// Returns the errors of [`show`](Self::show).
    pub fn keep(&self, pattern: Pattern, settle: Duration) -> io::Result<()> {
        self.write(pattern, settle, false)
    }

    fn write(&self, pattern: Pattern, settle: Duration, all: bool) -> io::Result<()> {
        let mut result = Ok(());
        let mut written = Vec::new();
        for (path, value) in self.writes(pattern) {
            if !all && holds(&path, value) {
                continue;
            }
            match fs::write(&path, value) {
                Ok(()) => written.push((path, value)),
                Err(error) => {
                    let what = format!("{}: {error}", path.display());
                    result = result.and(Err(io::Error::new(error.kind(), what)));
                }
            }
        }
        // The write itself switches other attributes.
        let late =
            if matches!(self.0, Kind::Npem { .. }) { settled(&written, settle) } else { None };
        result.and(late.map_or(Ok(()), |path| {
            let what = format!("{} does not show what was written to it", path.display());
            Err(io::Error::other(what))
        }))
    }
}

/// Waits until every attribute has the written value. Returns one that does not after `limit`.
fn settled(written: &[(PathBuf, &'static str)], limit: Duration) -> Option<PathBuf> {
    let begun = Instant::now();
    for (path, value) in written {
        while !holds(path, value) {
            if begun.elapsed() >= limit {
                return Some(path.clone());
            }
            // The kernel reports no completion of a requested LED change. An early wake-up does no harm.
            thread::park_timeout(LOOK_EVERY);
        }
    }
    None
}

/// The name of the LED of an indication, with its attribute (`led_compose_name`: device name and label).
fn led_of(device: &str, pattern: Pattern) -> String {
    format!("{device}:enclosure:{}/brightness", pattern.word())
}

/// The domains of VMD follow those of ACPI, which have 16 bits (drivers/pci/controller/vmd.c, `vmd_find_free_domain`).
fn is_behind_vmd(address: &str) -> bool {
    let domain = address.split(':').next().unwrap_or_default();
    u32::from_str_radix(domain, 16).is_ok_and(|domain| domain > 0xffff)
}

/// The fields Power Indicator Control (upper two bits) and Attention Indicator Control (lower two) of the Slot Control
/// register (PCI Express Base Specification 6.1, section 7.5.3.10: 01b on, 10b blinking, 11b off), as backplanes behind
/// VMD understand them (ledmon, `src/lib/vmdssd.c`, `ibpi_to_attention`).
const fn raw_indicators(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Locate => "7",
        Pattern::Rebuild => "5",
        Pattern::Fail => "13",
        Pattern::Off
        | Pattern::Ok
        | Pattern::Ica
        | Pattern::Ifa
        | Pattern::Hotspare
        | Pattern::Pfa => "15",
    }
}

/// The states of an attention indicator (drivers/pci/hotplug/pciehp_core.c: 1 on, 2 blinking) as the PCI Express Base
/// Specification 6.1, section 6.7.1.1.1, uses them: on for a problem, blinking to be found.
const fn attention_of(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Locate => "2",
        Pattern::Fail => "1",
        Pattern::Off
        | Pattern::Ok
        | Pattern::Ica
        | Pattern::Ifa
        | Pattern::Hotspare
        | Pattern::Pfa
        | Pattern::Rebuild => "0",
    }
}

/// True if the attribute at `path` has this value.
fn holds(path: &Path, value: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let now = path.parent().zip(name).and_then(|(folder, name)| attribute(folder, name));
    now.as_deref() == Some(value)
}
