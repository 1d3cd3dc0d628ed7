//! How a command ended (Base, section 3.3.3.2.1 "Status Field").

/// A status: type and code, and whether trying again makes sense.
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

/// Generic status (Base, Figure 95), of the NVM command set (NVM, section 1.4 and Figure 16), command specific (Base,
/// Figure 97) and of fabrics (Base, Figure 98).
impl Status {
    /// It worked.
    pub const SUCCESS: Self = generic(0x00);
    /// No such command.
    pub const INVALID_OPCODE: Self = generic(0x01).final_();
    /// A field of the command has a value that is not possible.
    pub const INVALID_FIELD: Self = generic(0x02).final_();
    /// Data was damaged or lost on its way.
    pub const TRANSFER_ERROR: Self = generic(0x04);
    /// The controller failed.
    pub const INTERNAL: Self = generic(0x06);
    /// The command was aborted.
    pub const ABORTED: Self = generic(0x07);
    /// It was one of two that are fused, and the other failed.
    pub const FAILED_FUSED: Self = generic(0x09);
    /// It is to be one of two that are fused, and the other was not next to it.
    pub const MISSING_FUSED: Self = generic(0x0a);
    /// No such namespace.
    pub const INVALID_NAMESPACE: Self = generic(0x0b).final_();
    /// Not now.
    pub const SEQUENCE_ERROR: Self = generic(0x0c).final_();
    /// A queue of this number is connected, and may be on its way out.
    pub const QUEUE_TAKEN: Self = generic(0x0c);
    /// The descriptor of data is longer or shorter than the command needs.
    pub const SGL_LENGTH: Self = generic(0x0f).final_();
    /// The descriptor of data is of a kind that is not possible here.
    pub const SGL_TYPE: Self = generic(0x11).final_();
    /// The descriptor names a place outside the capsule.
    pub const SGL_OFFSET: Self = generic(0x16).final_();
    /// The namespace cannot be written.
    pub const WRITE_PROTECTED: Self = generic(0x20).final_();
    /// Identifiers of hosts have 128 bits, and the command asks for 64.
    pub const HOST_ID_FORMAT: Self = generic(0x18).final_();
    /// The command was aborted because another host took over.
    pub const PREEMPTED: Self = generic(0x1b).final_();
    /// There was no room to carry the command out; trying again helps.
    pub const INTERRUPTED: Self = generic(0x21);
    /// Data was damaged on its way; trying again may help.
    pub const TRANSIENT_TRANSPORT: Self = generic(0x22);
    /// Beyond the last block.
    pub const OUT_OF_RANGE: Self = generic(0x80).final_();
    /// There is no room left.
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    /// The namespace is not ready, for now.
    pub const NOT_READY: Self = generic(0x82);
    /// A reservation keeps the host out, or it has no right to what it wants of one.
    pub const RESERVATION_CONFLICT: Self = generic(0x83).final_();
    /// There is no room for what is to be kept, and trying again is useless.
    pub const NO_ROOM: Self = generic(0x06).final_();

    /// Copy: more ranges, or more blocks, than the namespace says.
    pub const SIZE_LIMIT: Self = specific(0x83).final_();
    /// Copy: what is read and what is written have blocks in common.
    pub const OVERLAP: Self = specific(0x87).final_();
    /// More requests for events than the controller keeps.
    pub const TOO_MANY_EVENT_REQUESTS: Self = specific(0x05).final_();
    /// No such log page.
    pub const INVALID_LOG_PAGE: Self = specific(0x09).final_();
    /// The feature cannot be changed.
    pub const NOT_CHANGEABLE: Self = specific(0x0e).final_();
    /// The connection's format is not known.
    pub const INCOMPATIBLE_FORMAT: Self = specific(0x80).final_();
    /// The controller has no room for the connection.
    pub const BUSY: Self = specific(0x81);
    /// A parameter of Connect is not possible; the result says which.
    pub const INVALID_PARAMETERS: Self = specific(0x82).final_();
    /// The host is not allowed here.
    pub const INVALID_HOST: Self = specific(0x84).final_();
    /// The queue cannot be disconnected in this way.
    pub const INVALID_QUEUE: Self = specific(0x85).final_();

    /// The host has to prove who it is first.
    pub const PROOF_REQUIRED: Self = specific(0x91).final_();

    /// A write failed on the medium.
    pub const WRITE_FAULT: Self = media(0x80);
    /// A read failed on the medium.
    pub const UNRECOVERED_READ: Self = media(0x81);

    /// What is there differs from what it was compared with.
    pub const COMPARE_FAILURE: Self = media(0x85).final_();

    /// The namespace cannot be reached through this controller for now.
    pub const INACCESSIBLE: Self = path(0x02);

    /// The same, with trying again being useless.
    const fn final_(self) -> Self {
        Self(self.0 | DNR)
    }

    /// True when the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & !DNR == 0
    }

    /// Whether the controller says that trying again is useless.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & DNR != 0
    }

    /// Which kind of codes its code is of (SCT): 0 for generic, 1 for specific to the command, 2 for the medium, 3 for
    /// the path, 7 for the maker's own.
    #[must_use]
    pub const fn code_type(self) -> u8 {
        (self.0 >> 8) as u8 & 0b111
    }

    /// The code (SC).
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0 as u8
    }

    /// True when both have the same type and code.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }

    /// The upper half of a completion's last dword, in which the lowest bit is the phase.
    #[must_use]
    pub const fn word(self) -> u16 {
        self.0 << 1
    }

    /// From that word; the phase is dropped.
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
