//! The light of a drive's slot: what it can show, and what is written so that it shows that.
//!
//! What is written is a value ([`Light::writes`]). Only [`Light::show`] touches the kernel, and the kernel may wait for
//! firmware meanwhile: an NPEM command has a second to complete, and platforms with `_DSM` send IPMI messages.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sysfs::attribute;

/// What a light shows about the drive in its slot, by increasing urgency: of several, the last one counts. The words
/// are those of IBPI (SFF-8489) and of PCIe enclosure management (PCI Express Base Specification 6.1, section 6.28).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Nothing: no drive of ours is in the slot.
    #[default]
    Off,
    /// The drive is in use and well.
    Ok,
    /// In a critical array: one more failure loses data.
    Ica,
    /// In a failed array: more members are absent than it tolerates.
    Ifa,
    /// The drive is a spare.
    Hotspare,
    /// Predicted failure: the drive serves and should be replaced.
    Pfa,
    /// The drive is filled by a rebuild or a copy.
    Rebuild,
    /// The drive failed: it is the one to pull.
    Fail,
    /// The operator asked where it is.
    Locate,
}

impl Pattern {
    /// Every pattern, by increasing urgency.
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

    /// The word for it; except for `off`, the indication's in the kernel (drivers/pci/npem.c, `npem_indications`).
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

/// A light that can be switched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Light(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An element of a SCSI enclosure (Documentation/ABI/testing/sysfs-class-enclosure): `locate` and `fault`.
    Ses { folder: PathBuf, has_fault: bool },
    /// PCIe enclosure management, of the drive or of the port before it: an LED of the LED class for each indication
    /// that the slot supports (drivers/pci/npem.c).
    Npem { folder: PathBuf, device: String, shows: Vec<Pattern> },
    /// The indicators of a slot behind Intel VMD, which take the two fields of the Slot Control register as they are
    /// (drivers/pci/hotplug/pciehp_hpc.c, `pciehp_set_raw_indicator_status`).
    Vmd(PathBuf),
    /// The attention indicator of a hot-plug slot.
    Attention(PathBuf),
    /// A program of the operator's.
    Program { program: PathBuf, slot: String },
}

impl Light {
    /// The light of the element of an enclosure at `folder`, if that has a locate attribute.
    pub(crate) fn of_enclosure(folder: &Path) -> Option<Self> {
        let has_fault = folder.join("fault").exists();
        let ses = Kind::Ses { folder: folder.to_owned(), has_fault };
        folder.join("locate").exists().then_some(Self(ses))
    }

    /// The LEDs that the kernel has for the PCI function at `folder`.
    pub(crate) fn of_npem(folder: &Path) -> Option<Self> {
        let device = folder.file_name()?.to_str()?.to_owned();
        let folder = folder.join("leds");
        let led = |pattern: &Pattern| folder.join(led_of(&device, *pattern)).exists();
        let shows: Vec<Pattern> = Pattern::ALL.into_iter().filter(led).collect();
        let can_locate = shows.contains(&Pattern::Locate);
        can_locate.then_some(Self(Kind::Npem { folder, device, shows }))
    }

    /// The indicator of the hot-plug slot at `folder`, whose address is `address`.
    pub(crate) fn of_hotplug(folder: &Path, address: &str) -> Option<Self> {
        let attention = folder.join("attention");
        if !attention.exists() {
            return None;
        }
        let kind = if is_behind_vmd(address) { Kind::Vmd } else { Kind::Attention };
        Some(Self(kind(attention)))
    }

    /// The light of `slot` that `program` switches.
    pub(crate) fn of_program(program: &Path, slot: &str) -> Self {
        Self(Kind::Program { program: program.to_owned(), slot: slot.to_owned() })
    }

    /// What switches it: `ses`, `npem`, `vmd`, `attention` or `led_command`.
    #[must_use]
    pub const fn backend(&self) -> &'static str {
        match &self.0 {
            Kind::Ses { .. } => "ses",
            Kind::Npem { .. } => "npem",
            Kind::Vmd(_) => "vmd",
            Kind::Attention(_) => "attention",
            Kind::Program { .. } => "led_command",
        }
    }

    /// What tells it from other lights, whatever drive is in the slot and whatever driver that has.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Ses { folder, .. } => folder.join("locate").display().to_string(),
            Kind::Npem { folder, device, .. } => {
                folder.join(format!("{device}:enclosure:*")).display().to_string()
            }
            Kind::Vmd(attention) | Kind::Attention(attention) => attention.display().to_string(),
            Kind::Program { program, slot } => format!("{} {slot:?}", program.display()),
        }
    }

    /// What an operator sees when it is to show `pattern`. A light that has nothing of its own for a pattern stays off:
    /// a wrong pattern leads to a wrong drive being removed.
    #[must_use]
    pub fn seen(&self, pattern: Pattern) -> Pattern {
        let can = match &self.0 {
            Kind::Ses { has_fault, .. } => {
                pattern == Pattern::Locate || (*has_fault && pattern == Pattern::Fail)
            }
            Kind::Npem { shows, .. } => shows.contains(&pattern),
            Kind::Vmd(_) => matches!(pattern, Pattern::Locate | Pattern::Fail | Pattern::Rebuild),
            Kind::Attention(_) => matches!(pattern, Pattern::Locate | Pattern::Fail),
            Kind::Program { .. } => true,
        };
        if can { pattern } else { Pattern::Off }
    }

    /// Attributes and what they have to hold so that the light shows `pattern`. Nothing for a light that a program
    /// switches.
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
            Kind::Program { .. } => Vec::new(),
        }
    }

    /// Whether it can be read what it shows, so that showing the same again costs nothing.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        !matches!(self.0, Kind::Program { .. })
    }

    /// Whether what it was made of is still there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match &self.0 {
            Kind::Program { .. } => true,
            Kind::Ses { .. } | Kind::Npem { .. } | Kind::Vmd(_) | Kind::Attention(_) => {
                self.writes(Pattern::Off).iter().all(|(attribute, _)| attribute.exists())
            }
        }
    }

    /// Has it show `pattern`. Attributes that hold what they should are not written. This may wait for firmware.
    ///
    /// An LED of the LED class is switched by the kernel after the write: what is read back soon may be the old value,
    /// and a failure shows only there.
    ///
    /// # Errors
    /// When the kernel refuses a write, as it does to users other than root; the other attributes were written. When
    /// the program cannot be run or fails.
    pub fn show(&self, pattern: Pattern) -> io::Result<()> {
        if let Kind::Program { program, slot } = &self.0 {
            return run(program, slot, pattern);
        }
        let mut result = Ok(());
        for (path, value) in self.writes(pattern) {
            if holds(&path, value) {
                continue;
            }
            if let Err(error) = fs::write(&path, value) {
                let what = format!("{}: {error}", path.display());
                result = result.and(Err(io::Error::new(error.kind(), what)));
            }
        }
        result
    }
}

/// Name of the LED of an indication, with its attribute (`led_compose_name`: device name and label).
fn led_of(device: &str, pattern: Pattern) -> String {
    format!("{device}:enclosure:{}/brightness", pattern.word())
}

/// The domains of VMD begin after those of ACPI, which have 16 bits (drivers/pci/controller/vmd.c,
/// `vmd_find_free_domain`).
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

/// Whether the attribute at `path` has this value.
fn holds(path: &Path, value: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let now = path.parent().zip(name).and_then(|(folder, name)| attribute(folder, name));
    now.as_deref() == Some(value)
}

/// Runs the operator's program with the slot and the pattern, and nothing of our environment.
fn run(program: &Path, slot: &str, pattern: Pattern) -> io::Result<()> {
    may_run(program)?;
    let mut command = Command::new(program);
    command.args([slot, pattern.word()]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status()?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} {slot:?} {} ended with {status}",
        program.display(),
        pattern.word()
    )))
}

/// Refuses a program that others than root and the daemon's own user could have changed: it runs with our rights.
fn may_run(program: &Path) -> io::Result<()> {
    let meta = fs::metadata(program)?;
    let own = rustix::process::geteuid().as_raw();
    let (is_ours, others_write) = ([0, own].contains(&meta.uid()), meta.mode() & 0o022 != 0);
    if program.is_absolute() && meta.is_file() && is_ours && !others_write {
        return Ok(());
    }
    let what = format!(
        "{} must be an absolute path of a file that only root or the daemon's user can write",
        program.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}
