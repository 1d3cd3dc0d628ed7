//! `strake trace`.

use std::path::PathBuf;

use clap::Args;

/// What `strake trace` prints or sends.
#[derive(Debug, Args)]
pub struct Trace {
    /// Name or UUID of the array.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Show only the slowest request of every second on each data core, and no samples.
    #[arg(long)]
    pub slowest: bool,
    /// Number of requests, those that took longest; 0 selects all recorded requests [default: 20 for the table, all for
    /// --perfetto and --otlp].
    #[arg(long, value_name = "COUNT", conflicts_with = "follow")]
    pub count: Option<usize>,
    /// Print each new record, or send it with --otlp, until the command is interrupted.
    #[arg(long)]
    pub follow: bool,
    /// Write the requests to a new file that ui.perfetto.dev and chrome://tracing open.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "otlp"])]
    pub perfetto: Option<PathBuf>,
    /// Send the requests as spans to an OpenTelemetry collector (OTLP/HTTP with JSON), such as http://localhost:4318.
    /// The path /v1/traces is added if the address does not contain it.
    #[arg(long, value_name = "URL", value_parser = collector)]
    pub otlp: Option<Collector>,
    /// Print times as UTC instead of the time of this host.
    #[arg(long)]
    pub utc: bool,
}

/// Port of OTLP/HTTP (OpenTelemetry Protocol 1.9, "OTLP/HTTP Default Port").
const PORT: u16 = 4318;

/// Path of traces (OpenTelemetry Protocol 1.9, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

/// The address of an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path.
    pub path: String,
}

impl Collector {
    /// Host and port as in an address.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

fn collector(text: &str) -> Result<Collector, String> {
    let wrong = |why: &str| Err(format!("{why}; write an address such as http://localhost:4318"));
    let Ok(address) = text.parse::<hyper::Uri>() else {
        return wrong("it is no address");
    };
    match address.scheme_str() {
        Some("http") => {}
        Some("https") => {
            let why =
                "https is not supported: send to a collector on this host, which forwards with TLS";
            return wrong(why);
        }
        Some(_) | None => return wrong("it does not begin with http://"),
    }
    let Some(host) = address.host().filter(|host| !host.is_empty()) else {
        return wrong("it has no host");
    };
    let authority = address.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return wrong("it contains a user or a password, which would be sent unencrypted");
    }
    let port = match (authority.len() > host.len(), address.port_u16()) {
        (_, Some(port)) if port > 0 => port,
        (false, None) => PORT,
        (_, _) => return wrong("its port is no number from 1 to 65535"),
    };
    if address.query().is_some() {
        return wrong("it contains a query");
    }
    let path = address.path().trim_end_matches('/');
    Ok(Collector {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        path: if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") },
    })
}

#[cfg(test)]
mod tests {
    use super::{Collector, collector};

    #[test]
    fn addresses_of_collectors() {
        let of = |host: &str, port, path: &str| {
            Ok(Collector { host: host.to_owned(), port, path: path.to_owned() })
        };
        assert_eq!(collector("http://localhost"), of("localhost", 4318, "/v1/traces"));
        assert_eq!(collector("http://10.0.0.1:80/"), of("10.0.0.1", 80, "/v1/traces"));
        assert_eq!(collector("http://[::1]:4318/otlp/"), of("::1", 4318, "/otlp/v1/traces"));
        assert_eq!(collector("http://a/v1/traces"), of("a", 4318, "/v1/traces"));
        assert_eq!(collector("http://[::1]").map(|c| c.authority()), Ok("[::1]:4318".to_owned()));
        let wrong = [
            "https://a",
            "localhost:4318",
            "ftp://a",
            "http://",
            "http://u:p@a",
            "http://a:99999",
            "http://a:abc",
            "http://a:0",
            "http://a:",
            "http://a:1?x=1",
            "http://a/v1/traces?x=1",
            "a b",
            "",
        ];
        for text in wrong {
            let error = collector(text).expect_err(text);
            assert!(error.contains("http://localhost:4318"), "{text}: {error}");
        }
    }
}
