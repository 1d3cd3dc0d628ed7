//! The client's side of a handshake (RFC 8446, section 2 and appendix A.1).
//!
//! ```text
//! Greeted --hello--> Listening --EncryptedExtensions--> Concluding --Finished--> over: a channel
//!   '--retry--> Greeted, once
//! ```

use crate::channel::{Channel, Side};
use crate::error::{Alert, TlsError};
use crate::hello::{Opening, RANDOM_BYTES, ServerHello, extension, kind};
use crate::inbox::Inbox;
use crate::reader::{Reader, message, put_record};
use crate::record::{Half, content, put_sealed};
use crate::schedule::{Stem, Transcript, finished_key};
use crate::server::Secured;
use crate::share::{GROUPS, Group, Share};
use ring::hmac;
use ring::rand::SecureRandom;
use strake_nvme_auth::Psk;

const UNEXPECTED: TlsError = TlsError::Breach(Alert::UnexpectedMessage);
const ILLEGAL: TlsError = TlsError::Breach(Alert::IllegalParameter);

/// A hello was sent.
struct Greeted {
    share: Share,
    hello: Vec<u8>,
    /// What was said before it: a first hello, and the request for another.
    before: Option<Transcript>,
}

/// The keys of the handshake are there.
struct Agreed {
    reader: Half,
    writer: Half,
    expected: hmac::Key,
    own: hmac::Key,
    master: Stem,
    transcript: Transcript,
    identity: String,
}

enum Stage {
    Greeted(Box<Greeted>),
    Listening(Box<Agreed>),
    Concluding(Box<Agreed>),
    Over,
}

/// A handshake with a server.
pub struct Client {
    inbox: Inbox,
    random: [u8; RANDOM_BYTES],
    offers: Vec<Psk>,
    stage: Stage,
}

impl Client {
    /// Begins one, offering these keys, which all have one hash function; what is to be sent goes to `out`.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn begin(
        offers: Vec<Psk>,
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Self, TlsError> {
        let mut bytes = [0; RANDOM_BYTES];
        random.fill(&mut bytes)?;
        let share = Share::new(GROUPS[0], random)?;
        let opening = Opening { random: &bytes, offers: &offers, share: &share, cookie: &[] };
        let hello = opening.compose(Transcript::new)?;
        put_record(out, content::HANDSHAKE, &hello);
        let stage = Stage::Greeted(Box::new(Greeted { share, hello, before: None }));
        Ok(Self { inbox: Inbox::default(), random: bytes, offers, stage })
    }

    /// Looks at what the server has sent, all of it; what is to be sent goes to `out`. After an error that is what
    /// tells the server of it, and nothing further is to be asked.
    ///
    /// # Errors
    /// When there will be no channel.
    pub fn step(
        &mut self,
        input: &[u8],
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Option<Secured>, TlsError> {
        self.inbox.put(input);
        let result = self.advance(random, out);
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
            Stage::Listening(agreed) | Stage::Concluding(agreed) => {
                // Sealing fails after 2^64 records only.
                let _ = put_sealed(out, &mut agreed.writer, content::ALERT, &body);
            }
            Stage::Greeted(_) | Stage::Over => put_record(out, content::ALERT, &body),
        }
    }

    fn advance(
        &mut self,
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Option<Secured>, TlsError> {
        loop {
            let half = match &mut self.stage {
                Stage::Listening(agreed) | Stage::Concluding(agreed) => Some(&mut agreed.reader),
                Stage::Greeted(_) | Stage::Over => None,
            };
            let Some(message) = self.inbox.next(half)? else { return Ok(None) };
            match (std::mem::replace(&mut self.stage, Stage::Over), message[0]) {
                (Stage::Greeted(greeted), kind::SERVER_HELLO) => {
                    if !self.inbox.is_at_end() {
                        return Err(UNEXPECTED);
                    }
                    self.stage = self.answered(*greeted, &message, random, out)?;
                }
                (Stage::Listening(mut agreed), kind::ENCRYPTED_EXTENSIONS) => {
                    agreed.transcript.add(&message);
                    let checked = check_extensions(&message);
                    self.stage = Stage::Concluding(agreed);
                    checked?;
                }
                (Stage::Concluding(agreed), kind::FINISHED) => {
                    return self.finish(agreed, &message, out).map(Some);
                }
                (stage, _) => {
                    self.stage = stage;
                    return Err(UNEXPECTED);
                }
            }
        }
    }

    fn answered(
        &self,
        greeted: Greeted,
        message: &[u8],
        random: &dyn SecureRandom,
        out: &mut Vec<u8>,
    ) -> Result<Stage, TlsError> {
        match ServerHello::parse(message)? {
            ServerHello::Retry { .. } if greeted.before.is_some() => Err(UNEXPECTED),
            ServerHello::Retry { hash, group, cookie } => {
                let group = Group::of(group).ok_or(ILLEGAL)?;
                if group == greeted.share.group || self.offers.iter().any(|psk| psk.hash != hash) {
                    return Err(ILLEGAL);
                }
                let before = Transcript::retried(hash, &greeted.hello, message);
                let share = Share::new(group, random)?;
                let (random, offers) = (&self.random, &self.offers);
                let opening = Opening { random, offers, share: &share, cookie };
                let hello = opening.compose(|_| before.clone())?;
                put_record(out, content::HANDSHAKE, &hello);
                let before = Some(before);
                Ok(Stage::Greeted(Box::new(Greeted { share, hello, before })))
            }
            ServerHello::Goes { hash, group, share, key } => {
                let psk = self.offers.get(usize::from(key)).ok_or(ILLEGAL)?;
                let mut transcript = greeted.before.unwrap_or_else(|| Transcript::new(hash));
                if psk.hash != hash
                    || transcript.hash() != hash
                    || group != greeted.share.group as u16
                {
                    return Err(ILLEGAL);
                }
                transcript.add(&greeted.hello);
                transcript.add(message);
                let agreed = greeted.share.agree(share)?;
                let secrets = Stem::of_key(hash, &psk.secret).with_agreed(&agreed)?;
                listening(&secrets, transcript, psk.identity.clone())
            }
        }
    }

    fn finish(
        &mut self,
        mut agreed: Box<Agreed>,
        said: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Secured, TlsError> {
        let hash = agreed.transcript.hash();
        let transcript = agreed.transcript.value();
        if hmac::verify(&agreed.expected, transcript.as_ref(), &said[4..]).is_err() {
            self.stage = Stage::Concluding(agreed);
            return Err(TlsError::Breach(Alert::DecryptError));
        }
        agreed.transcript.add(said);
        let transcript = agreed.transcript.value();
        let proof = hmac::sign(&agreed.own, transcript.as_ref());
        let finished = message(kind::FINISHED, |out| out.extend(proof.as_ref()));
        put_sealed(out, &mut agreed.writer, content::HANDSHAKE, &finished)?;
        let half = |label| Half::new(hash, agreed.master.derive(label, transcript.as_ref())?);
        let (writer, reader) = (half("c ap traffic")?, half("s ap traffic")?);
        let rest = std::mem::take(&mut self.inbox).into_rest()?;
        let channel = Box::new(Channel::new(Side::Client, reader, writer, &rest));
        Ok(Secured { channel, identity: agreed.identity })
    }
}

/// A server may say which groups it likes better, and nothing else.
fn check_extensions(message: &[u8]) -> Result<(), TlsError> {
    let mut body = Reader(&message[4..]);
    let mut list = body.long()?;
    body.end()?;
    while !list.is_empty() {
        if list.u16()? != extension::SUPPORTED_GROUPS {
            return Err(TlsError::Breach(Alert::UnsupportedExtension));
        }
        list.long()?;
    }
    Ok(())
}

fn listening(secrets: &Stem, transcript: Transcript, identity: String) -> Result<Stage, TlsError> {
    let (hash, said) = (transcript.hash(), transcript.value());
    let client = secrets.derive("c hs traffic", said.as_ref())?;
    let server = secrets.derive("s hs traffic", said.as_ref())?;
    let (expected, own) = (finished_key(hash, &server)?, finished_key(hash, &client)?);
    let (reader, writer) = (Half::new(hash, server)?, Half::new(hash, client)?);
    let master = secrets.master()?;
    let agreed = Agreed { reader, writer, expected, own, master, transcript, identity };
    Ok(Stage::Listening(Box::new(agreed)))
}
