//! A web server that gives the answers of a test, and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::PATIENCE;

/// The action of the server on one connection, after it has read the request.
#[derive(Clone)]
pub enum Say {
    /// Sends these bytes and closes.
    This(Vec<u8>),
    /// Sends these bytes and then nothing, without closing.
    ThenNothing(Vec<u8>),
    /// Sends these bytes repeatedly until the other side closes.
    ForEver(&'static [u8], &'static [u8]),
}

impl Say {
    pub fn status(line: &str) -> Self {
        Self::This(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").into_bytes())
    }
}

/// A received request.
#[derive(Debug)]
pub struct Asked {
    pub line: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|h| h.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A server that continues answering until the test ends.
pub struct Server {
    pub address: SocketAddr,
    asked: Receiver<Asked>,
}

/// A connection for reads and writes.
pub trait Line: Read + Write + Send {}
impl<T: Read + Write + Send> Line for T {}

impl Server {
    /// Answers the first connection with the first of `script` and so on; the last applies to all later connections.
    pub fn new(script: Vec<Say>) -> Self {
        Self::with(script, |stream| Some(Box::new(stream)))
    }

    /// As `new`, but `wrap` replaces each connection, for example by one with TLS.
    pub fn with(
        script: Vec<Say>,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Line>> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = channel();
        thread::spawn(move || {
            let mut open = Vec::new();
            for (n, stream) in listener.incoming().enumerate() {
                let say = script[n.min(script.len() - 1)].clone();
                let Some(line) = stream.ok().and_then(&wrap) else { continue };
                let Some(line) = serve(line, say, &sender) else { continue };
                open.push(line);
            }
        });
        Self { address, asked }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn asked(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("the server was not asked")
    }

    pub fn was_asked(&self) -> bool {
        self.asked.try_recv().is_ok()
    }
}

/// Returns the connection if it must stay open.
fn serve(line: Box<dyn Line>, say: Say, sender: &Sender<Asked>) -> Option<Box<dyn Line>> {
    let mut reader = BufReader::new(line);
    let asked = read(&mut reader)?;
    let mut line = reader.into_inner();
    match &say {
        Say::This(bytes) | Say::ThenNothing(bytes) => {
            let _ = line.write_all(bytes).and_then(|()| line.flush());
        }
        Say::ForEver(first, again) => {
            let _ = sender.send(asked);
            let _ = line.write_all(first);
            while line.write_all(again).is_ok() {}
            return None;
        }
    }
    let _ = sender.send(asked);
    matches!(say, Say::ThenNothing(_)).then_some(line)
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_string()),
        }
    }
    let length = lines.iter().find_map(|h| h.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = lines.remove(0);
    Some(Asked { line, headers: lines, body })
}
