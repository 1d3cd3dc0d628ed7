//! Sending spans to an OpenTelemetry collector.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
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

/// Sends `spans` to the collector.
///
/// # Errors
/// If the collector does not answer in time, or does not take all spans.
pub async fn send(collector: &Collector, spans: &Value) -> Result<(), CliError> {
    let refused = |why: String| {
        CliError::remote(format!(
            "cannot send to the collector at {}: {why}",
            collector.authority()
        ))
    };
    match tokio::time::timeout(LIMIT, post(collector, spans.to_string())).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(refused(why)),
        Err(_) => Err(refused(format!("no answer within {} s", LIMIT.as_secs()))),
    }
}

async fn post(collector: &Collector, body: String) -> Result<(), String> {
    let address = (collector.host.as_str(), collector.port);
    let stream = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // The set ends the task of the connection.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::post(&collector.path)
        .header(HOST, collector.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("strake/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = response.status();
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let answer = answer.map(|body| body.to_bytes()).unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer);
    if !status.is_success() {
        let excerpt: String = answer.trim().chars().take(EXCERPT).collect();
        return Err(format!("it answers {status} {excerpt}").trim_end().to_owned());
    }
    match rejected(&answer) {
        Some(why) => Err(why),
        None => Ok(()),
    }
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
    (count > 0).then(|| format!("it rejects {count} spans: {why}"))
}

#[cfg(test)]
mod tests {
    use super::rejected;

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
}
