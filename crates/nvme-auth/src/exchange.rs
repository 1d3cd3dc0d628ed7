//! The controller's side of the authentication transaction (Base, section 8.13.5.1).
//!
//! ```text
//! Negotiating --Negotiate--> Challenging --Challenge--> Waiting --Reply--> Succeeding --Success1--> Done
//!     |                          |                         |                   '---> Confirming --Success2--> Done
//!     '----------------------anything else-----------------'--> Failing --Failure1--> Failed
//! ```
//! Messages of the host come in with [`take`](Exchange::take), those for it go out with [`give`](Exchange::give). A
//! failure is reported as one code and ends the authentication: there is no second try on one connection.

use crate::group::{EXPONENT_BYTES, Group, Groups, VALUE_BYTES_MAX};
use crate::messages::{self, COMMON, DH_HMAC_CHAP, Lead, Negotiate, Reply, id};
use crate::proof::{Challenge, HASH_BYTES_MAX, Hash, Names, Side, is_same, respond};
use crate::secret::Secret;

/// Bytes of the longest message: a reply with the largest values.
pub const MESSAGE_BYTES_MAX: usize = 16 + 2 * HASH_BYTES_MAX + VALUE_BYTES_MAX;

/// What is known of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// What the host proves itself with.
    pub host: Secret,
    /// What the controller proves itself with to a host that asks for it.
    pub controller: Option<Secret>,
}

/// Random bytes of one side for one authentication transaction.
pub struct Fresh {
    /// Its challenge.
    pub challenge: [u8; HASH_BYTES_MAX],
    /// Its private exponent.
    pub exponent: [u8; EXPONENT_BYTES],
    /// The number of its challenge, of which a host makes that of the authentication transaction too.
    pub sequence: u32,
}

/// Why an authentication transaction failed (Base, Figure 456).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The host does not know its secret, or asked for proof that cannot be given.
    Refused = 0x01,
    /// The host requests a secure channel to follow.
    SecureChannel = 0x03,
    /// No hash function is known to both.
    Hash = 0x04,
    /// No group is known to both, or the host's value is not one of it.
    Group = 0x05,
    /// A message that makes no sense.
    Payload = 0x06,
    /// A message that does not come next.
    Message = 0x07,
}

enum State {
    Negotiating,
    Challenging(Terms),
    Waiting(Terms),
    Succeeding { hash: Hash, response: Option<Vec<u8>> },
    Confirming,
    Failing(Failure),
    Done,
    Failed,
}

/// What was agreed on.
#[derive(Clone, Copy)]
struct Terms {
    hash: Hash,
    group: Group,
}

/// How an authentication transaction stands after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It continues.
    Goes,
    /// The host is who it says, and was notified.
    Proven,
    /// It is not, or has given up.
    Failed,
}

/// An authentication transaction on one queue.
pub struct Exchange {
    names: Names,
    /// The valid keys, newest first.
    keys: Vec<Keys>,
    fresh: Fresh,
    groups: Groups,
    transaction: u16,
    state: State,
}

/// Groups in the order of preference: strong enough and not too costly first.
pub(crate) const GROUPS: [Group; 6] = [
    Group::Ffdhe3072,
    Group::Ffdhe4096,
    Group::Ffdhe2048,
    Group::Ffdhe6144,
    Group::Ffdhe8192,
    Group::Null,
];

impl Exchange {
    /// Begins one that uses a group of `groups`. The host may have any of `keys`, newest first.
    #[must_use]
    pub const fn new(names: Names, keys: Vec<Keys>, fresh: Fresh, groups: Groups) -> Self {
        Self { names, keys, fresh, groups, transaction: 0, state: State::Negotiating }
    }

    /// Takes a message of the host.
    pub fn take(&mut self, message: &[u8]) -> Answer {
        let next = match Lead::parse(message) {
            None => Err(Failure::Payload),
            Some(lead) => self.react(lead, message),
        };
        self.state = next.unwrap_or_else(State::Failing);
        self.answer()
    }

    fn answer(&self) -> Answer {
        match self.state {
            State::Done => Answer::Proven,
            State::Failed => Answer::Failed,
            State::Negotiating
            | State::Challenging(_)
            | State::Waiting(_)
            | State::Succeeding { .. }
            | State::Confirming
            | State::Failing(_) => Answer::Goes,
        }
    }

    fn react(&mut self, lead: Lead, message: &[u8]) -> Result<State, Failure> {
        let expected = match (lead.kind, lead.id, &self.state) {
            (COMMON, id::NEGOTIATE, State::Negotiating) => {
                self.transaction = lead.transaction;
                return negotiate(message, self.groups).map(State::Challenging);
            }
            // The host gives up; a failure needs no answer.
            (COMMON | DH_HMAC_CHAP, id::FAILURE_2, _) => return Ok(State::Failed),
            (DH_HMAC_CHAP, id::REPLY, State::Waiting(terms)) => Some(*terms),
            (DH_HMAC_CHAP, id::SUCCESS_2, State::Confirming) => None,
            _ => return Err(Failure::Message),
        };
        if lead.transaction != self.transaction {
            return Err(Failure::Payload);
        }
        match expected {
            Some(terms) => self.judge(terms, message),
            None => Ok(State::Done),
        }
    }

    /// Whether a reply proves that the host knows its secret.
    fn judge(&self, Terms { hash, group }: Terms, message: &[u8]) -> Result<State, Failure> {
        let reply = Reply::parse(message, hash.bytes()).ok_or(Failure::Payload)?;
        let session = match group {
            Group::Null if reply.public.is_empty() => None,
            Group::Null => return Err(Failure::Payload),
            group => Some(group.shared(reply.public, &self.fresh.exponent).ok_or(Failure::Group)?),
        };
        let own = self.challenge_of(hash);
        let challenge = |value, sequence| Challenge {
            hash,
            value,
            session: session.as_deref(),
            sequence,
            transaction: self.transaction,
        };
        let ours = challenge(own, self.fresh.sequence);
        let proven = |keys: &&Keys| {
            let expected = respond(Side::Host, &keys.host, &self.names, &ours);
            is_same(&expected, reply.response)
        };
        let keys = self.keys.iter().find(proven).ok_or(Failure::Refused)?;
        let response = match (reply.challenge, &keys.controller) {
            (None, _) => None,
            // What was asked of the host is not answered for it.
            (Some(value), _) if value == own => return Err(Failure::Refused),
            (Some(_), None) => return Err(Failure::Refused),
            (Some(value), Some(secret)) => {
                let theirs = challenge(value, reply.sequence);
                let tag = respond(Side::Controller, secret, &self.names, &theirs);
                Some(tag.to_vec())
            }
        };
        Ok(State::Succeeding { hash, response })
    }

    fn challenge_of(&self, hash: Hash) -> &[u8] {
        &self.fresh.challenge[..hash.bytes()]
    }

    /// The message for the host, which asked for one. A host that asks out of turn gets a failure.
    pub fn give(&mut self) -> (Vec<u8>, Answer) {
        let (message, next) = match &self.state {
            State::Challenging(terms) => (self.challenge(*terms), State::Waiting(*terms)),
            State::Succeeding { hash, response } => {
                let message = messages::success(self.transaction, *hash, response.as_deref());
                let next = if response.is_some() { State::Confirming } else { State::Done };
                (message, next)
            }
            State::Failing(why) => (messages::failure(self.transaction, *why), State::Failed),
            State::Negotiating
            | State::Waiting(_)
            | State::Confirming
            | State::Done
            | State::Failed => {
                (messages::failure(self.transaction, Failure::Message), State::Failed)
            }
        };
        self.state = next;
        (message, self.answer())
    }

    fn challenge(&self, Terms { hash, group }: Terms) -> Vec<u8> {
        // Without memory for the computation, the host rejects a challenge without a value.
        let public = group.public(&self.fresh.exponent).unwrap_or_default();
        let values = (self.challenge_of(hash), &public[..]);
        messages::challenge(self.transaction, (hash, group), self.fresh.sequence, values)
    }

    /// Why it fails, once that is known.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        match self.state {
            State::Failing(why) => Some(why),
            State::Negotiating
            | State::Challenging(_)
            | State::Waiting(_)
            | State::Succeeding { .. }
            | State::Confirming
            | State::Done
            | State::Failed => None,
        }
    }
}

fn negotiate(message: &[u8], groups: Groups) -> Result<Terms, Failure> {
    let offer = Negotiate::parse(message).ok_or(Failure::Payload)?;
    if offer.secure_channel != 0 {
        return Err(Failure::SecureChannel);
    }
    let hashes = [Hash::Sha512, Hash::Sha384, Hash::Sha256];
    let hash = hashes.into_iter().find(|hash| offer.hashes.contains(&(*hash as u8)));
    let both = |group: &Group| groups.contains(*group) && offer.groups.contains(&(*group as u8));
    let group = GROUPS.into_iter().find(both);
    Ok(Terms { hash: hash.ok_or(Failure::Hash)?, group: group.ok_or(Failure::Group)? })
}
