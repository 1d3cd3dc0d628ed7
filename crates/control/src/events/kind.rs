//! The kinds of events. `docs/events.md` lists the same kinds; a test compares both lists.

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information.
    Info,
    /// A problem without lost data.
    Warning,
    /// Data are unavailable, are lost, or may be lost after one more failure.
    Critical,
}

impl Severity {
    /// Every severity in ascending order.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the name of the severity.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// Returns the severity with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.word() == word)
    }
}

/// Declares the kinds once: variant, word, severity, meaning.
macro_rules! kinds {
    ($($variant:ident $word:literal $severity:ident $meaning:literal)*) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $(#[doc = $meaning] $variant,)*
        }

        impl EventKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name of the kind in messages and files.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the usual severity.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// Returns the meaning in one or two sentences.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

kinds! {
    DaemonStarted "daemon_started" Info "The daemon started."
    DaemonUncleanStart "daemon_unclean_start" Warning "The previous daemon was not shut down cleanly."
    DaemonStopped "daemon_stopped" Info "The daemon was shut down cleanly."
    Command "command" Info "A command that changes an object was executed or refused."
    SettingsChanged "settings_changed" Info "Settings of an array were changed."
    ConfigRestored "config_restored" Info "A configuration backup was restored."
    StateTrouble "state_trouble" Critical "The state directory cannot be written. Arrays continue to serve I/O."
    StateDirRecovered "state_dir_recovered" Info "The state directory can be written again."
    NewestUnknown "newest_unknown" Warning "The file that records the newest generation of each array cannot be read. \
        Arrays start from the labels of the present drives."
    StateLost "state_lost" Critical "The file with the configuration is missing, although arrays ran with this state \
        directory before."
    AuditChanged "audit_changed" Critical "The audit log was changed by a program other than the daemon, or cannot be \
        read."
    AuditRemoved "audit_removed" Warning "The oldest entries of the audit log were removed, because the log \
        exceeds its limit."
    EventsDropped "events_dropped" Warning "Events could not be recorded and were dropped."
    ArrayCreated "array_created" Info "An array was created."
    ArrayStarted "array_started" Info "An array was assembled from its drives, and now serves I/O."
    ArrayOffline "array_offline" Critical "A recorded array cannot be started."
    ArrayUnloaded "array_unloaded" Info "An array was stopped, and its drives were released. Drives keep their data, \
        but members in memory lose their data."
    ArrayDestroyed "array_destroyed" Warning "An array was stopped, and its labels were marked as destroyed."
    ArrayUndeleted "array_undeleted" Info "A destroyed array was undeleted."
    ArrayRenamed "array_renamed" Info "An array was renamed."
    ArrayGrown "array_grown" Info "An array was grown: the array now uses more space of its members."
    ArrayFormatUpgraded "array_format_upgraded" Info "The labels of an array were converted to a newer format."
    ArrayDegraded "array_degraded" Warning "An array has less redundancy than its level provides."
    ArrayNoRedundancy "array_no_redundancy" Critical "An array has no redundancy left: the next member failure may \
                                                      lose data."
    ArrayRecovered "array_recovered" Info "An array has full redundancy again."
    ArrayLost "array_lost" Critical "An array failed: more members are absent than its level tolerates. I/O is stopped."
    InDoubt "in_doubt" Critical "After a crash, a member went out of use before the regions with interrupted writes \
        were resynchronized."
    Suspect "suspect" Critical "Blocks of an array may be wrong, because a member was reconstructed from stripes that \
        a scrub had found inconsistent."
    Unverified "unverified" Warning "An array was started after a crash in mode none. The parity or copies of the \
        array may not match its data."
    BlocksLost "blocks_lost" Critical "Blocks of an array are unreadable and could not be reconstructed."
    BitmapLost "bitmap_lost" Warning "Pages of the bitmaps of an array cannot be read from the drive of a member."
    MemberFailed "member_failed" Warning "A member went out of use."
    MemberMissing "member_missing" Warning "The drive of a member is missing."
    MemberUnreachable "member_unreachable" Critical "Data depend on a drive whose path no longer exists. The drive can \
        be used only while the daemon keeps the drive open."
    MemberReturned "member_returned" Info "The drive of a missing member returned."
    MemberSuperseded "member_superseded" Info "The drive of a replaced member returned."
    MemberSick "member_sick" Warning "A serving member should be replaced. The member has many errors, or its drive \
        predicts a failure, is worn, has few spare blocks, has media errors on several days, or is slow."
    SitOut "sit_out" Warning "A member responds much more slowly than the other members; reads avoid this member."
    SitOutEnded "sit_out_ended" Info "Reads no longer avoid a member."
    MembersStalled "members_stalled" Warning "The number of unresponsive members exceeds the number that the array \
        tolerates. The array puts none of these members out of use."
    MembersStalledEnded "members_stalled_ended" Info "The number of unresponsive members no longer exceeds the number \
        that the array tolerates."
    RebuildStarted "rebuild_started" Info "A rebuild of a member started."
    RebuildFinished "rebuild_finished" Info "A rebuild finished, and the member is in sync."
    RebuildHalted "rebuild_halted" Critical "A rebuild stopped, because the bad block list is full."
    ReplaceStarted "replace_started" Info "A replace started: a serving member is being copied to its replacement."
    ReplaceFinished "replace_finished" Info "A replace finished: the replacement is now the member."
    ReplaceWaits "replace_waits" Warning "A replace cannot resume after a restart, because the new drive is absent or \
        in use."
    ReplaceAbandoned "replace_abandoned" Warning "A replace was abandoned before its end. The old drive remains the \
        member."
    WritesRedone "writes_redone" Info "After a crash, interrupted writes were replayed from the redo log."
    ResyncStarted "resync_started" Info "A resync of parity or copies started."
    ResyncFinished "resync_finished" Info "A resync of parity or copies finished."
    ResyncHalted "resync_halted" Warning "A resync stopped, because the bad block list is full."
    ScrubStarted "scrub_started" Info "A scrub started, or resumed after a restart."
    ScrubFound "scrub_found" Warning "A scrub found inconsistent or corrupt data. The event is reported at most once \
        a minute."
    ScrubFinished "scrub_finished" Info "A scrub of the whole array finished."
    ScrubStopped "scrub_stopped" Info "A scrub was stopped before it finished."
    JobChanged "job_changed" Info "A job was paused, resumed or cancelled, or its priority was changed."
    PoolCreated "pool_created" Info "A pool was created on an array."
    PoolOnline "pool_online" Info "The pool of an array was opened, and its volumes can be used."
    PoolOffline "pool_offline" Critical "The pool of an array cannot be opened. The array continues to run."
    PoolReadOnly "pool_read_only" Critical "The log of a pool cannot be written. Until the next start of the pool, its \
        volumes serve only reads."
    PoolDestroyed "pool_destroyed" Warning "A pool was destroyed with all its volumes and snapshots."
    VolumeCreated "volume_created" Info "A volume or a clone was created."
    VolumeRenamed "volume_renamed" Info "A volume or snapshot was given another name."
    VolumeChanged "volume_changed" Info "The reservation or the quota of a volume was changed."
    VolumeResized "volume_resized" Info "The size of a volume was changed."
    VolumeRolledBack "volume_rolled_back" Warning "A volume was given the content of a snapshot. Its later content is \
        lost."
    VolumeDestroyed "volume_destroyed" Warning "A volume or a snapshot was destroyed."
    SnapshotCreated "snapshot_created" Info "A snapshot of a volume was taken."
    LimitsChanged "limits_changed" Info "Limits of the I/O of a volume, an export or a pool were changed."
    ExportCreated "export_created" Info "An export was created."
    ExportWithdrawn "export_withdrawn" Info "An export was removed, or stopped together with its array."
    ExportOffline "export_offline" Critical "A recorded export could not be started."
    ExportOnline "export_online" Info "An export was started after an earlier start had failed."
    ExportExposed "export_exposed" Warning "An export of an earlier version accepts hosts over a network without TLS. \
        The export stays available."
    RecordInvalid "record_invalid" Warning "Settings or exports that are recorded on the members of an imported array \
        are invalid, or were written by a later version. These settings or exports have no effect, and stay on the \
        members until a setting is changed."
    ConnectionsRefused "connections_refused" Warning "The connection limit of a listening address was reached. The \
        event is reported at most once a minute."
    NegotiationPanicked "negotiation_panicked" Critical "A defect of Strake ended negotiations of connections at a \
        listening address. Other connections continue. The event is reported at most once a minute."
    ReservationsReleased "reservations_released" Warning "A command released the reservations of an export."
    ReservationsUnrecorded "reservations_unrecorded" Warning "A change or a removal of reservations could not be \
        recorded."
    SpareAdded "spare_added" Info "A drive became a spare."
    SpareRemoved "spare_removed" Info "A drive is no longer a spare. The drive is free."
    SpareUsed "spare_used" Warning "A spare replaced a member, or a member is being copied to a spare."
    SpareMissing "spare_missing" Warning "A spare is missing or unusable."
    SpareReturned "spare_returned" Info "A missing spare returned."
    SpareNone "spare_none" Warning "A member is out of use or has a failing drive, and none of the spares is suitable."
    DriveAppeared "drive_appeared" Info "The host has a new drive."
    DriveVanished "drive_vanished" Info "A drive of the host is no longer present."
    DriveLost "drive_lost" Warning "The connection to a remote drive was lost and is being restored."
    DriveBack "drive_back" Info "The connection to a remote drive was restored."
    DrivePathLost "drive_path_lost" Warning "A path to a remote drive was lost and is being restored."
    DrivePathBack "drive_path_back" Info "A path to a remote drive was restored."
    DriveNotTaken "drive_not_taken" Warning "After a daemon restart, or after a taken drive returned, the drive \
        could not be detached from the kernel driver again."
    DriveMaintenanceStarted "drive_maintenance_started" Info "A format, a sanitize operation or a firmware update of a \
        drive started."
    DriveMaintenanceFinished "drive_maintenance_finished" Info "A format, a sanitize operation or a firmware update of \
        a drive finished."
    DriveMaintenanceFailed "drive_maintenance_failed" Warning "A format, a sanitize operation or a firmware update of \
        a drive failed."
    DriveKept "drive_kept" Warning "At its start, the daemon did not complete the interrupted release of a drive, \
        because the drive belongs to an array or is a spare."
    LightFailed "light_failed" Warning "The LEDs of a slot could not be switched. Further failures of the slot are \
        not reported until its LEDs can be switched."
    HookChanged "hook_changed" Info "A notification hook was added or removed."
    HookFailed "hook_failed" Warning "A notification hook failed to deliver events."
    HostChanged "host_changed" Info "The authentication or TLS requirements of a host changed, or the allowed hosts of \
        an export changed."
    ReferralChanged "referral_changed" Info "A discovery referral was added or removed."
    HostRefused "host_refused" Warning "Connections of hosts were rejected. The event is reported at once, and then \
        every 10 minutes with the number of attempts."
}

impl EventKind {
    /// Returns the kind with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }
}
