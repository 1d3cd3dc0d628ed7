//! The server's side of a handshake (RFC 8446, section 2 and appendix A.2).
//!
//! ```text
//! First --hello--> Finishing --Finished--> over: a channel
//!   '----hello----> Again --hello--^
//! ```
//! `Again` is where a client knows a group that we know, and has sent a share in others only. Whoever does not prove at
//! once that it knows a key gets no further, and costs no exchange.

use crate::channel::{Channel, Side};
use crate::error::{Alert, TlsError};
use crate::hello::{ClientHello, RANDOM_BYTES, Reply, kind, retry_request};
use crate::inbox::Inbox;
use crate::reader::{message, put_long, put_record};
use crate::record::{Half, content, put_sealed};
use crate::schedule::{Stem, Transcript, finished_key};
use crate::share::{Group, Share};
use ring::hmac;
use ring::rand::SecureRandom;
use strake_nvme_auth::{Psk, PskHash};

const UNEXPECTED: TlsError = TlsError::Breach(Alert::UnexpectedMessage);

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

/// A first hello was answered with a request for another.
struct Retry {
    hash: PskHash,
    group: Group,
    transcript: Transcript,
}

struct Finishing {
    reader: Half,
    writer: Half,
    /// The keys that the client goes on with.
    after: Half,
    expected: hmac::Key,
    transcript: Transcript,
    identity: String,
}

enum Stage {
    First,
    Again(Box<Retry>),
    Finishing(Box<Finishing>),
    Over,
}

/// A handshake with a client.
pub struct Server {
    inbox: Inbox,
    stage: Stage,
}

impl Default for Server {
    fn default() -> Self {
        Self { inbox: Inbox::default(), stage: Stage::First }
    }
}

/// A key that a client has proven to know.
struct Proven {
    psk: Psk,
    stem: Stem,
    /// Its number among those that were offered.
    number: u16,
}

impl Server {
    /// Looks at what the client has sent, all of it; what is to be sent goes to `out`. After an error that is what
    /// tells the client of it, and nothing further is to be asked.
    ///
    /// # Errors
    /// When there will be no channel.
    pub fn step(
        &mut self,
        input: &[u8],
        keys: &dyn KnownKeys,
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Option<Secured>, TlsError> {
        self.inbox.put(input);
        let result = self.advance(keys, random, out);
        if let Err(error) = result
            && let Some(alert) = error.alert()
        {
            self.tell(alert, out);
        }
        result
    }

    fn tell(&mut self, alert: Alert, out: &mut Vec<u8>) {
        let body = [2, alert as u8];
        match &mut self.stage {
            // Sealing fails after 2^64 records only.
            Stage::Finishing(finishing) => {
                let _ = put_sealed(out, &mut finishing.writer, content::ALERT, &body);
            }
            Stage::First | Stage::Again(_) | Stage::Over => {
                put_record(out, content::ALERT, &body);
            }
        }
    }

    fn advance(
        &mut self,
        keys: &dyn KnownKeys,
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Option<Secured>, TlsError> {
        loop {
            let half = match &mut self.stage {
                Stage::Finishing(finishing) => Some(&mut finishing.reader),
                Stage::First | Stage::Again(_) | Stage::Over => None,
            };
            let Some(message) = self.inbox.next(half)? else { return Ok(None) };
            if !self.inbox.is_at_end() {
                return Err(UNEXPECTED);
            }
            match (std::mem::replace(&mut self.stage, Stage::Over), message[0]) {
                (Stage::First, kind::CLIENT_HELLO) => {
                    self.stage = greet(&message, None, (keys, random), out)?;
                }
                (Stage::Again(retry), kind::CLIENT_HELLO) => {
                    self.stage = greet(&message, Some(*retry), (keys, random), out)?;
                }
                (Stage::Finishing(finishing), kind::FINISHED) => {
                    return self.finish(finishing, &message).map(Some);
                }
                (stage, _) => {
                    self.stage = stage;
                    return Err(UNEXPECTED);
                }
            }
        }
    }

    fn finish(&mut self, finishing: Box<Finishing>, message: &[u8]) -> Result<Secured, TlsError> {
        let said = &message[4..];
        let transcript = finishing.transcript.value();
        if hmac::verify(&finishing.expected, transcript.as_ref(), said).is_err() {
            self.stage = Stage::Finishing(finishing);
            return Err(TlsError::Breach(Alert::DecryptError));
        }
        let rest = std::mem::take(&mut self.inbox).into_rest()?;
        let Finishing { writer, after, identity, .. } = *finishing;
        Ok(Secured {
            channel: Box::new(Channel::new(Side::Server, after, writer, &rest)),
            identity,
        })
    }
}

/// Answers a hello.
fn greet(
    message: &[u8],
    retry: Option<Retry>,
    (keys, random): (&dyn KnownKeys, &dyn SecureRandom),
    out: &mut Vec<u8>,
) -> Result<Stage, TlsError> {
    let hello = ClientHello::parse(message)?;
    let before = |hash| match &retry {
        Some(retry) if retry.hash == hash => Some(retry.transcript.clone()),
        Some(_) => None,
        None => Some(Transcript::new(hash)),
    };
    let proven = prove(&hello, keys, before)?;
    let hash = proven.psk.hash;
    let illegal = TlsError::Breach(Alert::IllegalParameter);
    let (group, theirs) = match &retry {
        Some(_) if hello.shares() != 1 => return Err(illegal),
        Some(retry) => (retry.group, hello.share_of(retry.group).ok_or(illegal)?),
        None => match hello.share() {
            Some(found) => found,
            None => return ask_again(message, &hello, hash, out),
        },
    };
    let mut transcript = before(hash).ok_or(illegal)?;
    transcript.add(message);
    let share = Share::new(group, random)?;
    let mut bytes = [0; RANDOM_BYTES];
    random.fill(&mut bytes)?;
    let reply =
        Reply { random: &bytes, session: hello.session, hash, share: &share, key: proven.number };
    let reply = reply.compose();
    transcript.add(&reply);
    put_record(out, content::HANDSHAKE, &reply);
    if retry.is_none() {
        put_change(&hello, out);
    }
    let agreed = share.agree(theirs)?;
    let secrets = proven.stem.with_agreed(&agreed)?;
    conclude(&secrets, transcript, proven.psk.identity, out)
}

/// For the sake of what lies between, a client with a session is told of a change that is none (RFC 8446, section D.4).
fn put_change(hello: &ClientHello<'_>, out: &mut Vec<u8>) {
    if !hello.session.is_empty() {
        put_record(out, content::CHANGE_CIPHER_SPEC, &[1]);
    }
}

/// The first of the offered keys that the client knows. Nobody is told whether it was the name or the key that is
/// wrong.
fn prove(
    hello: &ClientHello<'_>,
    keys: &dyn KnownKeys,
    before: impl Fn(PskHash) -> Option<Transcript>,
) -> Result<Proven, TlsError> {
    for (number, offer) in (0..).zip(&hello.offers) {
        for psk in keys.meant_by(offer.identity) {
            let Some(mut transcript) = before(psk.hash) else { continue };
            transcript.add(hello.unbound);
            let stem = Stem::of_key(psk.hash, &psk.secret);
            if hello.has_suite(psk.hash) && stem.is_bound(&transcript, offer.binder)? {
                return Ok(Proven { psk, stem, number });
            }
        }
    }
    Err(TlsError::Breach(Alert::DecryptError))
}

fn ask_again(
    message: &[u8],
    hello: &ClientHello<'_>,
    hash: PskHash,
    out: &mut Vec<u8>,
) -> Result<Stage, TlsError> {
    let group = hello.group().ok_or(TlsError::Breach(Alert::HandshakeFailure))?;
    let request = retry_request(hello.session, hash, group);
    put_record(out, content::HANDSHAKE, &request);
    put_change(hello, out);
    let transcript = Transcript::retried(hash, message, &request);
    Ok(Stage::Again(Box::new(Retry { hash, group, transcript })))
}

/// Sends the rest of our part, and makes the keys of both directions.
fn conclude(
    secrets: &Stem,
    mut transcript: Transcript,
    identity: String,
    out: &mut Vec<u8>,
) -> Result<Stage, TlsError> {
    let hash = transcript.hash();
    let said = transcript.value();
    let client = secrets.derive("c hs traffic", said.as_ref())?;
    let server = secrets.derive("s hs traffic", said.as_ref())?;
    let (expected, own) = (finished_key(hash, &client)?, finished_key(hash, &server)?);
    let mut writer = Half::new(hash, server)?;
    let extensions = message(kind::ENCRYPTED_EXTENSIONS, |out| put_long(out, |_| {}));
    transcript.add(&extensions);
    let proof = hmac::sign(&own, transcript.value().as_ref());
    let finished = message(kind::FINISHED, |out| out.extend(proof.as_ref()));
    transcript.add(&finished);
    put_sealed(out, &mut writer, content::HANDSHAKE, &[extensions, finished].concat())?;
    let (master, said) = (secrets.master()?, transcript.value());
    let after = Half::new(hash, master.derive("c ap traffic", said.as_ref())?)?;
    let writer = Half::new(hash, master.derive("s ap traffic", said.as_ref())?)?;
    let reader = Half::new(hash, client)?;
    let finishing = Finishing { reader, writer, after, expected, transcript, identity };
    Ok(Stage::Finishing(Box::new(finishing)))
}
