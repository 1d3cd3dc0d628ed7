//! `strake volume ...` and `strake snapshot ...`.

use super::Watch;
use super::parse::{NewSize, Quota};
use clap::{ArgGroup, Args, Subcommand};
use strake_units::ByteSize;

/// Commands for volumes.
#[derive(Debug, Subcommand)]
pub enum VolumeVerb {
    /// Create a volume. Its blocks read as zeroes, and use no space until they are written.
    #[command(after_help = "Examples:
  strake volume create data/vm1 10G
  strake volume create data/vm2 512M --thick
  strake volume create data/vm3 10G --quota 1G --dry-run")]
    Create(Create),
    /// List the volumes of a pool, or of all pools.
    #[command(after_help = "Examples:
  strake volume list
  strake volume list data --watch")]
    List(List),
    /// Show one volume or snapshot, and the space that would return if it were destroyed.
    #[command(after_help = "Examples:
  strake volume show data/vm1")]
    Show {
        /// The volume or snapshot, POOL/NAME.
        #[arg(value_name = "VOLUME")]
        name: String,
    },
    /// Change the size of a volume. A volume with data beyond the new size is shrunk only with --discard-tail.
    #[command(after_help = "Examples:
  strake volume resize data/vm1 20G
  strake volume resize data/vm1 +10G --dry-run
  strake volume resize data/vm1 -1G --discard-tail --yes")]
    Resize(Resize),
    /// Change whether space is reserved for a volume, and its quota.
    #[command(after_help = "Examples:
  strake volume set data/vm1 --thick
  strake volume set data/vm1 --thin --quota 8G
  strake volume set data/vm1 --quota none")]
    Set(Set),
    /// Give a volume or snapshot another name in its pool. Its exports keep serving.
    #[command(after_help = "Examples:
  strake volume rename data/vm1 web
  strake volume rename data/before friday --dry-run")]
    Rename(Rename),
    /// Destroy a volume or snapshot. ITS DATA ARE LOST. Snapshots and clones of a destroyed volume remain. The space
    /// returns in the background. The command is refused while the volume is exported.
    #[command(after_help = "Examples:
  strake volume destroy data/vm1 --dry-run
  strake volume destroy data/vm1
  strake volume destroy data/vm1 --yes")]
    Destroy(Destroy),
    /// Create a volume with the content of a snapshot, in the same pool. The clone shares the space of unchanged blocks
    /// with the snapshot.
    #[command(after_help = "Examples:
  strake volume clone data/before data/copy
  strake volume clone data/before data/copy --dry-run")]
    Clone(CloneSnapshot),
}

/// Commands for snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Take snapshots of one or more volumes of a pool. All snapshots of one command show the same moment.
    ///
    /// The arguments are pairs: a volume, and the name of its snapshot. A snapshot is named POOL/NAME, like a volume.
    #[command(after_help = "Examples:
  strake snapshot create data/vm1 now
  strake snapshot create data/vm1 vm1-monday data/vm2 vm2-monday
  strake snapshot create data/vm1 now --dry-run")]
    Create(CreateSnapshots),
    /// List the snapshots of a pool, or of all pools.
    #[command(after_help = "Examples:
  strake snapshot list
  strake snapshot list data --watch")]
    List(List),
    /// Show one snapshot, and the space that would return if it were destroyed.
    #[command(after_help = "Examples:
  strake snapshot show data/before")]
    Show {
        /// The snapshot, POOL/NAME.
        #[arg(value_name = "SNAPSHOT")]
        name: String,
    },
    /// Destroy a snapshot. ITS DATA ARE LOST. Its volume and its clones remain. The space returns in the background.
    #[command(after_help = "Examples:
  strake snapshot destroy data/before --dry-run
  strake snapshot destroy data/before
  strake snapshot destroy data/before --yes")]
    Destroy(DestroySnapshot),
    /// Give a volume the content of one of its snapshots. ALL LATER WRITES TO THE VOLUME ARE LOST. To keep them, take a
    /// snapshot of the volume first. The command is refused while the volume is exported.
    #[command(after_help = "Examples:
  strake snapshot rollback data/vm1 data/before --dry-run
  strake snapshot rollback data/vm1 data/before
  strake snapshot rollback data/vm1 data/before --yes")]
    Rollback(Rollback),
    /// Print the ranges of bytes that may differ between a snapshot and a later snapshot or the volume. All other bytes
    /// are equal.
    #[command(after_help = "Examples:
  strake snapshot diff data/before data/vm1
  strake snapshot diff data/before data/vm1 --output json")]
    Diff {
        /// The older snapshot, POOL/NAME.
        #[arg(value_name = "FROM")]
        from: String,
        /// The later snapshot or the volume, POOL/NAME.
        #[arg(value_name = "TO")]
        to: String,
    },
}

/// `strake volume create`.
#[derive(Debug, Args)]
pub struct Create {
    /// The new volume, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// Size of the volume, such as 100G.
    #[arg(value_name = "SIZE")]
    pub size: ByteSize,
    /// Reserve space for the whole volume.
    #[arg(long)]
    pub thick: bool,
    /// Maximum space of the volume [default: no maximum].
    #[arg(long, value_name = "SIZE")]
    pub quota: Option<ByteSize>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake volume list` and `strake snapshot list`.
#[derive(Debug, Args)]
pub struct List {
    /// Name of the pool [default: all pools].
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
    /// Print the answer again after each change, until the command is interrupted.
    #[command(flatten)]
    pub watch: Watch,
}

/// `strake volume resize`.
#[derive(Debug, Args)]
pub struct Resize {
    /// The volume, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// The new size, such as 200G, or the change, such as +50G or -10G.
    #[arg(value_name = "SIZE", allow_hyphen_values = true)]
    pub size: NewSize,
    /// Discard the data beyond the new size. THESE DATA ARE LOST.
    #[arg(long)]
    pub discard_tail: bool,
    /// Do not ask for confirmation before the command discards data.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake volume set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("settings").required(true).multiple(true).args(["thick", "thin", "quota"]))]
pub struct Set {
    /// The volume, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// Reserve space for the whole volume.
    #[arg(long, conflicts_with = "thin")]
    pub thick: bool,
    /// Reserve no space.
    #[arg(long)]
    pub thin: bool,
    /// Maximum space of the volume, or none.
    #[arg(long, value_name = "SIZE")]
    pub quota: Option<Quota>,
}

/// `strake volume destroy`.
#[derive(Debug, Args)]
pub struct Destroy {
    /// The volume or snapshot, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake volume rename`.
#[derive(Debug, Args)]
pub struct Rename {
    /// The volume or snapshot, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// The new name, without the pool or with the same pool.
    #[arg(value_name = "NEW_NAME")]
    pub new_name: String,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake volume clone`.
#[derive(Debug, Args)]
pub struct CloneSnapshot {
    /// The snapshot, POOL/NAME.
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,
    /// The new volume, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake snapshot create`.
#[derive(Debug, Args)]
pub struct CreateSnapshots {
    /// Volumes (POOL/NAME), each with the name of its snapshot.
    #[arg(value_names = ["VOLUME", "NAME"], required = true, num_args = 1..)]
    pub pairs: Vec<String>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake snapshot destroy`.
#[derive(Debug, Args)]
pub struct DestroySnapshot {
    /// The snapshot, POOL/NAME.
    #[arg(value_name = "SNAPSHOT")]
    pub name: String,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake snapshot rollback`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The volume, POOL/NAME.
    #[arg(value_name = "VOLUME")]
    pub name: String,
    /// The snapshot of the volume, POOL/NAME.
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
