//! The callers of the daemon and their roles.
//!
//! The kernel identifies each client of a Unix socket (`SO_PEERCRED`, unix(7)). Root, the user of the daemon and the
//! members of the socket's group are administrators. Two further groups may be named whose members are operators or
//! viewers. Every call of another user is denied.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;
use strake_control::{Actor, Role};
use tokio::net::UnixStream;

/// The file with the groups of the host (group(5)).
const GROUPS: &str = "/etc/group";

/// The groups whose members may call the daemon, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Groups {
    /// The group of operators.
    pub operators: Option<u32>,
    /// The group of viewers.
    pub viewers: Option<u32>,
}

impl Groups {
    /// Finds the groups that the options name.
    ///
    /// # Errors
    /// A group does not exist.
    pub fn of(operators: Option<&str>, viewers: Option<&str>) -> Result<Self, String> {
        let find = |group: Option<&str>| group.map(find_group).transpose();
        Ok(Self { operators: find(operators)?, viewers: find(viewers)? })
    }

    /// Returns the mode of the socket. If there are further groups, every user can connect, and the daemon denies
    /// the calls of those without a role.
    pub const fn mode(&self) -> u32 {
        match (self.operators, self.viewers) {
            (None, None) => 0o660,
            (Some(_), _) | (_, Some(_)) => 0o666,
        }
    }
}

/// The callers that a socket admits.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// The group of the socket, whose members are administrators.
    pub admins: u32,
    /// The further groups.
    pub others: Groups,
}

impl Admission {
    /// Returns the highest role of a user with these groups, for a daemon of the user `own`; `None` if the user has no
    /// role.
    pub fn role(&self, uid: u32, groups: &[u32], own: u32) -> Option<Role> {
        let is_member = |group: Option<u32>| group.is_some_and(|group| groups.contains(&group));
        if uid == 0 || uid == own || is_member(Some(self.admins)) {
            return Some(Role::Admin);
        }
        let operator = is_member(self.others.operators).then_some(Role::Operator);
        operator.or_else(|| is_member(self.others.viewers).then_some(Role::Viewer))
    }

    /// Identifies the peer of a connection.
    ///
    /// # Errors
    /// The identity of the peer is unknown.
    pub fn identify(&self, stream: &UnixStream) -> Result<Visitor, String> {
        let peer =
            stream.peer_cred().map_err(|e| format!("a peer whose identity is unknown: {e}"))?;
        let (uid, gid) = (peer.uid(), peer.gid());
        let own = geteuid().as_raw();
        let pid = peer.pid().unwrap_or(0);
        let known = self.role(uid, &[gid], own);
        let role = match known {
            Some(Role::Admin) => known,
            // The kernel reports only the effective group of a peer, which is seldom one of those in question.
            Some(Role::Viewer | Role::Operator) | None => {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
                let mut groups = groups_in(&status, uid);
                groups.push(gid);
                self.role(uid, &groups, own)
            }
        };
        Ok(match role {
            Some(role) => Visitor::Known(Peer { uid, pid, role }),
            None => Visitor::Stranger(Stranger { uid, pid, admission: *self }),
        })
    }
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Visitor {
    /// A user with a role.
    Known(Peer),
    /// A user without a role.
    Stranger(Stranger),
}

/// A user without a role, and the callers that the socket admits.
#[derive(Clone, Copy, Debug)]
pub struct Stranger {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: i32,
    /// The callers that the socket admits.
    pub admission: Admission,
}

impl Stranger {
    /// Returns the reason why each call is denied, with the groups whose members have a role. `groups` is the text of a
    /// group(5) file.
    pub fn reason(&self, groups: &str) -> String {
        let Admission { admins, others } = self.admission;
        let roles = [
            (Some(admins), Role::Admin),
            (others.operators, Role::Operator),
            (others.viewers, Role::Viewer),
        ];
        let named = |(group, role): (Option<u32>, Role)| {
            let group = group?;
            let name = name_in(groups, group).unwrap_or_else(|| group.to_string());
            Some(format!("{name} (role {role})"))
        };
        let named: Vec<String> = roles.into_iter().filter_map(named).collect();
        format!(
            "user {} has no role here, so nothing was done; run the command as root, or ask an administrator to be \
             added to one of these groups, and log in again: {}",
            self.uid,
            named.join(", ")
        )
    }

    /// As [`reason`](Self::reason), with the groups of this host.
    pub fn reason_here(&self) -> String {
        // Without the file, the groups have only their numbers.
        self.reason(&fs::read_to_string(GROUPS).unwrap_or_default())
    }
}

impl From<Stranger> for Actor {
    fn from(Stranger { uid, pid, admission: _ }: Stranger) -> Self {
        Self { peer: Some((uid, pid)), role: None }
    }
}

/// A caller, as the kernel identified it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: i32,
    /// What the user may do.
    pub role: Role,
}

impl From<Peer> for Actor {
    fn from(Peer { uid, pid, role }: Peer) -> Self {
        Self { peer: Some((uid, pid)), role: Some(role) }
    }
}

/// Returns the number of a group.
///
/// # Errors
/// There is no such group.
fn find_group(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(Path::new(GROUPS))
        .map_err(|error| format!("cannot find the group {name}: {GROUPS}: {error}"))?;
    group_in(&text, name).ok_or_else(|| {
        format!(
            "there is no group {name} in {GROUPS}; create it first, or give the number of a group of another directory"
        )
    })
}

/// Returns the number of the group `name` in a group(5) file.
pub fn group_in(text: &str, name: &str) -> Option<u32> {
    let fields = |line: &str| -> Option<u32> {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        fields.nth(1)?.parse().ok()
    };
    text.lines().find_map(fields)
}

/// Returns the name of the group with this number in a group(5) file.
fn name_in(text: &str, number: u32) -> Option<String> {
    let is_it =
        |line: &&str| line.split(':').nth(2).is_some_and(|field| field.parse() == Ok(number));
    text.lines().find(is_it)?.split(':').next().map(str::to_owned)
}

/// Returns the supplementary groups of a process of the user `uid`, from its `/proc/PID/status` (proc(5)). Returns none
/// if the process is of another user, which got the number of a process that has ended.
pub fn groups_in(status: &str, uid: u32) -> Vec<u32> {
    let numbers = |field: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    // Real, effective, saved and file system user.
    let is_of_user = numbers("Uid:").get(1) == Some(&uid);
    if is_of_user { numbers("Groups:") } else { Vec::new() }
}
