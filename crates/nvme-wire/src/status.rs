//! The status of a command (Base, section 3.3.3.2.1 "Status Field").

/// A status: type, code, and the Do Not Retry bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// Do Not Retry, as a bit of the status field.
const DNR: u16 = 1 << 14;

const fn generic(code: u8) -> Status {
    Status(code as u16)
}

const fn specific(code: u8) -> Status {
    Status(1 << 8 | code as u16)
}

const fn media(code: u8) -> Status {
    Status(2 << 8 | code as u16)
}

const fn path(code: u8) -> Status {
    Status(3 << 8 | code as u16)
}

/// Status codes: generic (Base, Figure 95), of the NVM command set (NVM, section 1.4 and Figure 16), command specific
/// (Base, Figure 97) and of fabrics (Base, Figure 98).
impl Status {
    /// Successful completion.
    pub const SUCCESS: Self = generic(0x00);
    /// The opcode is not supported.
    pub const INVALID_OPCODE: Self = generic(0x01).final_();
    /// A field of the command has an invalid value.
    pub const INVALID_FIELD: Self = generic(0x02).final_();
    /// The data was damaged or lost during the transfer.
    pub const TRANSFER_ERROR: Self = generic(0x04);
    /// An internal error of the controller.
    pub const INTERNAL: Self = generic(0x06);
    /// The command was aborted.
    pub const ABORTED: Self = generic(0x07);
    /// The other half of the fused operation failed.
    pub const FAILED_FUSED: Self = generic(0x09);
    /// The other half of the fused operation is not adjacent.
    pub const MISSING_FUSED: Self = generic(0x0a);
    /// The namespace does not exist.
    pub const INVALID_NAMESPACE: Self = generic(0x0b).final_();
    /// The command is not permitted in this state.
    pub const SEQUENCE_ERROR: Self = generic(0x0c).final_();
    /// A queue with this ID is connected, and may be closing.
    pub const QUEUE_TAKEN: Self = generic(0x0c);
    /// The length in the SGL descriptor does not match the command.
    pub const SGL_LENGTH: Self = generic(0x0f).final_();
    /// The type of the SGL descriptor is not supported here.
    pub const SGL_TYPE: Self = generic(0x11).final_();
    /// The SGL descriptor has an invalid offset in the capsule.
    pub const SGL_OFFSET: Self = generic(0x16).final_();
    /// The namespace is write-protected.
    pub const WRITE_PROTECTED: Self = generic(0x20).final_();
    /// Host identifiers have 128 bits, and the command requests 64.
    pub const HOST_ID_FORMAT: Self = generic(0x18).final_();
    /// The command was aborted because another host preempted the reservation.
    pub const PREEMPTED: Self = generic(0x1b).final_();
    /// The command lacked a resource and can be retried.
    pub const INTERRUPTED: Self = generic(0x21);
    /// The data was damaged during the transfer, and the command can be retried.
    pub const TRANSIENT_TRANSPORT: Self = generic(0x22);
    /// The blocks exceed the namespace.
    pub const OUT_OF_RANGE: Self = generic(0x80).final_();
    /// The capacity is exhausted.
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    /// The namespace is not ready, for now.
    pub const NOT_READY: Self = generic(0x82);
    /// A reservation excludes the host, or the host lacks the required registration.
    pub const RESERVATION_CONFLICT: Self = generic(0x83).final_();
    /// There is no room for a new entry, and a retry is useless.
    pub const NO_ROOM: Self = generic(0x06).final_();

    /// Copy: the ranges or the blocks exceed a limit of the namespace.
    pub const SIZE_LIMIT: Self = specific(0x83).final_();
    /// Copy: source and destination overlap.
    pub const OVERLAP: Self = specific(0x87).final_();
    /// The limit of outstanding Asynchronous Event Requests is exceeded.
    pub const TOO_MANY_EVENT_REQUESTS: Self = specific(0x05).final_();
    /// The log page is not supported.
    pub const INVALID_LOG_PAGE: Self = specific(0x09).final_();
    /// The feature is not changeable.
    pub const NOT_CHANGEABLE: Self = specific(0x0e).final_();
    /// The format of the Connect or Disconnect is not supported.
    pub const INCOMPATIBLE_FORMAT: Self = specific(0x80).final_();
    /// The controller has no free connection slot.
    pub const BUSY: Self = specific(0x81);
    /// A parameter of Connect is invalid; the result identifies it.
    pub const INVALID_PARAMETERS: Self = specific(0x82).final_();
    /// The host is not permitted.
    pub const INVALID_HOST: Self = specific(0x84).final_();
    /// The queue cannot be disconnected in this way.
    pub const INVALID_QUEUE: Self = specific(0x85).final_();

    /// The host must authenticate first.
    pub const PROOF_REQUIRED: Self = specific(0x91).final_();

    /// A write failed on the medium.
    pub const WRITE_FAULT: Self = media(0x80);
    /// A read failed on the medium.
    pub const UNRECOVERED_READ: Self = media(0x81);

    /// The blocks differ from the data of a Compare.
    pub const COMPARE_FAILURE: Self = media(0x85).final_();

    /// The namespace is inaccessible through this controller for now.
    pub const INACCESSIBLE: Self = path(0x02);

    /// Adds Do Not Retry.
    const fn final_(self) -> Self {
        Self(self.0 | DNR)
    }

    /// True if the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & !DNR == 0
    }

    /// True if the status has Do Not Retry set.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & DNR != 0
    }

    /// The status code type (SCT): 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor
    /// specific.
    #[must_use]
    pub const fn code_type(self) -> u8 {
        (self.0 >> 8) as u8 & 0b111
    }

    /// The status code (SC).
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// True if both have the same type and code.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// The upper half of the last dword of a completion, whose lowest bit is the phase tag.
    #[must_use]
    pub const fn word(self) -> u16 {
        self.0 << 1
    }

    /// Parses that word; the phase tag is dropped.
    #[must_use]
    pub const fn of_word(word: u16) -> Self {
        Self(word >> 1)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {:x}h/{:02x}h", self.code_type(), self.code())
    }
}
