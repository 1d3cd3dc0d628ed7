//! `strake drive ...`.

use crate::args::Watch;
use clap::{Args, Subcommand};

/// Commands for drives.
#[derive(Debug, Subcommand)]
pub enum DriveVerb {
    /// List all drives with their content, and with their use by arrays or as spares.
    #[command(after_help = "Examples:
  strake drive list
  strake drive list --watch")]
    List(Watch),
    /// Show one drive. For a remote drive, the output includes the connection and the statistics of each queue.
    #[command(after_help = "Examples:
  strake drive show nvme3n1")]
    Show {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
    },
    /// Show the SMART / Health log of an NVMe drive, the newest entries of its error log, and the extended log page of
    /// the Open Compute Project. The exit code is 1 if the drive predicts its failure.
    #[command(after_help = "Examples:
  strake drive smart nvme3n1
  strake drive smart pci:0000:3b:00.0 --output json")]
    Smart {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
    },
    /// Save the telemetry log of an NVMe drive in a file, for the vendor of the drive. The drive captures its present
    /// state. I/O continues.
    #[command(after_help = "Examples:
  strake drive telemetry nvme3n1 --file state.bin
  strake drive telemetry pci:0000:3b:00.0 --file events.bin --controller")]
    Telemetry(Telemetry),
    /// Blink the locate LED of a drive's slot. The LED identifies the drive before its removal.
    #[command(after_help = "Examples:
  strake drive locate nvme3n1
  strake drive locate nvme3n1 --off")]
    Locate {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
        /// Stop blinking.
        #[arg(long)]
        off: bool,
    },
    /// Remove Strake's labels from a drive that no array uses. Afterwards, the drive is free.
    #[command(after_help = "Examples:
  strake drive clean nvme9n1 --dry-run
  strake drive clean nvme9n1
  strake drive clean nvme9n1 --accept-loss --yes")]
    Clean(Clean),
    /// Erase an NVMe drive that nothing uses, and select the size of its blocks (Format NVM). ALL DATA OF THE DRIVE ARE
    /// LOST.
    #[command(after_help = "Examples:
  strake drive format nvme9n1 --dry-run
  strake drive format nvme9n1 --block-size 4096 --erase user
  strake drive format nvme9n1 --erase crypto --force --yes")]
    Format(Format),
    /// Erase an NVMe drive that nothing uses, also data that no host can read (Sanitize). The drive cannot stop this
    /// operation. ALL DATA OF THE DRIVE ARE LOST.
    #[command(after_help = "Examples:
  strake drive sanitize nvme9n1 --action crypto --dry-run
  strake drive sanitize nvme9n1 --action block --wait
  strake drive sanitize nvme9n1 --action crypto --force --yes")]
    Sanitize(Sanitize),
    /// Show the firmware slots of an NVMe drive, or store and activate an image of firmware. The members of an array
    /// are updated one after the other, while the array serves.
    #[command(after_help = "Examples:
  strake drive firmware nvme3n1
  strake drive firmware nvme3n1 --file image.bin --dry-run
  strake drive firmware nvme3n1 --file image.bin --activate now")]
    Firmware(Firmware),
    /// Detach NVMe drives from the kernel driver, so that the daemon accesses the drives directly. The data stay on the
    /// drives. The new name of a drive is pci:ADDRESS. After a restart, the daemon detaches the drives again.
    #[command(after_help = "Examples:
  strake drive take nvme3n1 --dry-run
  strake drive take 0000:3b:00.0 0000:3c:00.0")]
    Take(Driver),
    /// Return taken drives to the kernel driver. The data stay on the drives.
    #[command(after_help = "Examples:
  strake drive release pci:0000:3b:00.0 --dry-run
  strake drive release pci:0000:3b:00.0")]
    Release(Driver),
    /// List the NVMe/TCP subsystems that a discovery controller offers to this host.
    #[command(after_help = "Examples:
  strake drive discover nvme-tcp://10.0.0.7:4420
  strake drive discover nvme-tcp://store --output json")]
    Discover(Discover),
    /// Connect a remote namespace as a drive over NVMe/TCP. The daemon records the connection and connects again after
    /// a restart. A second address of the same subsystem and namespace adds a path to the same drive.
    #[command(after_help = "Examples:
  strake drive connect nvme-tcp://10.0.0.7:4420/nqn.2014-08.org.example.tank
  strake drive connect 'nvme-tcp://store/nqn.2014-08.org.example.a?nsid=2'")]
    Connect(Connect),
    /// Disconnect an unused remote drive, or one path of a remote drive. The daemon does not connect the drive or path
    /// again.
    #[command(after_help = "Examples:
  strake drive disconnect nvme-tcp://10.0.0.7:4420/nqn.2014-08.org.example.tank")]
    Disconnect {
        /// Address of the drive, as printed by strake drive list, or of an added path, as printed by strake drive show.
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// Show the errors of drives by reason, and the latencies of drives.
    #[command(after_help = "Examples:
  strake drive errors
  strake drive errors nvme3n1")]
    Errors {
        /// Show only this drive: a path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: Option<String>,
    },
}

/// `strake drive telemetry`.
#[derive(Debug, Args)]
pub struct Telemetry {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// The file. Only its owner can read it.
    #[arg(long, value_name = "FILE")]
    pub file: String,
    /// Save the data that the drive captured after an internal event, instead of its present state.
    #[arg(long)]
    pub controller: bool,
    /// The last area of the log to save, 1 to 3. Each area contains the areas before it.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3))]
    pub area: u32,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
}

/// `strake drive discover`.
#[derive(Debug, Args)]
pub struct Discover {
    /// Address of the discovery service, nvme-tcp://HOST:PORT; the default port is 8009.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Identity of this host.
    #[command(flatten)]
    pub identity: Identity,
}

/// Identity of this host for a remote controller.
#[derive(Debug, Args)]
pub struct Identity {
    /// NQN with which this host connects to the controller [default: the daemon generates and records an NQN].
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// File with the host's secret (DH-HMAC-CHAP), in the format of `nvme gen-dhchap-key`. Only the owner of the file
    /// may have access. Use "-" for standard input, or /dev/fd/N for a file descriptor.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
    /// File with the controller's secret, for mutual authentication.
    #[arg(long, value_name = "FILE", requires = "secret_file")]
    pub controller_secret_file: Option<String>,
    /// Use TLS with the key in this file, in the format of `nvme gen-tls-key` and `strake host add --new-tls-key`.
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<String>,
}

/// `strake drive connect`.
#[derive(Debug, Args)]
pub struct Connect {
    /// Address of the namespace, nvme-tcp://HOST:PORT/NQN?nsid=NUMBER; the default port is 4420, and the default
    /// namespace is 1.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Identity of this host.
    #[command(flatten)]
    pub identity: Identity,
    /// Maximum time that I/O waits after the connection is lost, 12 to 24 seconds. After this time, the I/O fails, and
    /// the array continues without the drive.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(12..=24))]
    pub hold: Option<u32>,
    /// Take over a drive that another host has reserved. The other host can no longer write to the drive, and an array
    /// that still runs on the other host loses the drive. Use this option only if the other host will not return.
    #[arg(long)]
    pub take_over: bool,
}

/// `strake drive clean`.
#[derive(Debug, Args)]
pub struct Clean {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// Clean the drive even if a stopped array may need its label. THE ARRAY LOSES THIS MEMBER.
    #[arg(long)]
    pub accept_loss: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake drive format`.
#[derive(Debug, Args)]
pub struct Format {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// Number of the format of the blocks.
    #[arg(long, value_name = "NUMBER", conflicts_with = "block_size")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=63))]
    pub lbaf: Option<u32>,
    /// Size of the blocks, 512 or 4096 bytes, without metadata [default: the current format].
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    pub block_size: Option<String>,
    /// Erasure of old data: none, user (erase the data) or crypto (change the key with which the data are encrypted).
    #[arg(long, value_name = "KIND", default_value = "none", value_parser = ["none", "user", "crypto"])]
    pub erase: String,
    /// Consent to the loss.
    #[command(flatten)]
    pub consent: Consent,
}

/// `strake drive sanitize`.
#[derive(Debug, Args)]
pub struct Sanitize {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// Kind of the erasure: block (erase the medium), crypto (change the key with which the data are encrypted) or
    /// overwrite.
    #[arg(long, value_name = "ACTION", value_parser = ["block", "crypto", "overwrite"])]
    pub action: String,
    /// Wait until the drive has finished, and show the progress.
    #[arg(long)]
    pub wait: bool,
    /// Consent to the loss.
    #[command(flatten)]
    pub consent: Consent,
}

/// Consent to the loss of the data of a drive.
#[derive(Debug, Args)]
pub struct Consent {
    /// Serial number of the drive. A drive with another serial number is refused.
    #[arg(long, value_name = "SERIAL")]
    pub serial: Option<String>,
    /// Erase the drive even if it holds labels, a file system or other content. A drive in use is always refused.
    #[arg(long)]
    pub force: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake drive firmware`.
#[derive(Debug, Args)]
pub struct Firmware {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// File with the image to store; without it, the slots are shown.
    #[arg(long, value_name = "FILE")]
    pub file: Option<String>,
    /// Slot of the image [default: the drive chooses].
    #[arg(long, value_name = "NUMBER", requires = "file", value_parser = clap::value_parser!(u32).range(1..=7))]
    pub slot: Option<u32>,
    /// Activate the image immediately (now) or at the next reset of the drive (reset).
    #[arg(long, value_name = "WHEN", requires = "file", default_value = "reset", value_parser = ["now", "reset"])]
    pub activate: String,
    /// Print the plan, and change nothing.
    #[arg(long, requires = "file")]
    pub dry_run: bool,
}

/// `strake drive take` and `strake drive release`.
#[derive(Debug, Args)]
pub struct Driver {
    /// Paths, device names such as nvme0n1, serial numbers, or PCI addresses.
    #[arg(value_name = "DRIVE", required = true)]
    pub drives: Vec<String>,
    /// Print the writes to sysfs that the command would make, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
