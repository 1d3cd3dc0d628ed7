//! Delivery by e-mail.

use std::fmt;

use lettre::address::Envelope;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use percent_encoding::percent_decode_str;
use strake_api::v1::ListEventsRequest;
use strake_wording::{command, shown};
use url::Url;

use crate::error::Failure;
use crate::net::{self, Bounded};
use crate::notice::Message;
use crate::severity::Severity;
use crate::text::{cut, one_line, utc};
use crate::way::Setting;

/// Maximum number of bytes of a subject line, as a list of mails shows it.
const SUBJECT_BYTES_MAX: usize = 200;

/// The encryption of mail on the way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    /// Encrypted from the first byte (RFC 8314): `smtps`.
    Always,
    /// Encrypted with STARTTLS if the server offers it (RFC 3207): `smtp`.
    Offered,
}

/// A mail server.
pub(crate) struct Server {
    encryption: Encryption,
    host: String,
    port: u16,
    credentials: Option<Credentials>,
}

/// A checked recipient, sender and server.
#[derive(Debug)]
pub(crate) struct Mail {
    pub to: Mailbox,
    from: Mailbox,
    pub server: Server,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.masked()).finish()
    }
}

impl Server {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = "the mail server is an address such as smtp://mail.example.org:25 or \
                   smtps://user:password@mail.example.org";
        let url = Url::parse(text).map_err(|e| format!("{bad}: {e}"))?;
        let (encryption, usual) = match url.scheme() {
            "smtp" => (Encryption::Offered, 25),
            "smtps" => (Encryption::Always, 465),
            other => return Err(format!("{bad}; the scheme {other:?} is not smtp or smtps")),
        };
        let rest =
            !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
        let host = url.host_str().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
        if rest || host.is_empty() || !host.chars().all(plain) {
            return Err(format!("{bad}; give only a host and a port"));
        }
        let port = url.port().unwrap_or(usual);
        if port == 0 {
            return Err(format!("{bad}; port 0 is not a valid destination"));
        }
        Ok(Self { encryption, host: host.into(), port, credentials: credentials(&url)? })
    }

    /// Returns the address of the server, without credentials.
    pub(crate) fn masked(&self) -> String {
        let scheme = match self.encryption {
            Encryption::Always => "smtps",
            Encryption::Offered => "smtp",
        };
        let user = if self.credentials.is_some() { "***@" } else { "" };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{user}{host}:{}", self.port)
    }
}

fn credentials(url: &Url) -> Result<Option<Credentials>, String> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decode = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
        (!text.chars().any(char::is_control)).then_some(text)
    };
    let pair = (decode(url.username()), decode(url.password().unwrap_or_default()));
    match pair {
        (Some(user), Some(password)) => Ok(Some(Credentials::new(user, password))),
        _ => Err("the user name or password of the mail server is not text".into()),
    }
}

impl Mail {
    pub(crate) fn parse(to: &str, from: &str, server: &str) -> Result<Self, String> {
        Ok(Self {
            to: mailbox("target", to)?,
            from: mailbox("sender", from)?,
            server: Server::parse(server)?,
        })
    }

    /// Makes one attempt.
    pub(crate) async fn tell(&self, message: &Message, setting: &Setting) -> Result<(), Failure> {
        let letter = self.letter(message)?;
        setting.in_time(self.send(&letter, message, setting)).await
    }

    async fn send(
        &self,
        letter: &Letter,
        message: &Message,
        setting: &Setting,
    ) -> Result<(), Failure> {
        let me = ClientId::Domain(host_word(&message.host));
        let mut connection = self.connect(&me, setting).await?;
        if let Some(credentials) = &self.server.credentials {
            connection
                .auth(DEFAULT_MECHANISMS, credentials)
                .await
                .map_err(|e| refused("log in", &e))?;
        }
        let envelope: &Envelope = letter.envelope();
        connection.send(envelope, &letter.formatted()).await.map_err(|e| refused("send", &e))?;
        // The letter is accepted, so an error at the end of the session has no effect.
        let _ = connection.quit().await;
        Ok(())
    }

    async fn connect(
        &self,
        me: &ClientId,
        setting: &Setting,
    ) -> Result<AsyncSmtpConnection, Failure> {
        let Server { encryption, host, port, credentials } = &self.server;
        let (stream, peer) = setting
            .connected(async {
                let stream = net::connect(host, *port).await?;
                let peer = net::peer(&stream)?;
                let stream: Box<dyn net::Stream> = match encryption {
                    Encryption::Always => {
                        Box::new(net::secure(stream, host, &setting.roots).await?)
                    }
                    Encryption::Offered => Box::new(stream),
                };
                Ok((stream, peer))
            })
            .await?;
        let stream = Box::new(Bounded::new(stream, peer));
        let mut connection = AsyncSmtpConnection::connect_with_transport(stream, me)
            .await
            .map_err(|e| refused("greet", &e))?;
        // A connection within this host needs no encryption, and the certificate of a local server is rarely valid.
        let outside = *encryption == Encryption::Offered && !setting.is_inside(peer.ip());
        if outside && connection.can_starttls() {
            let tls = tls(host, setting).map_err(|e| refused("set up TLS", &e))?;
            connection.starttls(tls, me).await.map_err(|e| refused("encrypt", &e))?;
        } else if outside && credentials.is_some() {
            return Err(Failure::lasting(
                "the mail server offers no encryption, and the password is not sent unencrypted; use smtps://, or \
                 omit the user and password",
            ));
        }
        Ok(connection)
    }

    /// Returns the letter for the recipient.
    fn letter(&self, message: &Message) -> Result<Letter, Failure> {
        let event = &message.event;
        let number = event.number;
        let id = format!("<strake-{number}-{}@{}>", event.time_us, host_word(&message.host));
        Letter::builder()
            .from(self.from.clone())
            .to(self.to.clone())
            .subject(subject(message))
            .message_id(Some(id))
            .header(Automatic)
            .header(ContentType::TEXT_PLAIN)
            .body(body(message))
            .map_err(|e| Failure::lasting(format!("the mail cannot be written: {e}")))
    }
}

/// The header that marks the letter as automatic, so that no absence note answers it (RFC 3834, section 5).
#[derive(Clone)]
struct Automatic;

impl Header for Automatic {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_string())
    }
}

fn mailbox(field: &str, text: &str) -> Result<Mailbox, String> {
    if text.chars().any(char::is_control) {
        return Err(format!("the {field} has a line break or another control character in it"));
    }
    text.parse::<Mailbox>().map_err(|e| {
        format!(
            "the {field} {text:?} is not an e-mail address ({e}); it looks like ops@example.org"
        )
    })
}

fn tls(host: &str, setting: &Setting) -> Result<TlsParameters, lettre::transport::smtp::Error> {
    let mut builder = TlsParameters::builder(net::certified(host).to_string());
    for root in &setting.roots {
        builder = builder.add_root_certificate(Certificate::from_der(root.clone())?);
    }
    builder.build_native()
}

/// Codes 5xx are permanent refusals. Codes 4xx and all other errors may be temporary (RFC 5321, section 4.2.1).
fn refused(doing: &str, error: &lettre::transport::smtp::Error) -> Failure {
    let cause = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
    let what = format!("the mail server did not let straked {doing}: {error}{cause}");
    if error.is_permanent() { Failure::lasting(what) } else { Failure::passing(what) }
}

/// Returns the name of the host in a form that is valid in a greeting and in a message identifier.
fn host_word(host: &str) -> String {
    let word: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).collect();
    if word.is_empty() { "localhost".into() } else { word }
}

fn subject(message: &Message) -> String {
    let event = &message.event;
    let severity = Severity::of(event).word();
    let text = format!("[Strake {}] {severity}: {}", message.host, event.what);
    cut(&one_line(&text), SUBJECT_BYTES_MAX)
}

fn body(message: &Message) -> String {
    let event = &message.event;
    let mut text = String::new();
    let next = shown(&event.remedy, &event.next_action);
    let lines = [
        ("What", &event.what),
        ("Why", &event.cause),
        ("Do now", &next),
        ("About", &event.object),
        ("Machine", &message.host),
        ("By", &event.actor),
    ];
    for (name, value) in lines {
        let value = one_line(value);
        if !value.is_empty() {
            text += &format!("{:<9}{value}\r\n", format!("{name}:"));
        }
    }
    text += &format!("{:<9}{}\r\n", "Time:", utc(event.time_us));
    let severity = Severity::of(event).word();
    let kind = one_line(&event.kind);
    let more = command(&ListEventsRequest::default());
    text += &format!("\r\nEvent {} ({kind}, {severity}). More: {more}", event.number);
    text
}
