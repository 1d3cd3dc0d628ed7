//! What kinds of events there are. `docs/events.md` lists the same; a test compares the two.

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Something is not as it should be, and nothing is lost.
    Warning,
    /// Data is not served, is lost, or one more failure may lose it.
    Critical,
}

impl Severity {
    /// Every severity, mildest first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity that `word` names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.word() == word)
    }
}

/// Declares the kinds once: variant, word, severity, meaning.
macro_rules! kinds {
    ($($variant:ident $word:literal $severity:ident $meaning:literal)*) => {
        /// What kind of event it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $(#[doc = $meaning] $variant,)*
        }

        impl EventKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word for it in messages and files.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// What it means, in one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

kinds! {
    DaemonStarted "daemon_started" Info "The daemon started."
    DaemonUncleanStart "daemon_unclean_start" Warning "The daemon before this one did not stop in order."
    DaemonStopped "daemon_stopped" Info "The daemon stopped in order."
    Command "command" Info "Somebody gave a command that changes something; also when it was refused."
    SettingsChanged "settings_changed" Info "Settings of an array were changed."
    ConfigRestored "config_restored" Info "A recorded configuration was put in force."
    StateTrouble "state_trouble" Critical "The state directory cannot be written; arrays go on serving."
    StateWell "state_well" Info "The state directory can be written again."
    EventsDropped "events_dropped" Warning "Events could not be recorded and were dropped."
    ArrayCreated "array_created" Info "An array was created."
    ArrayStarted "array_started" Info "An array was assembled from its drives and serves."
    ArrayOffline "array_offline" Critical "A recorded array cannot be started."
    ArrayUnloaded "array_unloaded" Info "An array was stopped and forgotten; its data stays on its drives."
    ArrayDestroyed "array_destroyed" Warning "An array was stopped and its labels marked destroyed."
    ArrayUndeleted "array_undeleted" Info "A destroyed array was brought back."
    ArrayRenamed "array_renamed" Info "An array was given another name."
    ArrayGrown "array_grown" Info "An array uses more room of its members and is larger now."
    ArrayFormatUpgraded "array_format_upgraded" Info "An array was converted to a newer format of its labels."
    ArrayDegraded "array_degraded" Warning "An array has less redundancy than its level promises."
    ArrayExhausted "array_exhausted" Critical "One more failure may lose data of an array."
    ArrayRecovered "array_recovered" Info "An array has all its redundancy again."
    ArrayLost "array_lost" Critical "More members of an array are gone than its redundancy covers; it serves nothing."
    InDoubt "in_doubt" Critical "A member of an array went out before parity was known to be right after a crash."
    BlocksLost "blocks_lost" Critical "Blocks of an array cannot be read any more and could not be recovered."
    MemberFailed "member_failed" Warning "A member was taken out of use."
    MemberMissing "member_missing" Warning "The drive of a member is gone."
    MemberUnreachable "member_unreachable" Critical "The data depends on a drive that is used only while it stays open."
    MemberReturned "member_returned" Info "The drive of a member that was missing is here again."
    MemberSuperseded "member_superseded" Info "A member's drive came back after another had taken its place."
    MemberSick "member_sick" Warning "A member that still serves has met many errors and should be replaced."
    SitOut "sit_out" Warning "A member answers much slower than its peers and is left out of reads."
    SitOutEnded "sit_out_ended" Info "A member that was left out of reads takes part again."
    EverythingSlow "everything_slow" Warning "Too many members stand still at once; none is taken out."
    EverythingSlowEnded "everything_slow_ended" Info "Enough members answer again after a common standstill."
    RebuildStarted "rebuild_started" Info "A member began to be filled."
    RebuildFinished "rebuild_finished" Info "A member holds everything again and is in sync."
    RebuildHalted "rebuild_halted" Critical "A rebuild stands still."
    ReplaceStarted "replace_started" Info "A member that still serves began to be copied to its successor."
    ReplaceFinished "replace_finished" Info "A successor took the place of a member."
    ReplaceWaits "replace_waits" Warning "A copy cannot go on after a restart: its drive is not here, or in use."
    ReplaceAbandoned "replace_abandoned" Warning "Copying a member to its successor was given up; it still serves."
    WritesRedone "writes_redone" Info "Writes that a crash had cut short were done again from the redo log."
    ResyncStarted "resync_started" Info "Parity or copies began to be made to agree."
    ResyncFinished "resync_finished" Info "Parity or copies agree everywhere."
    ResyncHalted "resync_halted" Warning "A resync stands still."
    ScrubStarted "scrub_started" Info "A scrub began to compare data with parity or copies, or goes on after a restart."
    ScrubFound "scrub_found" Warning "A scrub has found something wrong; told at most once a minute."
    ScrubFinished "scrub_finished" Info "A scrub has been over the whole array."
    ScrubStopped "scrub_stopped" Info "A scrub was ended before it had been over the whole array."
    JobChanged "job_changed" Info "A job was paused, resumed, cancelled or given another priority."
    ExportCreated "export_created" Info "An array was offered to clients."
    ExportWithdrawn "export_withdrawn" Info "An export was removed, or withdrawn together with its array."
    ExportOffline "export_offline" Critical "A recorded export could not be offered."
    ConnectionsRefused "connections_refused" Warning "An address had no room left; told at most once a minute."
    ReservationsReleased "reservations_released" Warning "Somebody ended the reservations of an export by a command."
    ReservationsUnrecorded "reservations_unrecorded" Warning "A change of reservations, or their end, is not recorded."
    SpareAdded "spare_added" Info "A drive became a spare."
    SpareRemoved "spare_removed" Info "A spare became an ordinary free drive."
    SpareUsed "spare_used" Warning "A spare took the place of a member."
    SpareMissing "spare_missing" Warning "A spare is not here, or cannot be used."
    SpareReturned "spare_returned" Info "A spare that was missing is here again."
    SpareNone "spare_none" Warning "A member is out, and no spare fits in its place."
    DriveAppeared "drive_appeared" Info "A drive appeared in the machine."
    DriveVanished "drive_vanished" Info "A drive vanished from the machine."
    DriveLost "drive_lost" Warning "The connection to a drive of another machine is lost and being made anew."
    DriveBack "drive_back" Info "The connection to a drive of another machine was made anew."
    DrivePathLost "drive_path_lost" Warning "One of the paths to a drive of another machine is lost, and made anew."
    DrivePathBack "drive_path_back" Info "One of the paths to a drive of another machine was made anew."
    HookChanged "hook_changed" Info "Somebody outside is told about events from now on, or no more."
    HookFailed "hook_failed" Warning "Somebody outside could not be told about events."
    HostChanged "host_changed" Info "What a host has to do to connect has changed: prove who it is, use TLS."
    ReferralChanged "referral_changed" Info "Hosts are told of another discovery service from now on, or no more."
    HostRefused "host_refused" Warning "Hosts were not let in; told at once, and every 10 minutes how many."
}

impl EventKind {
    /// The kind that `word` names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }
}
