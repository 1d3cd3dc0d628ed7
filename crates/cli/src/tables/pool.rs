//! Pools.

use super::grid::{Column, Grid};
use super::{count, field, sentence, size, steps};
use std::fmt::Write as _;
use strake_api::v1::{ListPoolsResponse, Pool, PoolChange};

/// Every pool, one a line.
#[must_use]
pub fn list(answer: &ListPoolsResponse, width: usize) -> String {
    if answer.pools.is_empty() {
        return sentence("No pools. Create one: strake pool create POOL ARRAY", width);
    }
    let mut grid = Grid::new(&[
        Column::Word("state"),
        Column::Name("pool"),
        Column::Name("array"),
        Column::Number("size"),
        Column::Number("used"),
        Column::Number("free"),
        Column::Number("reserved"),
        Column::Number("volumes"),
        Column::Number("snapshots"),
    ]);
    for pool in &answer.pools {
        grid.row([
            pool.state.clone(),
            pool.name.clone(),
            pool.array.clone(),
            size(pool.size_bytes),
            size(pool.used_bytes),
            size(pool.free_bytes),
            size(pool.reserved_bytes),
            pool.volumes.to_string(),
            pool.snapshots.to_string(),
        ]);
    }
    grid.render(width) + &reasons(&answer.pools, width)
}

/// Why pools are not online.
fn reasons(pools: &[Pool], width: usize) -> String {
    let with_reason = pools.iter().filter(|pool| !pool.reason.is_empty());
    let line = |pool: &Pool| {
        let reason = format!("{}: {}: {}", title(pool), pool.state, pool.reason);
        format!("\n{}", sentence(&reason, width))
    };
    with_reason.map(line).collect()
}

/// One pool.
#[must_use]
pub fn show(pool: &Pool, width: usize) -> String {
    let mut out = String::new();
    let mut add = |name: &str, value: &str| field(&mut out, name, value, width);
    add("pool", &pool.name);
    add("uuid", &pool.uuid);
    add("array", &pool.array);
    add("state", &pool.state);
    add("reason", &pool.reason);
    if pool.size_bytes == 0 {
        return out;
    }
    let of_size = |bytes: u64| {
        let percent = u128::from(bytes) * 100 / u128::from(pool.size_bytes);
        format!("{} ({percent} % of the size)", size(bytes))
    };
    add("size", &size(pool.size_bytes));
    add("used", &of_size(pool.used_bytes));
    let reserved = match pool.reserved_bytes {
        0 => String::new(),
        bytes => format!(", {} of it reserved for thick volumes", size(bytes)),
    };
    add("free", &format!("{}{reserved}", size(pool.free_bytes)));
    add("promised", &format!("{} to volumes", of_size(pool.provisioned_bytes)));
    add("cluster", &size(pool.cluster_bytes));
    add("holds", &holds(pool));
    let (used, all) = (size(pool.log_used_bytes), size(pool.log_bytes));
    add("log", &format!("{used} of {all} used"));
    add("limits", &super::qos::line(&pool.limits));
    out
}

/// The name of a pool in a sentence. A pool whose header cannot be read has none.
fn title(pool: &Pool) -> String {
    if pool.name.is_empty() {
        return format!("pool of array {}", pool.array);
    }
    format!("pool {}", pool.name)
}

/// The numbers of volumes and snapshots.
fn holds(pool: &Pool) -> String {
    let deleting = match pool.deleting {
        0 => String::new(),
        n => format!("; the space of {n} destroyed ones is being released"),
    };
    let [volumes, snapshots] = [(pool.volumes, "volume"), (pool.snapshots, "snapshot")]
        .map(|(number, one)| count(u64::from(number), one));
    format!("{volumes}, {snapshots}{deleting}")
}

/// What is lost if the pool is destroyed.
#[must_use]
pub fn loss(pool: Option<&Pool>, name: &str) -> String {
    match pool {
        Some(pool) if pool.state == "offline" => {
            format!("all volumes and snapshots of the {} are lost", title(pool))
        }
        Some(pool) => {
            let used = size(pool.used_bytes);
            format!("{} with {used} of data are lost", holds(pool))
        }
        None => format!("all volumes and snapshots of {name} are lost"),
    }
}

/// What a command did to a pool.
#[must_use]
pub fn change(change: &PoolChange, width: usize) -> String {
    let Some(pool) = &change.pool else {
        return format!("pool: {}\n", change.result);
    };
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:",
        result => result,
    };
    let mut out = sentence(&format!("{}: {what}", title(pool)), width);
    steps(&mut out, &change.plan, width);
    if change.result == "created" {
        field(&mut out, "array", &pool.array, width);
        field(&mut out, "size", &size(pool.size_bytes), width);
        // Never folded: it is there to be copied.
        let _ = writeln!(out, "next       strake volume create {}/NAME SIZE", pool.name);
    }
    if change.result == "destroyed" && !pool.array.is_empty() {
        field(&mut out, "array", &format!("{} is free", pool.array), width);
    }
    out
}
