//! Sending spans to an OpenTelemetry collector.

use std::fmt::Display;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::args::trace::Collector;
use crate::error::CliError;

/// The time for one request to a collector.
const LIMIT: Duration = Duration::from_secs(10);

/// More of an answer is not read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Characters of an answer in an error.
const EXCERPT: usize = 200;

/// Why a collector did not take spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It may take them later.
    Temporary(String),
    /// It will not take them.
    Final(String),
}

impl Refusal {
    fn temporary(error: impl Display) -> Self {
        Self::Temporary(error.to_string())
    }

    /// The error of a command that sends to `collector`.
    #[must_use]
    pub fn error(&self, collector: &Collector) -> CliError {
        let (Self::Temporary(why) | Self::Final(why)) = self;
        CliError::remote(format!(
            "cannot send to the collector at {}: {why}",
            collector.authority()
        ))
    }
}

/// Sends `spans` to the collector.
///
/// # Errors
/// If the collector does not answer in time, or does not take all spans.
pub async fn send(collector: &Collector, spans: &Value) -> Result<(), Refusal> {
    match tokio::time::timeout(LIMIT, post(collector, spans.to_string())).await {
        Ok(answer) => answer,
        Err(_) => Err(Refusal::Temporary(format!("no answer within {} s", LIMIT.as_secs()))),
    }
}

async fn post(collector: &Collector, body: String) -> Result<(), Refusal> {
    let address = (collector.host.as_str(), collector.port);
    let stream = TcpStream::connect(address).await.map_err(Refusal::temporary)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(Refusal::temporary)?;
    // The set ends the task of the connection.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::post(&collector.path)
        .header(HOST, collector.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("strake/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| Refusal::Final(e.to_string()))?;
    let response = sender.send_request(request).await.map_err(Refusal::temporary)?;
    let status = response.status();
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let answer =
        answer.map_err(|e| Refusal::Final(format!("it answers {status}, and then: {e}")))?;
    let answer = answer.to_bytes();
    let answer = String::from_utf8_lossy(&answer);
    judge(status, &answer)
}

/// Whether an answer means that all spans were taken (OpenTelemetry Protocol 1.9, "OTLP/HTTP Response").
fn judge(status: StatusCode, answer: &str) -> Result<(), Refusal> {
    if status.is_success() {
        return rejected(answer).map_or(Ok(()), |why| Err(Refusal::Final(why)));
    }
    let why = format!("it answers {status} {}", excerpt(answer)).trim_end().to_owned();
    Err(match status.as_u16() {
        429 | 502 | 503 | 504 => Refusal::Temporary(why),
        _ => Refusal::Final(why),
    })
}

fn excerpt(text: &str) -> String {
    text.trim().chars().take(EXCERPT).collect()
}

/// The reason if the collector has rejected spans (OpenTelemetry Protocol 1.9, "Partial Success").
fn rejected(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let count = match partial.get("rejectedSpans")? {
        Value::String(count) => count.parse().unwrap_or(0),
        count => count.as_u64().unwrap_or(0),
    };
    let why = partial.get("errorMessage").and_then(Value::as_str).unwrap_or("it gives no reason");
    (count > 0).then(|| format!("it rejects {count} spans: {}", excerpt(why)))
}

#[cfg(test)]
mod tests {
    use super::{EXCERPT, Refusal, judge, rejected};
    use hyper::StatusCode;

    #[test]
    fn an_answer_may_reject_spans() {
        assert_eq!(rejected(""), None);
        assert_eq!(rejected("{}"), None);
        assert_eq!(rejected(r#"{"partialSuccess":{}}"#), None);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":"0"}}"#), None);
        let two = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#;
        assert_eq!(rejected(two).as_deref(), Some("it rejects 2 spans: too old"));
        assert!(rejected(r#"{"partialSuccess":{"rejectedSpans":3}}"#).is_some());
    }

    #[test]
    fn only_some_answers_are_worth_another_attempt() {
        let kind = |code: u16| {
            let status = StatusCode::from_u16(code).expect("a status");
            judge(status, &"x".repeat(1_000))
        };
        assert_eq!(kind(200), Ok(()));
        for code in [429, 502, 503, 504] {
            assert!(matches!(kind(code), Err(Refusal::Temporary(_))), "{code}");
        }
        for code in [301, 400, 404, 500] {
            let Err(Refusal::Final(why)) = kind(code) else { panic!("{code}") };
            assert!(why.len() < EXCERPT + 60, "{why}");
        }
    }
}
