//! OpenSSL's own program on the other side, as a client and as a server.
//!
//! Where the program is not installed the tests say so and pass.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use strake_nvme_auth::{Psk, PskHash};
use strake_tls::{Channel, Client, KnownKeys, Secured, Server, TlsError};

const IDENTITY: &str = "NVMe0R01 nqn.2014-08.org.host nqn.2014-08.org.subsystem";
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// What `-psk` means: SHA-256.
fn psk() -> Psk {
    let secret = (0..32).collect::<Vec<u8>>().into();
    Psk { identity: IDENTITY.into(), hash: PskHash::Sha256, secret }
}

/// A key for SHA-384, and the session in which OpenSSL takes one: its version, TLS 1.3, the suite, no name, the key.
fn long_psk() -> (Psk, String) {
    let secret: Vec<u8> = (100..148).collect();
    let mut der = vec![0x30, 66, 2, 1, 1, 2, 2, 3, 4, 4, 2, 0x13, 2, 4, 0, 4, 48];
    der.extend(&secret);
    der[1] = (der.len() - 2) as u8;
    let encoded = base64(&der);
    let pem = format!(
        "-----BEGIN SSL SESSION PARAMETERS-----\n{encoded}-----END SSL SESSION PARAMETERS-----\n"
    );
    (Psk { identity: IDENTITY.into(), hash: PskHash::Sha384, secret: secret.into() }, pem)
}

/// Base64 in lines of 64, by the same program.
fn base64(bytes: &[u8]) -> String {
    let mut child = Command::new("openssl")
        .arg("base64")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("base64")
}

/// Says which test is left out and why. Straight to standard error: what a test prints is shown only when it fails.
fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Perhaps no process is reading.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        skip("openssl is not installed");
    }
    found
}

struct Knows(Psk);

impl KnownKeys for Knows {
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk> {
        let Psk { identity: known, hash, secret } = &self.0;
        let psk = Psk { identity: known.clone(), hash: *hash, secret: secret.clone() };
        if identity == known.as_bytes() { vec![psk] } else { Vec::new() }
    }
}

/// Our end of a connection that is waited for.
struct End {
    stream: TcpStream,
    channel: Channel,
}

impl End {
    fn receive(&mut self, count: usize) -> String {
        let mut data = vec![0; count];
        self.channel.begin_turn();
        let got = self.channel.receive(&mut [IoSliceMut::new(&mut data)], |room| {
            self.stream.read(room).map_err(drop)
        });
        assert_eq!(got, Ok(count));
        String::from_utf8(data).expect("text")
    }

    fn send(&mut self, text: &str) {
        let sent = self
            .channel
            .send(&[IoSlice::new(text.as_bytes())], |bytes| self.stream.write(bytes).map_err(drop));
        assert_eq!(sent, Ok(text.len()));
    }
}

/// Talks until there is a channel, or an error that was reported to the other side.
fn shake(
    mut stream: TcpStream,
    mut out: Vec<u8>,
    mut step: impl FnMut(&[u8], &mut Vec<u8>) -> Result<Option<Secured>, TlsError>,
) -> Result<End, TlsError> {
    let mut room = [0; 4096];
    loop {
        stream.write_all(&out).expect("it reads");
        out.clear();
        let count = stream.read(&mut room).expect("it writes");
        assert_ne!(count, 0, "it hangs up");
        let result = step(&room[..count], &mut out);
        if let Ok(None) = result {
            continue;
        }
        stream.write_all(&out).expect("it reads");
        return result.map(|secured| End { stream, channel: *secured.expect("a channel").channel });
    }
}

/// `openssl s_client`, and our end of its connection.
struct Visitor {
    child: Child,
    stdin: ChildStdin,
    stderr: BufReader<ChildStderr>,
    end: Result<End, TlsError>,
}

fn visit(known: Psk, args: &[&str]) -> Visitor {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-tls1_3", "-psk_identity", IDENTITY, "-connect", &address])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    let (stream, _) = listener.accept().expect("it connects");
    let (mut server, known) = (Server::default(), Knows(known));
    let end = shake(stream, Vec::new(), |bytes, out| server.step(bytes, &known, out));
    let stdin = child.stdin.take().expect("a pipe");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    Visitor { child, stdin, stderr, end }
}

impl Visitor {
    /// Lines go both ways.
    fn talk(mut self) -> Self {
        let end = self.end.as_mut().expect("a channel");
        writeln!(self.stdin, "from openssl").expect("it reads");
        assert_eq!(end.receive(13), "from openssl\n");
        end.send("to openssl\n");
        self
    }

    /// What it printed until the connection ended.
    fn leave(mut self) -> String {
        drop(self.end);
        drop(self.stdin);
        let mut printed = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
        self.child.wait().expect("it ends");
        printed
    }
}

#[test]
fn openssl_connects_to_us_with_every_group() {
    if !has_openssl() {
        return;
    }
    // Those behind P-521, of which OpenSSL sends a share, are asked for with a retry.
    for groups in ["X25519", "P-256", "P-384", "ffdhe3072", "P-521:P-384", "P-521:ffdhe3072"] {
        let visitor = visit(psk(), &["-psk", KEY, "-groups", groups]);
        let printed = visitor.talk().leave();
        assert!(printed.contains("to openssl"), "{groups}: {printed}");
        assert!(printed.contains("TLS_AES_128_GCM_SHA256"), "{groups}: {printed}");
    }
}

#[test]
fn openssl_uses_the_stronger_suite_with_us() {
    if !has_openssl() {
        return;
    }
    let (known, session) = long_psk();
    let file = std::env::temp_dir().join(format!("strake-psk-client-{}", std::process::id()));
    std::fs::write(&file, session).expect("a file");
    let name = file.to_str().expect("a name").to_owned();
    let printed = visit(known, &["-psk_session", &name]).talk().leave();
    std::fs::remove_file(&file).expect("it is there");
    assert!(printed.contains("TLS_AES_256_GCM_SHA384"), "{printed}");
}

#[test]
fn openssl_with_another_key_is_refused() {
    if !has_openssl() {
        return;
    }
    let visitor = visit(psk(), &["-psk", &KEY.replace("1f", "2f")]);
    assert_eq!(
        visitor.end.as_ref().err(),
        Some(&TlsError::Breach(strake_tls::Alert::DecryptError))
    );
    visitor.leave();
}

#[test]
fn openssl_changes_its_keys_and_has_us_change_ours() {
    if !has_openssl() {
        return;
    }
    let mut visitor = visit(psk(), &["-psk", KEY]).talk();
    // "K" on a line of its own: other keys for both directions.
    writeln!(visitor.stdin, "K").expect("it reads");
    let mut line = String::new();
    while !line.starts_with("KEYUPDATE") {
        line.clear();
        assert_ne!(visitor.stderr.read_line(&mut line).expect("text"), 0, "it ends too early");
    }
    let end = visitor.end.as_mut().expect("a channel");
    writeln!(visitor.stdin, "with new keys").expect("it reads");
    assert_eq!(end.receive(14), "with new keys\n");
    end.send("so have we\n");
    let printed = visitor.leave();
    assert!(printed.contains("so have we"), "{printed}");
}

/// Connects to `openssl s_server`, which sends every line back reversed.
fn call(known: Psk, args: &[&str]) -> Result<(), TlsError> {
    // A port that was free a moment ago; no other test looks for one on this address.
    let address = "127.0.83.1:0";
    let free = TcpListener::bind(address).and_then(|l| l.local_addr()).expect("a port");
    let mut child = Command::new("openssl")
        .args(["s_server", "-tls1_3", "-nocert", "-rev", "-psk_identity", IDENTITY])
        .args(["-accept", &free.to_string()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl starts");
    // It says ACCEPT once it listens.
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("ACCEPT") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).expect("text"), 0, "it does not listen");
    }
    let stream = TcpStream::connect(free).expect("it listens");
    let mut out = Vec::new();
    let mut client = Client::begin(&known, &mut out).expect("random bytes");
    let end = shake(stream, out, |bytes, out| client.step(bytes, out));
    let end = end.map(|mut end| {
        end.send("strake\n");
        assert_eq!(end.receive(7), "ekarts\n");
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    end
}

#[test]
fn we_connect_to_openssl_also_when_it_wants_another_group() {
    if !has_openssl() {
        return;
    }
    for groups in ["X25519", "P-256", "P-384", "ffdhe3072"] {
        assert_eq!(call(psk(), &["-psk", KEY, "-groups", groups]), Ok(()), "{groups}");
    }
    let (known, session) = long_psk();
    let file = std::env::temp_dir().join(format!("strake-psk-server-{}", std::process::id()));
    std::fs::write(&file, session).expect("a file");
    let name = file.to_str().expect("a name").to_owned();
    assert_eq!(call(known, &["-psk_session", &name]), Ok(()));
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn openssl_that_has_another_key_refuses_us() {
    if !has_openssl() {
        return;
    }
    let refused = call(psk(), &["-psk", &KEY.replace("1f", "2f")]);
    assert!(matches!(refused, Err(TlsError::PeerAlert(_))), "{refused:?}");
}
