//! Features (Base, section 5.27.1).

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power Management.
pub const POWER: u8 = 0x02;
/// Temperature Threshold.
pub const TEMPERATURE: u8 = 0x04;
/// Error Recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile Write Cache.
pub const WRITE_CACHE: u8 = 0x06;
/// Number of Queues.
pub const QUEUES: u8 = 0x07;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0a;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENTS: u8 = 0x0b;
/// Keep Alive Timer.
pub const KEEP_ALIVE: u8 = 0x0f;
/// Host Identifier.
pub const HOST_ID: u8 = 0x81;
/// Reservation Notification Mask.
pub const RESERVATION_MASK: u8 = 0x82;
/// Reservation Persistence.
pub const RESERVATION_PERSISTENCE: u8 = 0x83;

/// The number of granted I/O queues for the request in dword 11, as the result of the command: both numbers less one
/// (Base, section 5.27.1.5). Over fabrics the numbers of SQs and CQs are equal. `None` for an invalid request.
#[must_use]
pub fn queues_granted(dword_11: u32, most: u16) -> Option<u32> {
    let (submission, completion) = (dword_11 as u16, (dword_11 >> 16) as u16);
    if submission == u16::MAX || completion == u16::MAX {
        return None;
    }
    let granted = u32::from(submission.max(completion).min(most - 1));
    Some(granted | granted << 16)
}

/// Bits of events: in the feature of enabled events (Base, Figure 326), and in the events that a controller supports
/// (Base, Figure 275, OAES).
pub mod event {
    /// A namespace was added, removed or resized.
    pub const NAMESPACES_CHANGED: u32 = 1 << 8;
    /// The access state of a namespace changed.
    pub const ACCESS_CHANGED: u32 = 1 << 11;
    /// The discovery log page changed.
    pub const DISCOVERY_CHANGED: u32 = 1 << 31;

    /// The result of an Asynchronous Event Request for this event: the type (notice), the event, and the log page to
    /// read (Base, Figures 145 and 149).
    pub const NAMESPACES_CHANGED_RESULT: u64 = 0x04_00_02;
    /// The result for a change of access states.
    pub const ACCESS_CHANGED_RESULT: u64 = 0x0c_03_02;
    /// The result for a change of the discovery log page.
    pub const DISCOVERY_CHANGED_RESULT: u64 = 0x70_f0_02;
    /// The result for reservations, whose type is specific to the command set (Base, Figure 150).
    pub const RESERVATION_RESULT: u64 = 0x80_00_06;
    /// The bits of a result that identify the event; the others are reserved.
    pub const RESULT_MASK: u64 = 0xff_ff_07;
}

/// Dword 11 of a command that requests `count` I/O queues.
#[must_use]
pub fn queues_asked(count: u16) -> u32 {
    let less_one = u32::from(count.saturating_sub(1));
    less_one | less_one << 16
}

/// The number of I/O queues that the result of that command grants.
#[must_use]
pub fn queues_of(result: u32) -> u32 {
    (result & 0xffff).min(result >> 16) + 1
}
