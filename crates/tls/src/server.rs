//! The server's side of a handshake.
//!
//! OpenSSL asks for one key for an identity, at once; and there may be several, which are not known before the client
//! has said what it calls them. So a first handshake without a key only hears what the client says, and then one
//! handshake for each key is given the same bytes. OpenSSL takes the one that the client has proven to know; the
//! others, and what they would have said, are forgotten.

use crate::agreement::{Agreement, step};
use crate::channel::Channel;
use crate::error::{Alert, TlsError};
use strake_nvme_auth::Psk;

/// Who knows keys.
pub trait KnownKeys {
    /// The keys that a client may mean by an identity; none when it is not known.
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk>;
}

/// What comes of a handshake.
pub struct Secured {
    /// What the connection goes through from here on.
    pub channel: Box<Channel>,
    /// The identity that the client has proven.
    pub identity: String,
}

/// A handshake with a client.
#[derive(Default)]
pub struct Server {
    /// What hears the client's first message; `None` before it begins.
    scout: Option<Box<Agreement>>,
    /// That message, as far as it came.
    heard: Vec<u8>,
    /// What continues with the key that the client knows.
    agreement: Option<Box<Agreement>>,
}

impl Server {
    /// Processes all bytes that the client has sent; what is to be sent goes to `out`. After an error that is what
    /// tells the client of it, and nothing further is to be asked.
    ///
    /// # Errors
    /// When there will be no channel.
    pub fn step(
        &mut self,
        input: &[u8],
        keys: &dyn KnownKeys,
        out: &mut Vec<u8>,
    ) -> Result<Option<Secured>, TlsError> {
        if self.agreement.is_none() {
            self.agreement = self.listen(input, keys, out)?;
            if let Some(agreement) = &mut self.agreement {
                out.extend(agreement.take_output());
                // What listened has done so.
                (self.scout, self.heard) = (None, Vec::new());
            }
            return Ok(None);
        }
        step(&mut self.agreement, input, out)
    }

    /// Waits for the client's first message, and continues with the key that it proves to know.
    fn listen(
        &mut self,
        input: &[u8],
        keys: &dyn KnownKeys,
        out: &mut Vec<u8>,
    ) -> Result<Option<Box<Agreement>>, TlsError> {
        let scout = match &mut self.scout {
            Some(scout) => scout,
            none => none.insert(Box::new(Agreement::knowing(None)?)),
        };
        self.heard.extend(input);
        let heard = scout.advance(input);
        if scout.unknown().is_empty() {
            let said = scout.take_output();
            let answered = heard.map(|_| !said.is_empty());
            out.extend(said);
            // It would go on with a client that names no key.
            return if answered? {
                Err(TlsError::Breach(Alert::HandshakeFailure))
            } else {
                Ok(None)
            };
        }
        let mut refusal = TlsError::Breach(Alert::DecryptError);
        for psk in scout.unknown().iter().flat_map(|identity| keys.meant_by(identity)) {
            let mut agreement = Box::new(Agreement::knowing(Some(&psk))?);
            match agreement.advance(&self.heard) {
                Ok(_) => return Ok(Some(agreement)),
                // The scout found nothing wrong, so it is about this key.
                Err(TlsError::Breach(_)) => {}
                Err(error) => refusal = error,
            }
        }
        // The client does not learn whether the name or the key is wrong, or what about the key.
        out.extend(refusal.alert().map(Alert::record).unwrap_or_default());
        Err(refusal)
    }
}
