//! `strake array ...`.

use crate::args::parse::{Drives, MemberChoice};
use crate::args::{Watch, parse};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Commands for arrays.
#[derive(Debug, Subcommand)]
pub enum ArrayVerb {
    /// Create an array on empty drives. The array can be used at once.
    #[command(after_help = "Examples:
  strake array create tank --level 5 --drives nvme1n1,nvme2n1,nvme3n1 --dry-run
  strake array create tank --level 6 --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1
  strake array create fast --level 0 --drives nvme1n1,nvme2n1 --strip 64KiB
  strake array create scratch --level 0 --drives ram:1GiB,ram:1GiB")]
    Create(Create),
    /// List all arrays.
    #[command(after_help = "Examples:
  strake array list
  strake array list --watch")]
    List(Watch),
    /// Show one array: state, members by position, and operations in progress.
    #[command(after_help = "Examples:
  strake array show tank
  strake array show tank --watch")]
    Show {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Show the current state until interrupted: print the answer again after each change.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show statistics of an array since its start: numbers of I/Os, and latencies of requests and of member I/Os.
    #[command(after_help = "Examples:
  strake array stats tank
  strake array stats tank --watch
  strake array stats tank --output json")]
    Stats {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Show the current state until interrupted: print the answer again after each change.
        #[command(flatten)]
        watch: Watch,
    },
    /// Fail a member: put it out of use. If the member is in sync, the command reduces redundancy and needs --accept
    /// redundancy.
    #[command(after_help = "Examples:
  strake array fail tank --member 3
  strake array fail tank --member 3 --accept redundancy --dry-run
  strake array fail tank --member 3 --accept redundancy --yes")]
    Fail(Fail),
    /// Replace a member by another drive. A serving member keeps its slot until the copy is complete.
    #[command(after_help = "Examples:
  strake array replace tank --member 3 --with nvme9n1
  strake array replace tank --member 3 --with nvme9n1 --dry-run")]
    Replace(Replace),
    /// Replace the first failed or missing member by a drive.
    #[command(after_help = "Examples:
  strake array add tank --drive nvme9n1")]
    Add(Add),
    /// Re-add a failed or missing member. The member receives only the regions that were written while it was out.
    #[command(after_help = "Examples:
  strake array readd tank
  strake array readd tank --member 3
  strake array readd tank --member 3 --drive nvme9n1 --dry-run")]
    Readd(Readd),
    /// Resume a paused or halted rebuild or resync, and rebuild failed or missing members on spares.
    #[command(after_help = "Examples:
  strake array rebuild tank
  strake array rebuild tank --dry-run")]
    Rebuild {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Rename an array. Its exports keep their names.
    #[command(after_help = "Examples:
  strake array rename tank vault
  strake array rename tank vault --dry-run")]
    Rename {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// The new name.
        #[arg(value_name = "NEW")]
        new_name: String,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Grow an array after every member was enlarged or replaced by a larger drive.
    #[command(after_help = "Examples:
  strake array grow tank --dry-run
  strake array grow tank
  strake array grow tank --force")]
    Grow {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Disconnect NBD clients, which cannot be paused.
        #[arg(long)]
        force: bool,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Convert an array to the newest label format. No data are moved.
    #[command(after_help = "Examples:
  strake array upgrade-format tank --dry-run
  strake array upgrade-format tank
  strake array upgrade-format tank --force")]
    UpgradeFormat {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Disconnect NBD clients, which cannot be paused.
        #[arg(long)]
        force: bool,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Change the given settings of an array. Other settings do not change.
    #[command(after_help = "Examples:
  strake array set tank --rebuild-priority 80
  strake array set tank --auto-replace on --replace-after-errors 20
  strake array set tank --auto-readd off
  strake array set tank --consistency strict
  strake array set tank --scrub-every 14d --scrub-repair on")]
    Set(Set),
    /// Scrub: read all stripes, and find parity or copies that do not match the data.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake array scrub start tank
  strake array scrub start tank --repair --wait
  strake array scrub show tank"
    )]
    Scrub(ScrubVerb),
    /// Scan drives for arrays, and start the arrays that are found.
    #[command(after_help = "Examples:
  strake array import
  strake array import --dry-run
  strake array import tank --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1
  strake array import tank --degraded
  strake array import tank --use nvme1n1")]
    Import(Import),
    /// Stop an array and release its drives. The data stay on the drives; strake array import starts the array again.
    /// Members in memory are lost.
    #[command(after_help = "Examples:
  strake array unload tank --dry-run
  strake array unload tank
  strake array unload tank --force")]
    Unload(Stop),
    /// Stop an array and mark its drives as free. THE DATA ARE LOST when the drives are used again; until then, strake
    /// array undelete restores the array.
    #[command(after_help = "Examples:
  strake array destroy tank --dry-run
  strake array destroy tank
  strake array destroy tank --force --yes")]
    Destroy(Stop),
    /// Restore a destroyed array. Enough of its drives must be unchanged since strake array destroy.
    #[command(after_help = "Examples:
  strake array undelete tank --dry-run
  strake array undelete tank
  strake array undelete tank --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1")]
    Undelete(Undelete),
}

/// `strake array create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Name of the new array.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Level: 0, 1, 10, 5, 6, 7.3, n+M (such as n+4), 50, 60 or 70.
    #[arg(long)]
    pub level: String,
    /// Drives, separated by commas; may be repeated. A drive is a path, a device name, ram:SIZE or null:SIZE. A comma
    /// in a path is written as \,.
    #[arg(long, required = true, value_name = "DRIVES")]
    pub drives: Vec<Drives>,
    /// Strip size, a power of two from 4KiB to 1MiB; 64k and 64KiB are the same [default: 128KiB].
    #[arg(long, value_parser = parse::size_u32, value_name = "SIZE")]
    pub strip: Option<u32>,
    /// Number of members in each group, for levels 50, 60 and 70.
    #[arg(long, value_name = "MEMBERS")]
    pub group_size: Option<u32>,
    /// Size of a logical block, 512 or 4096 [default: the largest among the drives].
    #[arg(long, value_parser = parse::size_u32, value_name = "SIZE")]
    pub block_size: Option<u32>,
    /// Consistency mode: how writes are protected against crashes; strake array set --help describes the modes
    /// [default: safe].
    #[arg(long, value_enum, value_name = "MODE")]
    pub consistency: Option<Consistency>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use drives that have content. THEIR CONTENT IS LOST.
    #[arg(long)]
    pub overwrite: bool,
    /// Do not ask before content is erased, or before an array without crash protection is created.
    #[arg(long)]
    pub yes: bool,
}

/// `strake array fail`.
#[derive(Debug, Args)]
pub struct Fail {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member, from 0, or its drive.
    #[arg(long, value_name = "POSITION|DRIVE")]
    pub member: MemberChoice,
    /// Losses to accept, separated by commas; may be repeated.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOSS")]
    pub accept: Vec<Loss>,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// A loss that an operator can accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Loss {
    /// The redundancy of one member, until it is rebuilt.
    Redundancy,
    /// Blocks that may be computed wrongly without the member: a scrub found their stripes inconsistent.
    Data,
}

/// `strake array replace`.
#[derive(Debug, Args)]
pub struct Replace {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member, from 0, or its drive.
    #[arg(long, value_name = "POSITION|DRIVE")]
    pub member: MemberChoice,
    /// The new drive.
    #[arg(long = "with", value_name = "DRIVE")]
    pub drive: String,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use a drive that has content. ITS CONTENT IS LOST.
    #[arg(long)]
    pub overwrite: bool,
    /// Do not ask before the drive's content is erased.
    #[arg(long)]
    pub yes: bool,
}

/// `strake array add`.
#[derive(Debug, Args)]
pub struct Add {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// The drive to add.
    #[arg(long, value_name = "DRIVE")]
    pub drive: String,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use a drive that has content. ITS CONTENT IS LOST.
    #[arg(long)]
    pub overwrite: bool,
    /// Do not ask before the drive's content is erased.
    #[arg(long)]
    pub yes: bool,
}

/// `strake array import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The only array to start [default: every array found].
    #[arg(value_name = "ARRAY")]
    pub name: Option<String>,
    /// Drives to scan in addition to the recorded drives, separated by commas; may be repeated. A comma in a path is
    /// written as \,.
    #[arg(long, value_name = "DRIVES")]
    pub drives: Vec<Drives>,
    /// Start the array even if members that were last seen in sync or being rebuilt are missing; the redundancy must
    /// suffice.
    #[arg(long)]
    pub degraded: bool,
    /// Start the array even if its blocks may be damaged, for example by a crash while members were missing.
    #[arg(long)]
    pub accept_loss: bool,
    /// Drives to use if members exist on several drives (clones), separated by commas; may be repeated. The other
    /// drives are not changed.
    #[arg(long = "use", value_name = "DRIVES")]
    pub use_drives: Vec<Drives>,
    /// Also create the exports that are recorded on the members. Without this option, the exports are only listed.
    #[arg(long)]
    pub exports: bool,
    /// Print the arrays that would be started, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake array readd`.
#[derive(Debug, Args)]
pub struct Readd {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member, from 0, or its drive [default: the only member that can be re-added].
    #[arg(long, value_name = "POSITION|DRIVE")]
    pub member: Option<MemberChoice>,
    /// Path of the member's drive [default: the recorded path, or any drive with the label of the member].
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake array set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("setting").required(true).multiple(true)
    .args([
        "rebuild_priority", "auto_replace", "auto_readd", "replace_after_errors", "consistency", "scrub_every",
        "scrub_repair",
    ]))]
pub struct Set {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Priority of rebuild, replace and resync. At 0, these jobs are slowest while clients are active; at 100, their
    /// effect on clients is not limited.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "0-100")]
    pub rebuild_priority: Option<u32>,
    /// Whether a spare automatically replaces a member that fails, or whose drive predicts its failure.
    #[arg(long, value_enum, value_name = "on|off")]
    pub auto_replace: Option<Switch>,
    /// Whether a returning member is re-added automatically.
    #[arg(long, value_enum, value_name = "on|off")]
    pub auto_readd: Option<Switch>,
    /// Number of errors after which a serving member is reported and, if a spare exists, replaced; 0 disables the
    /// limit.
    #[arg(long, value_name = "ERRORS")]
    pub replace_after_errors: Option<u32>,
    /// Consistency mode: how writes are protected against crashes.
    #[arg(long, value_enum, value_name = "MODE")]
    pub consistency: Option<Consistency>,
    /// Time from the end of a scrub to the next scheduled scrub, such as 14d; off disables scheduled scrubs.
    #[arg(long, value_parser = parse::every, value_name = "TIME|off")]
    pub scrub_every: Option<u64>,
    /// Whether scheduled scrubs repair corrupt strips, or only report them.
    #[arg(long, value_enum, value_name = "on|off")]
    pub scrub_repair: Option<Switch>,
    /// Do not ask before crash protection is turned off.
    #[arg(long)]
    pub yes: bool,
}

/// How writes are protected against crashes. For RAID 1 and 10, mode resync is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    /// The write-intent bitmap marks regions that are being written; after a crash, these regions are resynchronized.
    /// While members are missing, a crash may damage other blocks in the stripe of a write.
    Resync,
    /// As resync. Writes to stripes with missing members also go through a redo log.
    Safe,
    /// Every write is recorded in the redo log before it changes data. A crash together with the failure of one member
    /// damages no blocks. With two or more parities, records of small writes contain only a few words per block; other
    /// writes need twice the drive I/Os.
    Strict,
    /// No protection, for scratch arrays: the contents are undefined after a crash.
    None,
}

/// Commands for scrubs.
#[derive(Debug, Subcommand)]
pub enum ScrubVerb {
    /// Start a scrub, which reads all stripes and compares data with parity or copies. Every scrub reconstructs and
    /// rewrites unreadable blocks.
    #[command(after_help = "Examples:
  strake array scrub start tank
  strake array scrub start tank --wait
  strake array scrub start tank --repair")]
    Start(ScrubStart),
    /// Pause the scrub. A resumed scrub continues from the same position.
    #[command(after_help = "Examples:
  strake array scrub pause tank")]
    Pause(ScrubWhich),
    /// Resume the paused scrub.
    #[command(after_help = "Examples:
  strake array scrub resume tank")]
    Resume(ScrubWhich),
    /// Stop the scrub. The next scrub starts from the beginning.
    #[command(after_help = "Examples:
  strake array scrub stop tank")]
    Stop(ScrubWhich),
    /// Show progress and findings of the current or last scrub.
    #[command(after_help = "Examples:
  strake array scrub show tank
  strake array scrub show tank --watch
  strake array scrub show tank --output json")]
    Show {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Show the current state until interrupted: print the answer again after each change.
        #[command(flatten)]
        watch: Watch,
    },
}

/// Name or UUID of the array.
#[derive(Debug, Args)]
pub struct ScrubWhich {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
}

/// `strake array scrub start`.
#[derive(Debug, Args)]
pub struct ScrubStart {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Reconstruct and rewrite strips that are known to be wrong. If the wrong strip is unknown, the mismatch is only
    /// reported.
    #[arg(long, conflicts_with = "trust_data")]
    pub repair: bool,
    /// As --repair. If the wrong strip is unknown (one parity, two copies), also accept the data as read, and write
    /// matching parity or copies. WRONG DATA STAY WRONG, and no later scrub can find them. Restore important data from
    /// a backup first.
    #[arg(long)]
    pub trust_data: bool,
    /// Wait until the scrub has finished, and print its findings.
    #[arg(long)]
    pub wait: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Whether the setting is on.
    #[must_use]
    pub const fn is_on(self) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// `strake array undelete`.
#[derive(Debug, Args)]
pub struct Undelete {
    /// Name or UUID of the array that was destroyed.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Drives to scan in addition to the recorded drives, separated by commas; may be repeated. A comma in a path is
    /// written as \,.
    #[arg(long, value_name = "DRIVES")]
    pub drives: Vec<Drives>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake array unload` and `strake array destroy`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Also remove the exports of the array, and disconnect their clients.
    #[arg(long)]
    pub force: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
