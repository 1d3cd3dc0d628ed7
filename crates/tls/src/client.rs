//! The client's side of a handshake.

use crate::agreement::{Agreement, step};
use crate::error::TlsError;
use crate::server::Secured;
use strake_nvme_auth::Psk;

/// A handshake with a server.
pub struct Client(Option<Box<Agreement>>);

impl Client {
    /// Begins one, offering this key; what is to be sent goes to `out`. OpenSSL offers one key at a time.
    ///
    /// # Errors
    /// When OpenSSL cannot begin: no memory, no random bytes.
    pub fn begin(psk: &Psk, out: &mut Vec<u8>) -> Result<Self, TlsError> {
        let mut client = Self(Some(Box::new(Agreement::offering(psk)?)));
        client.step(&[], out)?;
        Ok(client)
    }

    /// Processes all bytes that the server has sent; what is to be sent goes to `out`. After an error that is what
    /// tells the server of it, and nothing further is to be asked.
    ///
    /// # Errors
    /// When there will be no channel.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<Secured>, TlsError> {
        step(&mut self.0, input, out)
    }
}
