//! Serves a block device over the NBD protocol.
//!
//! **What it is.** A fixed-newstyle NBD server for hosts without NVMe/TCP: virtual machine monitors, the kernel's `nbd`
//! driver, `qemu-img`, `nbdcopy`. [`Server`] listens on a unix socket or a loopback address; a control thread
//! negotiates with each client and then passes the socket of the client to a data core, where requests become
//! [`strake_block::Io`]s and completions become replies.
//!
//! **What it must never do.** Trust a client: no length, offset, order or timing of its bytes may panic, hang, grow
//! memory or disturb another client. Open a device for a client that has not finished negotiating. Serve a client on
//! another host, because the connection is not encrypted. Allocate, lock or log per request. Use more of a device than
//! the traits of `strake-block`: it does not know arrays.
//!
//! **Where to start.** [`wire`] for the bytes, [`handshake`] for the negotiation, [`admit`] for the checks of requests,
//! `connection` for the life of a client on a data core, [`limits`] for all limits. [`strake_export_net`] accepts
//! clients and passes them to data cores.

#![forbid(unsafe_code)]

pub mod admit;
mod connection;
pub mod export;
pub mod handshake;
pub mod limits;
pub mod listen;
mod replies;
mod requests;
pub mod server;
pub mod wire;

pub use export::Export;
pub use listen::{Listen, try_listen};
pub use server::{Server, ServerConfig};
pub use strake_export_net::{
    ExportError, ExportErrorKind, ExportStats, Removal, Rights, SharedRights,
};
