//! The pool of a running array.

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_block::BlockDevice;
use strake_units::Nanos;
use strake_volume::{
    Answer, MapError, Pending, Pool, PoolError, PoolErrorKind, PoolStatus, Request, VolumeId,
    VolumeKind, VolumeRow, VolumeSpace,
};

use crate::error::{ControlError, ControlErrorKind};
use crate::limits::POOL_ANSWER_LIMIT;
use crate::record::store::VolumeRef;

/// The knowledge about the pool of a running array.
#[derive(Default)]
pub(crate) enum PoolSlot {
    /// The array has not been searched for a pool yet.
    #[default]
    Unknown,
    /// The search failed. It is repeated.
    Unread {
        /// The reason.
        why: String,
    },
    /// The array has no pool.
    Nothing,
    /// The array has a pool that cannot be used.
    Offline(OfflinePool),
    /// The pool serves.
    Online(OnlinePool),
}

/// A pool that cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct OfflinePool {
    /// Name and identity of the pool; `None` if its header is unreadable.
    pub(crate) known: Option<(String, String)>,
    /// The reason.
    pub(crate) why: String,
    /// True if I/O of the pool may still be executed. Until the next start of the daemon, nothing else may write to the
    /// array.
    pub(crate) is_stuck: bool,
}

/// A pool that serves.
pub(crate) struct OnlinePool {
    pub(crate) handle: Handle,
    /// The index of the pool core.
    pub(crate) core: usize,
    /// The last known state.
    pub(crate) status: PoolStatus,
    /// The devices of exported volumes, by number.
    pub(crate) devices: BTreeMap<u32, Arc<dyn BlockDevice>>,
    /// True after the report that the pool serves only reads.
    pub(crate) is_reported_read_only: bool,
}

/// Access to a pool without the lock of the manager.
#[derive(Clone)]
pub(crate) struct Handle {
    /// Identity of the array.
    pub(crate) array: String,
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) pool: Arc<Pool>,
}

impl PoolSlot {
    /// Returns the serving pool.
    pub(crate) fn online(&self) -> Option<&OnlinePool> {
        match self {
            Self::Online(online) => Some(online),
            Self::Unknown | Self::Unread { .. } | Self::Nothing | Self::Offline(_) => None,
        }
    }

    /// Returns the serving pool.
    pub(crate) fn online_mut(&mut self) -> Option<&mut OnlinePool> {
        match self {
            Self::Online(online) => Some(online),
            Self::Unknown | Self::Unread { .. } | Self::Nothing | Self::Offline(_) => None,
        }
    }

    /// Returns name and identity of the pool, if there is one with a readable header.
    pub(crate) fn known(&self) -> Option<(&str, &str)> {
        match self {
            Self::Online(OnlinePool { handle, .. }) => Some((&handle.name, &handle.uuid)),
            Self::Offline(offline) => {
                offline.known.as_ref().map(|(name, uuid)| (name.as_str(), uuid.as_str()))
            }
            Self::Unknown | Self::Unread { .. } | Self::Nothing => None,
        }
    }

    /// True for a pool whose header cannot be read.
    pub(crate) fn is_nameless(&self) -> bool {
        matches!(self, Self::Offline(OfflinePool { known: None, .. }))
    }

    /// True if the array must be searched for a pool.
    pub(crate) const fn is_due(&self) -> bool {
        matches!(self, Self::Unknown | Self::Unread { .. })
    }
}

impl OnlinePool {
    /// Returns the volume with this number.
    pub(crate) fn row(&self, id: u32) -> Option<&VolumeRow> {
        self.status.volumes.iter().find(|row| row.id.0 == id)
    }
}

impl Handle {
    /// Sends a request and waits for its answer. Never called under the lock of the manager.
    ///
    /// # Errors
    /// The refusal of the map, the end of the pool, or the time limit.
    pub(crate) fn ask(&self, request: Request) -> Result<Answer, ControlError> {
        let limit = Nanos(POOL_ANSWER_LIMIT.as_nanos() as u64);
        match self.pool.ask(request).wait_for(limit)? {
            Some(answer) => answer.map_err(|error| self.refusal(error)),
            None => Err(self.late()),
        }
    }

    /// Counts the space of a volume, a part at a time.
    ///
    /// # Errors
    /// If the volume is gone, or the pool does not answer.
    pub(crate) fn space(&self, volume: VolumeId) -> Result<VolumeSpace, ControlError> {
        let (mut exclusive, mut first) = (0, 0);
        loop {
            let Answer::Space(part) = self.ask(Request::Space { volume, first })? else {
                return Err(self.late());
            };
            exclusive += part.space.exclusive;
            let Some(next) = part.next else {
                // The volume may have changed since the first part.
                let exclusive = exclusive.min(part.space.mapped);
                let shared = part.space.mapped - exclusive;
                return Ok(VolumeSpace { exclusive, shared, ..part.space });
            };
            first = next;
        }
    }

    /// Waits for the answer to a request that only changes something: the new volumes. `None` if it is late.
    ///
    /// # Errors
    /// The refusal of the map, or the end of the pool.
    pub(crate) fn answer(
        &self,
        pending: &Pending<Result<Answer, MapError>>,
    ) -> Result<Option<Vec<VolumeId>>, ControlError> {
        let limit = Nanos(POOL_ANSWER_LIMIT.as_nanos() as u64);
        let Some(answer) = pending.wait_for(limit)? else { return Ok(None) };
        Ok(Some(match answer.map_err(|error| self.refusal(error))? {
            Answer::Created(ids) => ids,
            Answer::Done | Answer::Status(_) | Answer::Space(_) | Answer::Differences(_) => {
                Vec::new()
            }
        }))
    }

    /// Returns the present state of the pool.
    pub(crate) fn status(&self) -> Result<PoolStatus, ControlError> {
        match self.ask(Request::Status)? {
            Answer::Status(status) => Ok(status),
            _ => Err(ControlError::new(ControlErrorKind::Internal, "the pool gave another answer")),
        }
    }

    /// Returns the device of a volume.
    pub(crate) fn device(&self, id: VolumeId) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let limit = Nanos(POOL_ANSWER_LIMIT.as_nanos() as u64);
        let facts = self.pool.open(id).wait_for(limit)?.ok_or_else(|| self.late())?;
        Ok(self.pool.device_of(id, facts))
    }

    /// Returns the reference to a volume that outlasts renames.
    pub(crate) fn reference(&self, id: VolumeId) -> VolumeRef {
        VolumeRef { pool: self.uuid.clone(), id: id.0 }
    }

    /// Returns the name of a volume with the name of its pool.
    pub(crate) fn full(&self, row: &VolumeRow) -> String {
        format!("{}/{}", self.name, row.name)
    }

    pub(crate) fn late(&self) -> ControlError {
        let what = format!(
            "pool {} has not answered for {} s: I/O of its array is in progress. The operation may still complete; \
             check its result before you repeat the request",
            self.name,
            POOL_ANSWER_LIMIT.as_secs()
        );
        ControlError::new(ControlErrorKind::Silent, what)
    }

    fn refusal(&self, error: MapError) -> ControlError {
        use strake_volume::MapErrorKind as Kind;
        let kind = match error.kind {
            Kind::NoVolume => ControlErrorKind::NotFound,
            Kind::NameTaken => ControlErrorKind::Exists,
            Kind::NoSnapshot | Kind::OutOfRange | Kind::OtherFamily => ControlErrorKind::Usage,
            Kind::DiscardsTail => ControlErrorKind::Refused,
            Kind::StepFailed { .. } | Kind::LogFailed => ControlErrorKind::Device,
            _ => ControlErrorKind::State,
        };
        ControlError::new(kind, format!("pool {}: {}", self.name, error.kind))
    }
}

impl From<PoolError> for ControlError {
    fn from(error: PoolError) -> Self {
        let kind = match error.kind {
            PoolErrorKind::NoPool => ControlErrorKind::NotFound,
            PoolErrorKind::Unsuitable | PoolErrorKind::TooSmall => ControlErrorKind::State,
            PoolErrorKind::Damaged | PoolErrorKind::Newer => ControlErrorKind::Refused,
            PoolErrorKind::Io => ControlErrorKind::Device,
            PoolErrorKind::Stopped => ControlErrorKind::Stopped,
        };
        Self::new(kind, error.to_string())
    }
}

/// The word for a volume or a snapshot.
pub(crate) const fn word_of(kind: VolumeKind) -> &'static str {
    match kind {
        VolumeKind::Writable => "volume",
        VolumeKind::Snapshot => "snapshot",
    }
}
