//! Bounds of the transport, the same on both sides. Values: design page "security", row gRPC.

/// Largest message in bytes, either way.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of an image of firmware, which is transferred in several messages.
pub const FIRMWARE_BYTES_MAX: usize = 64 << 20;

/// Calls at a time on one connection.
pub const STREAMS_MAX: u32 = 100;

/// Bytes of the headers of one call.
pub const HEADER_BYTES_MAX: u32 = 64 << 10;

/// Metadata of a status that hold a serialized `strake.v1.ErrorDetail`.
pub const ERROR_DETAIL_KEY: &str = "strake-error-bin";

/// Most bytes of such a detail. A status with a longer one has its message alone.
pub const ERROR_DETAIL_BYTES_MAX: usize = 8 << 10;

/// Streams a client may have reset before the connection is closed, against floods of resets.
pub const RESETS_MAX: usize = 1000;

/// Drives in one request: more than any array has members, so that errors can still name what is wrong.
pub const DRIVES_MAX: usize = 256;

/// Hosts in one request: the most that one export allows.
pub const HOSTS_MAX: usize = 256;

/// Bytes of a path or name in a request.
pub const STRING_BYTES_MAX: usize = 4096;

/// Most connections at a time; each may have [`STREAMS_MAX`] calls.
pub const CONNECTIONS_MAX: usize = 128;

/// What the file is called, after the name of the socket, in which a daemon says how to start it again.
pub const AGAIN_SUFFIX: &str = ".again";

/// Most that is read of that file: a command with two paths (`PATH_MAX` is 4096 on Linux) and some options.
pub const AGAIN_BYTES_MAX: u64 = 16 << 10;
