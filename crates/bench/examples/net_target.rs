//! Serves the two drives of `strake bench run net`, null and in memory, on CPU 1, until standard input ends: for hosts
//! of others. Prints a line of JSON with its addresses and the host it lets in.
//!
//! Usage: `net_target [ADDRESS:PORT]`, by default a free port of 127.0.0.1.

use std::io::Read;

use strake_bench::net::{Bench, HOST};

fn main() -> Result<(), String> {
    let listen = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listen = listen.parse().map_err(|error| format!("{listen}: {error}"))?;
    let bench = Bench::new(listen)?;
    let [null, ram] = bench.addresses();
    println!("{{\"null\": \"{null}\", \"ram\": \"{ram}\", \"host\": \"{HOST}\"}}");
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    ended.map(drop).map_err(|error| error.to_string())
}
