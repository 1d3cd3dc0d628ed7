//! `strake array ...`.

use crate::args::parse::{Drives, MemberChoice};
use crate::args::{Watch, parse};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Commands for arrays.
#[derive(Debug, Subcommand)]
pub enum ArrayVerb {
    /// Create an array on empty drives. Clients can use the array immediately.
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
    /// Show one array: its state, its members by position, and its operations in progress.
    #[command(after_help = "Examples:
  strake array show tank
  strake array show tank --watch")]
    Show {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Print the answer again after each change, until the command is interrupted.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show the statistics of an array since its start: number of I/Os, and latency of client requests and of member
    /// I/Os.
    #[command(after_help = "Examples:
  strake array stats tank
  strake array stats tank --watch
  strake array stats tank --output json")]
    Stats {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Print the answer again after each change, until the command is interrupted.
        #[command(flatten)]
        watch: Watch,
    },
    /// Fail a member: the array no longer uses the member. If the member is in sync, the command reduces the redundancy
    /// and requires --accept redundancy.
    #[command(after_help = "Examples:
  strake array fail tank --member 3
  strake array fail tank --member 3 --accept redundancy --dry-run
  strake array fail tank --member 3 --accept redundancy --yes")]
    Fail(Fail),
    /// Replace a member by another drive. A serving member remains in use until the copy is complete.
    #[command(after_help = "Examples:
  strake array replace tank --member 3 --with nvme9n1
  strake array replace tank --member 3 --with nvme9n1 --dry-run")]
    Replace(Replace),
    /// Add a drive as the replacement of the first failed or missing member.
    #[command(after_help = "Examples:
  strake array add tank --drive nvme9n1")]
    Add(Add),
    /// Re-add a failed or missing member. The member receives only the regions that were written while the member was
    /// out of use.
    #[command(after_help = "Examples:
  strake array readd tank
  strake array readd tank --member 3
  strake array readd tank --member 3 --drive nvme9n1 --dry-run")]
    Readd(Readd),
    /// Resume rebuilds and resyncs that are paused or halted, and rebuild failed or missing members on spares.
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
    /// Rename an array. The exports of the array keep their names.
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
    /// Grow an array: use the additional space of its members. Before this command, enlarge every member, or replace
    /// every member by a larger drive.
    #[command(after_help = "Examples:
  strake array grow tank --dry-run
  strake array grow tank
  strake array grow tank --force")]
    Grow {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Disconnect NBD clients. Without this option, the command fails while NBD clients are connected.
        #[arg(long)]
        force: bool,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Convert an array to the newest label format. The command moves no data.
    #[command(after_help = "Examples:
  strake array upgrade-format tank --dry-run
  strake array upgrade-format tank
  strake array upgrade-format tank --force")]
    UpgradeFormat {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Disconnect NBD clients. Without this option, the command fails while NBD clients are connected.
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
    /// Scrub an array: read all stripes, and find parity or copies that do not match the data.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake array scrub start tank
  strake array scrub start tank --repair --wait
  strake array scrub show tank"
    )]
    Scrub(ScrubVerb),
    /// List arrays that do not run: arrays that can be imported, and destroyed arrays that can be undeleted. The
    /// command changes nothing.
    #[command(after_help = "Examples:
  strake array importable
  strake array importable --drives nvme1n1,nvme2n1")]
    Importable {
        /// Additional drives to scan, separated by commas. The command always scans the drives of the host and the
        /// recorded drives. The option can be repeated. Write a comma in a path as \,.
        #[arg(long, value_name = "DRIVES")]
        drives: Vec<Drives>,
    },
    /// Scan drives for arrays, and start every array that is found.
    #[command(after_help = "Examples:
  strake array import
  strake array import --dry-run
  strake array import tank --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1
  strake array import tank --degraded
  strake array import tank --use nvme1n1")]
    Import(Import),
    /// Stop an array and release its drives. The data stay on the drives, and strake array import starts the array
    /// again. Members in memory lose their data.
    #[command(after_help = "Examples:
  strake array unload tank --dry-run
  strake array unload tank
  strake array unload tank --force")]
    Unload(Stop),
    /// Stop an array and mark its drives as free. THE DATA ARE LOST when the drives are used again. Until then, strake
    /// array undelete can restore the array.
    #[command(after_help = "Examples:
  strake array destroy tank --dry-run
  strake array destroy tank
  strake array destroy tank --force --yes")]
    Destroy(Stop),
    /// Restore a destroyed array. The command requires enough unchanged drives to start the array.
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
    /// Drives, separated by commas. The option can be repeated. A drive is a path, a device name, ram:SIZE (a drive in
    /// memory) or null:SIZE (a drive that stores no data). Write a comma in a path as \,.
    #[arg(long, required = true, value_name = "DRIVES")]
    pub drives: Vec<Drives>,
    /// Strip size: 4KiB, 8KiB, 16KiB, 32KiB, 64KiB, 128KiB, 256KiB, 512KiB or 1MiB. The units k and KiB have the same
    /// meaning [default: 128KiB].
    #[arg(long, value_parser = parse::strip, value_name = "SIZE")]
    pub strip: Option<u32>,
    /// Number of members in each group, for levels 50, 60 and 70.
    #[arg(long, value_name = "MEMBERS")]
    pub group_size: Option<u32>,
    /// Size of a logical block, 512 or 4096 [default: the largest among the drives].
    #[arg(long, value_parser = parse::size_u32, value_name = "SIZE")]
    pub block_size: Option<u32>,
    /// Consistency mode: the protection of writes against crashes; strake array set --help describes the modes
    /// [default: safe].
    #[arg(long, value_enum, value_name = "MODE")]
    pub consistency: Option<Consistency>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use drives that have content. THEIR CONTENT IS LOST.
    #[arg(long)]
    pub overwrite: bool,
    /// Do not ask for confirmation before the command erases content or creates an array without crash protection.
    #[arg(long)]
    pub yes: bool,
}

/// `strake array fail`.
#[derive(Debug, Args)]
pub struct Fail {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member (numbered from 0), or drive of the member.
    #[arg(long, value_name = "POSITION|DRIVE")]
    pub member: MemberChoice,
    /// Losses to accept, separated by commas. The option can be repeated.
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
    /// The redundancy of one member, until the member is rebuilt.
    Redundancy,
    /// Blocks in stripes that a scrub found inconsistent. Without the member, Strake may reconstruct these blocks
    /// wrongly.
    Data,
}

/// `strake array replace`.
#[derive(Debug, Args)]
pub struct Replace {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member (numbered from 0), or drive of the member.
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
    /// Do not ask for confirmation before the command erases the drive's content.
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
    /// Do not ask for confirmation before the command erases the drive's content.
    #[arg(long)]
    pub yes: bool,
}

/// `strake array import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Start only this array [default: every array found].
    #[arg(value_name = "ARRAY")]
    pub name: Option<String>,
    /// Additional drives to scan, separated by commas. The command always scans the recorded drives. The option can be
    /// repeated. Write a comma in a path as \,.
    #[arg(long, value_name = "DRIVES")]
    pub drives: Vec<Drives>,
    /// Start the array even if members that were in sync or rebuilding are missing. The array must tolerate the number
    /// of missing members.
    #[arg(long)]
    pub degraded: bool,
    /// Start the array even if blocks may be damaged, for example by a crash while members were missing.
    #[arg(long)]
    pub accept_loss: bool,
    /// Drives to use if several drives (clones) contain the same member, separated by commas. The option can be
    /// repeated. The command does not change the other clones.
    #[arg(long = "use", value_name = "DRIVES")]
    pub use_drives: Vec<Drives>,
    /// Also create the exports that are recorded on the members. Without this option, the command only lists the
    /// exports.
    #[arg(long)]
    pub exports: bool,
    /// Print the arrays that the command would start, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake array readd`.
#[derive(Debug, Args)]
pub struct Readd {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member (numbered from 0), or drive of the member [default: the only member that can be
    /// re-added].
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
        "rebuild_priority", "auto_replace", "auto_readd", "replace_after_errors", "report_at_wear", "consistency",
        "scrub_every", "scrub_repair",
    ]))]
pub struct Set {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Priority of rebuild, replace and resync. At 0, these jobs are slowest while clients are active. At 100, these
    /// jobs can slow down clients without a limit.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "0-100")]
    pub rebuild_priority: Option<u32>,
    /// Enable or disable the automatic replacement of a member by a spare. A spare replaces a failed member, and a
    /// member whose drive predicts its failure.
    #[arg(long, value_enum, value_name = "on|off")]
    pub auto_replace: Option<Switch>,
    /// Enable or disable automatic re-adding of returning members.
    #[arg(long, value_enum, value_name = "on|off")]
    pub auto_readd: Option<Switch>,
    /// Limit for the number of errors of a serving member; 0 disables the limit. At the limit, Strake reports the
    /// member. If a spare exists, the spare replaces the member.
    #[arg(long, value_name = "ERRORS")]
    pub replace_after_errors: Option<u32>,
    /// Limit for the wear of a drive, in percent of the rated endurance; 0 disables the limit. At the limit, Strake
    /// reports the drive of a serving member.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=255))]
    pub report_at_wear: Option<u32>,
    /// Consistency mode: the protection of writes against crashes.
    #[arg(long, value_enum, value_name = "MODE")]
    pub consistency: Option<Consistency>,
    /// Time from the end of a scrub to the next scheduled scrub, such as 14d; off disables scheduled scrubs.
    #[arg(long, value_parser = parse::every, value_name = "TIME|off")]
    pub scrub_every: Option<u64>,
    /// Enable or disable repairs by scheduled scrubs. Without repairs, scheduled scrubs only report corrupt strips.
    #[arg(long, value_enum, value_name = "on|off")]
    pub scrub_repair: Option<Switch>,
    /// Do not ask for confirmation before the command disables crash protection.
    #[arg(long)]
    pub yes: bool,
}

/// Protection of writes against crashes. For RAID 1 and 10, mode resync is sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    /// The write-intent bitmap marks the regions of writes in progress. After a crash, Strake resynchronizes these
    /// regions. While members are missing, a crash may also damage blocks that the interrupted write did not change.
    Resync,
    /// Like mode resync. In addition, a redo log records writes to stripes with missing members.
    Safe,
    /// The redo log records every write before the write changes data. A crash together with the failure of one member
    /// damages no blocks. With two or more parities, records of small writes contain only a few words per block. Other
    /// writes need twice as many drive I/Os.
    Strict,
    /// No protection, for scratch arrays. After a crash, the contents of the array are undefined.
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
        /// Print the answer again after each change, until the command is interrupted.
        #[command(flatten)]
        watch: Watch,
    },
}

/// `strake array scrub pause`, `resume` and `stop`.
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
    /// Reconstruct and rewrite wrong strips. If the scrub cannot identify the wrong strip of a stripe, the scrub only
    /// reports the mismatch.
    #[arg(long, conflicts_with = "trust_data")]
    pub repair: bool,
    /// Repair as with --repair. If the scrub cannot identify the wrong strip (one parity strip, or two copies), accept
    /// the data as read, and write matching parity or copies. WRONG DATA REMAIN WRONG, and later scrubs cannot detect
    /// them. Restore important data from a backup first.
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
    /// Returns true if the setting is on.
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
    /// Name or UUID of the destroyed array.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Additional drives to scan, separated by commas. The command always scans the recorded drives. The option can be
    /// repeated. Write a comma in a path as \,.
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
