//! The host's side of the authentication transaction (Base, section 8.13.5.1), one message after the other.
//!
//! ```text
//! offer --Negotiate-->   <--Challenge-- reply --Reply-->   <--Success1-- conclude --Success2--> (if it asked too)
//! ```
//! Whatever the controller says that does not belong there ends it: a host that was not believed, or does not believe,
//! leaves.

use crate::exchange::{Fresh, GROUPS, Keys};
use crate::group::Group;
use crate::messages::{self, COMMON, DH_HMAC_CHAP, Lead, id};
use crate::proof::{Challenge, Hash, Names, Side, is_same, respond};
use std::fmt;

/// Why a host ends the authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The controller does not believe the host, with the number that it gives for that (Base, Figure 456).
    Refused(u8),
    /// It says something that makes no sense, or not now.
    Nonsense,
    /// It chose a hash function or a group that is not known, or a value that is none of the group.
    Choice,
    /// It did not prove who it is, though it was asked to.
    Unproven,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => {
                write!(
                    f,
                    "the target does not accept our proof (reason {why:02x}h); is it the same secret there?"
                )
            }
            Self::Nonsense => {
                f.write_str("the target sent a message of authentication that makes no sense")
            }
            Self::Choice => f.write_str("the target chose what no host offers for authentication"),
            Self::Unproven => f.write_str("the target did not prove who it is"),
        }
    }
}

/// An authentication transaction on one queue.
pub struct Claim {
    names: Names,
    keys: Keys,
    fresh: Fresh,
    /// What the controller has to respond, once it was asked.
    expected: Option<Vec<u8>>,
}

impl Claim {
    /// Begins one. With a secret of the controller in `keys`, that has to prove who it is as well.
    #[must_use]
    pub const fn new(names: Names, keys: Keys, fresh: Fresh) -> Self {
        Self { names, keys, fresh, expected: None }
    }

    /// The transaction identifier (T_ID).
    const fn transaction(&self) -> u16 {
        self.fresh.sequence as u16
    }

    /// The first message: every hash function and group that there is.
    #[must_use]
    pub fn offer(&self) -> Vec<u8> {
        let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
        messages::negotiate(self.transaction(), &hashes, &GROUPS)
    }

    /// The host's proof, for the controller's challenge.
    ///
    /// # Errors
    /// When it is none, or one that cannot be answered.
    pub fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, Doubt> {
        self.check(message, id::CHALLENGE)?;
        let theirs = messages::Challenged::parse(message).ok_or(Doubt::Nonsense)?;
        let hash = theirs.hash;
        let (public, session) = match theirs.group {
            Group::Null => (Vec::new(), None),
            group => {
                let session = group.shared(theirs.public, &self.fresh.exponent);
                let public = group.public(&self.fresh.exponent);
                (public.ok_or(Doubt::Choice)?, Some(session.ok_or(Doubt::Choice)?))
            }
        };
        let transaction = self.transaction();
        let challenge = |value, sequence| Challenge {
            hash,
            value,
            session: session.as_deref(),
            sequence,
            transaction,
        };
        let asked = challenge(theirs.value, theirs.sequence);
        let response = respond(Side::Host, &self.keys.host, &self.names, &asked);
        // Zero says that nothing is asked (Base, Figure 452).
        let sequence = self.fresh.sequence.max(1);
        let own = &self.fresh.challenge[..hash.bytes()];
        let expected = self.keys.controller.as_ref().map(|secret| {
            respond(Side::Controller, secret, &self.names, &challenge(own, sequence))
        });
        let own = expected.is_some().then_some((own, sequence));
        let message = messages::reply(transaction, &response, own, &public);
        self.expected = expected.map(|tag| tag.to_vec());
        Ok(message)
    }

    /// What is left to say once the controller has accepted the host's proof, if anything.
    ///
    /// # Errors
    /// When it has not, or has not given the proof that it was asked for.
    pub fn conclude(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Doubt> {
        self.check(message, id::SUCCESS_1)?;
        if self.keys.controller.is_none() {
            return Ok(None);
        }
        let expected = self.expected.as_ref().ok_or(Doubt::Unproven)?;
        let response = messages::response_of(message).ok_or(Doubt::Unproven)?;
        if !is_same(expected, response) {
            return Err(Doubt::Unproven);
        }
        Ok(Some(messages::thanks(self.transaction())))
    }

    fn check(&self, message: &[u8], wanted: u8) -> Result<(), Doubt> {
        let lead = Lead::parse(message).ok_or(Doubt::Nonsense)?;
        match (lead.kind, lead.id) {
            (COMMON, id::FAILURE_1) => Err(Doubt::Refused(message.get(7).copied().unwrap_or(0))),
            (DH_HMAC_CHAP, id) if id == wanted && lead.transaction == self.transaction() => Ok(()),
            _ => Err(Doubt::Nonsense),
        }
    }
}
