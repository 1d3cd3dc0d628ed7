//! Hosts that have to prove who they are.

use super::grid::{Column, Grid};
use super::sentence;
use strake_api::v1::{Host, HostChange, ListHostsResponse};

/// Every host, one a line.
#[must_use]
pub fn list(answer: &ListHostsResponse, width: usize) -> String {
    if answer.hosts.is_empty() {
        return sentence("No hosts: those that exports allow are believed by their names.", width)
            + &sentence("Add one: strake host add NQN --secret-file FILE", width);
    }
    let mut grid = Grid::new(&[
        Column::Path("host"),
        Column::Word("state"),
        Column::Word("target proves itself"),
    ]);
    for host in &answer.hosts {
        grid.row([host.nqn.clone(), host.state.clone(), proof(host).to_owned()]);
    }
    grid.render(width)
}

const fn proof(host: &Host) -> &'static str {
    if host.bidirectional { "yes" } else { "no" }
}

/// What a command did to a host.
#[must_use]
pub fn change(change: &HostChange, width: usize) -> String {
    let name = change.host.as_ref().map_or("", |host| &host.nqn);
    sentence(&format!("host {name}: {}", change.result), width)
}
