//! Delivery by HTTP: one POST, and the status of the answer.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::task::JoinSet;
use url::{Host, Url};

use crate::error::Failure;
use crate::limits::{ANSWER_BYTES_MAX, EXCERPT_BYTES};
use crate::net::{self, Bounded};
use crate::notice::Message;
use crate::text::{cut, one_line};
use crate::way::Setting;

/// The header with the number of the event. A receiver can use it to drop duplicates, because an attempt whose answer
/// was lost is repeated. A test event has number 0.
pub const EVENT_HEADER: &str = "strake-event";

/// A checked `http://` or `https://` address.
pub(crate) struct Webhook {
    url: Url,
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.masked()).finish()
    }
}

impl Webhook {
    pub(crate) fn parse(target: &str) -> Result<Self, String> {
        let bad = "the target of a webhook is an address such as https://example.org/alerts";
        if target.chars().any(|c| c.is_control() || c == ' ') {
            return Err(format!("{bad}, without spaces"));
        }
        let mut url = Url::parse(target).map_err(|e| format!("{bad}: {e}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{bad}; the scheme {:?} is not http or https", url.scheme()));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_string(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(format!("{bad}; it names no host")),
        };
        let port = url.port_or_known_default().ok_or_else(|| format!("{bad}; it has no port"))?;
        if port == 0 {
            return Err(format!("{bad}; port 0 is not a valid destination"));
        }
        let authorization = authorization(&url)?;
        // From here on, the address contains no credentials.
        let cleared = url.set_username("").is_ok() && url.set_password(None).is_ok();
        debug_assert!(cleared, "an address with a host can have its credentials removed");
        url.set_fragment(None);
        Ok(Self { url, host, port, authorization })
    }

    /// Returns the scheme, host and port. The rest is omitted, because the paths of many services contain the secret.
    pub(crate) fn masked(&self) -> String {
        let user = if self.authorization.is_some() { "***@" } else { "" };
        let rest = if self.url.path() == "/" && self.url.query().is_none() { "/" } else { "/***" };
        format!("{}://{user}{}{rest}", self.url.scheme(), self.authority())
    }

    fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"))
    }

    /// Makes one attempt.
    pub(crate) async fn tell(&self, message: &Message, setting: &Setting) -> Result<(), Failure> {
        let response = setting.in_time(self.post(message, setting)).await?;
        judge(response, setting).await
    }

    async fn post(&self, message: &Message, setting: &Setting) -> Result<Answer, Failure> {
        let stream = setting.connected(self.connect(setting)).await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(ANSWER_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        // The set ends the task of the connection when the answer is dropped, with any outcome of the attempt.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let request = self.request(message)?;
        let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
        Ok(Answer { response, _driver: driver })
    }

    async fn connect(&self, setting: &Setting) -> Result<Bounded, Failure> {
        let stream = net::connect(&self.host, self.port).await?;
        let peer = net::peer(&stream)?;
        let stream: Box<dyn net::Stream> = match self.url.scheme() {
            "https" => Box::new(net::secure(stream, &self.host, &setting.roots).await?),
            _ if self.authorization.is_some() && !setting.is_inside(peer.ip()) => {
                return Err(Failure::lasting(
                    "the user and password of a webhook are not sent unencrypted; use https://, or omit them",
                ));
            }
            _ => Box::new(stream),
        };
        Ok(Bounded::new(stream, peer))
    }

    fn request(&self, message: &Message) -> Result<Request<Full<Bytes>>, Failure> {
        let path = match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_string(),
        };
        let mut request = Request::post(path)
            .header(HOST, self.authority())
            .header(USER_AGENT, concat!("strake/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close")
            .header(EVENT_HEADER, message.event.number);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request
            .body(Full::new(Bytes::from(message.json())))
            .map_err(|_| Failure::lasting("the address cannot be put into a request"))
    }
}

/// An answer, and the task that reads it.
struct Answer {
    response: Response<Incoming>,
    _driver: JoinSet<hyper::Result<()>>,
}

/// Returns the credentials of an address in the form of RFC 7617.
fn authorization(url: &Url) -> Result<Option<HeaderValue>, String> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    if pair.contains(&b':') {
        return Err("the user name of a webhook cannot contain a colon".into());
    }
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))
        .map_err(|_| "the credentials cannot be put into a header".to_string())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn broken(error: &hyper::Error) -> Failure {
    let cause = std::error::Error::source(error).map(|e| format!(": {e}")).unwrap_or_default();
    Failure::passing(format!("no HTTP answer: {error}{cause}"))
}

/// Evaluates the answer. A redirect is not followed: events are sent only to the address that the operator gave.
async fn judge(answer: Answer, setting: &Setting) -> Result<(), Failure> {
    let status = answer.response.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(Failure::lasting(format!(
            "it answered {} with a redirect, which is not followed; remove the hook, and add it with its new address",
            status.as_u16()
        )));
    }
    let again = status.is_server_error();
    // The status determines the result; a missing body does not change it.
    let body = excerpt(answer.response.into_body());
    let said = setting.connected(async { Ok(body.await) }).await.unwrap_or_default();
    let what = format!("it answered {}{said}", named(status));
    Err(if again { Failure::passing(what) } else { Failure::lasting(what) })
}

fn named(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// Returns the beginning of a body, for the operator.
async fn excerpt(mut body: Incoming) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => {
                bytes.extend(frame.data_ref().into_iter().flatten().take(EXCERPT_BYTES))
            }
            Some(Err(_)) | None => break,
        }
    }
    let text = cut(&one_line(&String::from_utf8_lossy(&bytes)), EXCERPT_BYTES);
    if text.is_empty() { text } else { format!(": {text}") }
}
