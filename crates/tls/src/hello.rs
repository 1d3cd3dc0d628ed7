//! The two hellos (RFC 8446, sections 4.1 and 4.2).

use crate::error::{Alert, TlsError};
use crate::limits::{EXTENSIONS_MAX, IDENTITIES_MAX};
use crate::reader::{Reader, message, put_long, put_short};
use crate::schedule::{Stem, Transcript};
use crate::share::{GROUPS, Group, Share};
use strake_nvme_auth::{Psk, PskHash};

/// Types of messages.
pub(crate) mod kind {
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const NEW_SESSION_TICKET: u8 = 4;
    pub(crate) const ENCRYPTED_EXTENSIONS: u8 = 8;
    pub(crate) const FINISHED: u8 = 20;
    pub(crate) const KEY_UPDATE: u8 = 24;
}

/// Types of extensions.
pub(crate) mod extension {
    pub(crate) const SUPPORTED_GROUPS: u16 = 10;
    pub(crate) const PRE_SHARED_KEY: u16 = 41;
    pub(crate) const EARLY_DATA: u16 = 42;
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
    pub(crate) const COOKIE: u16 = 44;
    pub(crate) const PSK_KEY_EXCHANGE_MODES: u16 = 45;
    pub(crate) const KEY_SHARE: u16 = 51;
}

/// The version of records and hellos, which means nothing any more.
const LEGACY_VERSION: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
/// A key together with a fresh exchange.
const PSK_DHE_KE: u8 = 1;

pub(crate) const RANDOM_BYTES: usize = 32;

/// The random bytes of a hello that asks for another first hello: the SHA-256 of "HelloRetryRequest".
const RETRY: [u8; RANDOM_BYTES] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const ILLEGAL: TlsError = TlsError::Breach(Alert::IllegalParameter);
const MISSING: TlsError = TlsError::Breach(Alert::MissingExtension);
const VERSION: TlsError = TlsError::Breach(Alert::ProtocolVersion);

pub(crate) const fn suite_of(hash: PskHash) -> u16 {
    match hash {
        PskHash::Sha256 => 0x1301,
        PskHash::Sha384 => 0x1302,
    }
}

/// Numbers of two bytes.
fn numbers(list: Reader<'_>) -> impl Iterator<Item = u16> {
    list.0.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Extensions, each of which is there once at most.
struct Extensions<'a>(Vec<(u16, Reader<'a>)>);

impl<'a> Extensions<'a> {
    fn parse(mut list: Reader<'a>) -> Result<Self, TlsError> {
        let mut found: Vec<(u16, Reader<'a>)> = Vec::new();
        while !list.is_empty() {
            let (kind, body) = (list.u16()?, list.long()?);
            if found.len() == EXTENSIONS_MAX || found.iter().any(|(known, _)| *known == kind) {
                return Err(ILLEGAL);
            }
            found.push((kind, body));
        }
        Ok(Self(found))
    }

    fn get(&self, kind: u16) -> Option<Reader<'a>> {
        self.0.iter().find(|(known, _)| *known == kind).map(|(_, body)| *body)
    }
}

/// An identity that a client offers, with what proves that it knows the key.
pub(crate) struct Offered<'a> {
    pub(crate) identity: &'a [u8],
    pub(crate) binder: &'a [u8],
}

/// What a client says first, as far as it matters here.
pub(crate) struct ClientHello<'a> {
    pub(crate) session: &'a [u8],
    suites: Reader<'a>,
    groups: Reader<'a>,
    shares: Vec<(u16, &'a [u8])>,
    pub(crate) offers: Vec<Offered<'a>>,
    /// The message without its binders, which are made for it.
    pub(crate) unbound: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Reads a whole message, which is of that type.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, TlsError> {
        let mut hello = Reader(&bytes[4..]);
        hello.u16()?;
        hello.take(RANDOM_BYTES)?;
        let session = hello.short()?.0;
        let suites = hello.long()?;
        let compressions = hello.short()?;
        if hello.is_empty() {
            return Err(VERSION);
        }
        let list = hello.long()?;
        hello.end()?;
        let found = Extensions::parse(list)?;
        let versions = found.get(extension::SUPPORTED_VERSIONS).ok_or(VERSION)?.short()?;
        if !numbers(versions).any(|version| version == TLS_1_3) {
            return Err(VERSION);
        }
        // Early data can be repeated by others, and NVMe/TCP has none (TCP, section 3.6.1.6).
        if compressions.0 != [0] || session.len() > 32 || found.get(extension::EARLY_DATA).is_some()
        {
            return Err(ILLEGAL);
        }
        let last = found.0.last().map(|(kind, _)| *kind);
        let mut keys = found.get(extension::PRE_SHARED_KEY).ok_or(MISSING)?;
        if last != Some(extension::PRE_SHARED_KEY) {
            return Err(ILLEGAL);
        }
        let modes = found.get(extension::PSK_KEY_EXCHANGE_MODES).ok_or(MISSING)?.short()?;
        if !modes.0.contains(&PSK_DHE_KE) {
            return Err(TlsError::Breach(Alert::HandshakeFailure));
        }
        let groups = found.get(extension::SUPPORTED_GROUPS).ok_or(MISSING)?.long()?;
        let shares = read_shares(found.get(extension::KEY_SHARE).ok_or(MISSING)?)?;
        let (offers, binders) = read_offers(&mut keys)?;
        let unbound = &bytes[..bytes.len() - binders];
        Ok(Self { session, suites, groups, shares, offers, unbound })
    }

    pub(crate) fn has_suite(&self, hash: PskHash) -> bool {
        numbers(self.suites).any(|suite| suite == suite_of(hash))
    }

    /// The share of the client in the group to be preferred.
    pub(crate) fn share(&self) -> Option<(Group, &'a [u8])> {
        GROUPS.into_iter().find_map(|group| Some((group, self.share_of(group)?)))
    }

    pub(crate) fn share_of(&self, group: Group) -> Option<&'a [u8]> {
        let found = self.shares.iter().find(|(number, _)| *number == group as u16);
        found.map(|(_, share)| *share)
    }

    /// The group to be preferred of those that the client knows.
    pub(crate) fn group(&self) -> Option<Group> {
        GROUPS.into_iter().find(|group| numbers(self.groups).any(|known| known == *group as u16))
    }

    pub(crate) const fn shares(&self) -> usize {
        self.shares.len()
    }
}

fn read_shares(mut body: Reader<'_>) -> Result<Vec<(u16, &[u8])>, TlsError> {
    let mut list = body.long()?;
    let mut shares = Vec::new();
    while !list.is_empty() {
        shares.push((list.u16()?, list.long()?.0));
    }
    Ok(shares)
}

/// Identities with their binders, and how many bytes at the end of the message the binders are.
fn read_offers<'a>(body: &mut Reader<'a>) -> Result<(Vec<Offered<'a>>, usize), TlsError> {
    let mut identities = body.long()?;
    let binders_bytes = body.0.len();
    let mut binders = body.long()?;
    body.end()?;
    let mut offers = Vec::new();
    while !identities.is_empty() {
        let identity = identities.long()?.0;
        // How old a ticket is; these are none.
        identities.take(4)?;
        if binders.is_empty() {
            return Err(ILLEGAL);
        }
        let binder = binders.short()?.0;
        if offers.len() < IDENTITIES_MAX {
            offers.push(Offered { identity, binder });
        }
    }
    if offers.is_empty() || !binders.is_empty() {
        return Err(ILLEGAL);
    }
    Ok((offers, binders_bytes))
}

fn put_extension(out: &mut Vec<u8>, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend(kind.to_be_bytes());
    put_long(out, write);
}

/// What a client says, for the composing of it.
pub(crate) struct Opening<'a> {
    pub(crate) random: &'a [u8; RANDOM_BYTES],
    pub(crate) offers: &'a [Psk],
    pub(crate) share: &'a Share,
    /// What a server that wants another hello has to be shown.
    pub(crate) cookie: &'a [u8],
}

impl Opening<'_> {
    /// The message, with its binders for what was said before it.
    pub(crate) fn compose(
        &self,
        before: impl Fn(PskHash) -> Transcript,
    ) -> Result<Vec<u8>, TlsError> {
        let binders: usize = 2 + self.offers.iter().map(|psk| 1 + psk.hash.bytes()).sum::<usize>();
        let mut hello = message(kind::CLIENT_HELLO, |out| self.put(out));
        let unbound = hello.len() - binders;
        let mut bound = Vec::with_capacity(binders);
        for psk in self.offers {
            let mut transcript = before(psk.hash);
            transcript.add(&hello[..unbound]);
            let binder = Stem::of_key(psk.hash, &psk.secret).binder(&transcript)?;
            put_short(&mut bound, |out| out.extend(binder.as_ref()));
        }
        hello[unbound + 2..].copy_from_slice(&bound);
        Ok(hello)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(LEGACY_VERSION.to_be_bytes());
        out.extend(self.random);
        out.push(0);
        put_long(out, |out| {
            for hash in [PskHash::Sha384, PskHash::Sha256] {
                if self.offers.iter().any(|psk| psk.hash == hash) {
                    out.extend(suite_of(hash).to_be_bytes());
                }
            }
        });
        put_short(out, |out| out.push(0));
        put_long(out, |out| self.put_extensions(out));
    }

    fn put_extensions(&self, out: &mut Vec<u8>) {
        put_extension(out, extension::SUPPORTED_VERSIONS, |out| {
            put_short(out, |out| out.extend(TLS_1_3.to_be_bytes()));
        });
        put_extension(out, extension::SUPPORTED_GROUPS, |out| {
            put_long(out, |out| GROUPS.iter().for_each(|g| out.extend((*g as u16).to_be_bytes())));
        });
        put_extension(out, extension::KEY_SHARE, |out| {
            put_long(out, |out| put_share(out, self.share));
        });
        put_extension(out, extension::PSK_KEY_EXCHANGE_MODES, |out| {
            put_short(out, |out| out.push(PSK_DHE_KE));
        });
        if !self.cookie.is_empty() {
            put_extension(out, extension::COOKIE, |out| {
                put_long(out, |out| out.extend(self.cookie));
            });
        }
        put_extension(out, extension::PRE_SHARED_KEY, |out| self.put_offers(out));
    }

    fn put_offers(&self, out: &mut Vec<u8>) {
        put_long(out, |out| {
            for psk in self.offers {
                put_long(out, |out| out.extend(psk.identity.as_bytes()));
                out.extend([0; 4]);
            }
        });
        put_long(out, |out| {
            for psk in self.offers {
                put_short(out, |out| out.extend(&[0; 48][..psk.hash.bytes()]));
            }
        });
    }
}

fn put_share(out: &mut Vec<u8>, share: &Share) {
    out.extend((share.group as u16).to_be_bytes());
    put_long(out, |out| out.extend(&share.public));
}

/// What a server says first.
pub(crate) enum ServerHello<'a> {
    /// Another first hello is wanted, with a share in this group.
    Retry { hash: PskHash, group: u16, cookie: &'a [u8] },
    /// It goes on.
    Goes { hash: PskHash, group: u16, share: &'a [u8], key: u16 },
}

impl<'a> ServerHello<'a> {
    /// Reads a whole message, which is of that type, and an answer to a hello without a session.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, TlsError> {
        let mut hello = Reader(&bytes[4..]);
        let version = hello.u16()?;
        let random = hello.take(RANDOM_BYTES)?;
        let session = hello.short()?.0;
        let (suite, compression) = (hello.u16()?, hello.u8()?);
        if hello.is_empty() {
            return Err(VERSION);
        }
        let list = hello.long()?;
        hello.end()?;
        let found = Extensions::parse(list)?;
        let mut said = found.get(extension::SUPPORTED_VERSIONS).ok_or(VERSION)?;
        if said.u16()? != TLS_1_3 {
            return Err(VERSION);
        }
        let hash = [PskHash::Sha256, PskHash::Sha384].into_iter().find(|h| suite_of(*h) == suite);
        let hash = hash.ok_or(ILLEGAL)?;
        if version != LEGACY_VERSION || !session.is_empty() || compression != 0 {
            return Err(ILLEGAL);
        }
        let mut share = found.get(extension::KEY_SHARE).ok_or(MISSING)?;
        let group = share.u16()?;
        if random == RETRY {
            share.end()?;
            let cookie = match found.get(extension::COOKIE) {
                Some(mut cookie) => cookie.long()?.0,
                None => &[],
            };
            return Ok(Self::Retry { hash, group, cookie });
        }
        // Without a key there would have to be a certificate, which nobody would look at.
        let no_key = TlsError::Breach(Alert::HandshakeFailure);
        let key = found.get(extension::PRE_SHARED_KEY).ok_or(no_key)?.u16()?;
        if found.0.len() != 3 {
            return Err(TlsError::Breach(Alert::UnsupportedExtension));
        }
        Ok(Self::Goes { hash, group, share: share.long()?.0, key })
    }
}

/// What a server answers with.
pub(crate) struct Reply<'a> {
    pub(crate) random: &'a [u8; RANDOM_BYTES],
    pub(crate) session: &'a [u8],
    pub(crate) hash: PskHash,
    pub(crate) share: &'a Share,
    /// Which of the offered keys is used.
    pub(crate) key: u16,
}

impl Reply<'_> {
    pub(crate) fn compose(&self) -> Vec<u8> {
        let Self { random, session, hash, share, key } = self;
        server_hello(*random, session, *hash, |out| {
            put_extension(out, extension::KEY_SHARE, |out| put_share(out, share));
            put_extension(out, extension::PRE_SHARED_KEY, |out| out.extend(key.to_be_bytes()));
        })
    }
}

/// A request for a hello with a share in this group.
pub(crate) fn retry_request(session: &[u8], hash: PskHash, group: Group) -> Vec<u8> {
    server_hello(&RETRY, session, hash, |out| {
        put_extension(out, extension::KEY_SHARE, |out| out.extend((group as u16).to_be_bytes()));
    })
}

fn server_hello(
    random: &[u8],
    session: &[u8],
    hash: PskHash,
    extensions: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    message(kind::SERVER_HELLO, |out| {
        out.extend(LEGACY_VERSION.to_be_bytes());
        out.extend(random);
        put_short(out, |out| out.extend(session));
        out.extend(suite_of(hash).to_be_bytes());
        out.push(0);
        put_long(out, |out| {
            put_extension(out, extension::SUPPORTED_VERSIONS, |out| {
                out.extend(TLS_1_3.to_be_bytes());
            });
            extensions(out);
        });
    })
}
