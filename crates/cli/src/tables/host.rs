//! Hosts that have to prove who they are, or to use TLS.

use super::clock::Clock;
use super::grid::{Column, Grid};
use super::sentence;
use strake_api::v1::{Host, HostChange, ListHostsResponse};

/// Every host, one a line.
#[must_use]
pub fn list(answer: &ListHostsResponse, clock: &Clock, width: usize) -> String {
    if answer.hosts.is_empty() {
        return sentence(
            "No hosts: hosts that exports allow are identified only by their names.",
            width,
        ) + &sentence("Add one: strake host add NQN --secret-file FILE", width);
    }
    let mut grid = Grid::new(&[
        Column::Path("host"),
        Column::Word("state"),
        Column::Word("proves itself"),
        Column::Word("target too"),
        Column::Word("TLS"),
        Column::Word("old keys until"),
    ]);
    for host in &answer.hosts {
        let word = |is| if is { "yes" } else { "no" }.to_owned();
        let (proof, too, tls) = (word(host.proof), word(host.bidirectional), word(host.tls));
        let old = match old_until_us(host) {
            0 => "-".to_owned(),
            until_us => clock.show(until_us),
        };
        grid.row([host.nqn.clone(), host.state.clone(), proof, too, tls, old]);
    }
    grid.render(width)
}

/// The time at which the last replaced secret or key of a host is no longer accepted; 0 if none is accepted.
fn old_until_us(host: &Host) -> u64 {
    host.old_secret_until_us.max(host.old_tls_key_until_us)
}

/// What a command did to a host.
#[must_use]
pub fn change(change: &HostChange, width: usize) -> String {
    let name = change.host.as_ref().map_or("", |host| &host.nqn);
    let done = sentence(&format!("host {name}: {}", change.result), width);
    let made = [
        ("Its secret", &change.secret),
        ("The secret of the target", &change.controller_secret),
        ("Its TLS key", &change.tls_key),
    ];
    // Each in a line of its own that is never broken: it is copied into a file.
    let tell = |(what, key): &(&str, &String)| {
        sentence(&format!("{what}, which is not shown again:"), width) + key + "\n"
    };
    done + &made.iter().filter(|(_, key)| !key.is_empty()).map(tell).collect::<String>()
}
