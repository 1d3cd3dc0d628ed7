//! A mail server that behaves as a test requires, and records what it received.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use openssl::ssl::SslContext;

use super::PATIENCE;
use super::http::Line;
use super::tls::accept;

/// The behaviour of the server.
#[derive(Clone, Default)]
pub struct Manner {
    /// Answers to commands, by their first word, instead of the usual ones; `""` is the greeting. An answer without
    /// bytes means silence from then on.
    pub answers: BTreeMap<&'static str, Vec<u8>>,
    /// Additional extensions of the server.
    pub offers: Vec<&'static str>,
    pub tls: Option<(Tls, SslContext)>,
}

/// The start of TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    AtOnce,
    WhenAsked,
}

/// The commands and the mail of one connection.
#[derive(Debug, Default)]
pub struct Said {
    /// The lines before the mail, with the prefix `tls ` if they were encrypted.
    pub commands: Vec<String>,
    /// The received mail, without the final dot.
    pub letter: String,
}

impl Said {
    pub fn has(&self, command: &str) -> bool {
        self.commands.iter().any(|c| c.starts_with(command))
    }
}

pub struct Server {
    pub address: SocketAddr,
    said: Receiver<Said>,
}

impl Server {
    /// Uses `manners` for one connection after the other, and the last manner for all later connections.
    pub fn new(manners: Vec<Manner>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, said) = channel();
        thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let manner = manners[n.min(manners.len() - 1)].clone();
                let (sender, stream) = (sender.clone(), stream.unwrap());
                thread::spawn(move || talk(stream, &manner, &sender));
            }
        });
        Self { address, said }
    }

    pub fn url(&self, scheme: &str, user: &str) -> String {
        format!("{scheme}://{user}{}", self.address)
    }

    /// Returns the next finished session.
    pub fn said(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("nobody finished talking to the mail server")
    }
}

fn talk(stream: TcpStream, manner: &Manner, sender: &Sender<Said>) {
    let mut said = Said::default();
    let then = match &manner.tls {
        Some((Tls::AtOnce, config)) => {
            converse(accept(config, stream), manner, Talk::Encrypted, &mut said)
        }
        Some((Tls::WhenAsked, config)) => {
            let clear = stream.try_clone().unwrap();
            match converse(clear, manner, Talk::Clear, &mut said) {
                Then::Encrypt => {
                    converse(accept(config, stream), manner, Talk::AfterStarttls, &mut said)
                }
                then => then,
            }
        }
        None => converse(stream, manner, Talk::Clear, &mut said),
    };
    let _ = sender.send(said);
    if let Then::Listen(mut line) = then {
        let _ = io::copy(&mut line, &mut io::sink());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Talk {
    Clear,
    Encrypted,
    AfterStarttls,
}

enum Then {
    Close,
    Encrypt,
    /// Sends nothing more, and waits until the other side closes.
    Listen(Box<dyn Line>),
}

fn converse(line: impl Line + 'static, manner: &Manner, talk: Talk, said: &mut Said) -> Then {
    let mut line = BufReader::with_capacity(1, line);
    if talk != Talk::AfterStarttls && send(&mut line, manner, "", b"220 ready\r\n").is_none() {
        return Then::Close;
    }
    loop {
        let mut text = String::new();
        if line.read_line(&mut text).unwrap_or(0) == 0 {
            return Then::Close;
        }
        let text = text.trim_end().to_string();
        let word = text.split(' ').next().unwrap().to_string();
        let mark = if talk == Talk::Clear { "" } else { "tls " };
        said.commands.push(format!("{mark}{text}"));
        if manner.answers.get(word.as_str()).is_some_and(Vec::is_empty) {
            return Then::Listen(Box::new(line.into_inner()));
        }
        let usual = usual(&word, manner, talk);
        if send(&mut line, manner, &word, &usual).is_none() {
            return Then::Close;
        }
        match word.as_str() {
            "STARTTLS" => return Then::Encrypt,
            "DATA" if !manner.answers.contains_key("DATA") => {
                said.letter = letter(&mut line);
                send(&mut line, manner, ".", b"250 taken\r\n");
            }
            _ => {}
        }
    }
}

fn usual(word: &str, manner: &Manner, talk: Talk) -> Vec<u8> {
    match word {
        "EHLO" => {
            let mut offers = manner.offers.clone();
            if talk == Talk::Clear && manner.tls.is_some() {
                offers.push("STARTTLS");
            }
            let mut text = String::new();
            for offer in offers {
                text += &format!("250-{offer}\r\n");
            }
            format!("250-mail.example.org\r\n{text}250 8BITMIME\r\n").into_bytes()
        }
        "DATA" => b"354 go on\r\n".to_vec(),
        "STARTTLS" => b"220 go on\r\n".to_vec(),
        "AUTH" => b"235 welcome\r\n".to_vec(),
        "QUIT" => b"221 bye\r\n".to_vec(),
        _ => b"250 fine\r\n".to_vec(),
    }
}

fn send(line: &mut BufReader<impl Line>, manner: &Manner, word: &str, usual: &[u8]) -> Option<()> {
    let bytes = manner.answers.get(word).map_or(usual, Vec::as_slice);
    line.get_mut().write_all(bytes).and_then(|()| line.get_mut().flush()).ok()
}

fn letter(line: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n.\r\n") && line.read(&mut one).unwrap_or(0) == 1 {
        bytes.push(one[0]);
    }
    String::from_utf8_lossy(bytes.strip_suffix(b".\r\n").unwrap_or(&bytes)).into_owned()
}
