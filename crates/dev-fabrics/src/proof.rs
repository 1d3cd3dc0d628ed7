//! Authentication of this host on a new connection, and of the controller (Base, sections 6.1, 6.2 and 8.13).

use crate::address::{Address, HostName};
use crate::dialog::{Dialog, Load};
use crate::error::Reason;
use crate::limits::{MESSAGE_ROOM, SETUP_TIME_MAX};
use crate::session::accepted;
use rustix::io::Errno;
use strake_nvme_auth::{Claim, Doubt, Fresh, Keys, Names};
use strake_nvme_wire::fabrics::{
    PROOF_REQUIRED, SECURE_CHANNEL_REQUIRED, message_receive, message_send,
};

/// Authenticates as the result of Connect requires. A target that must authenticate cannot avoid this by not requesting
/// authentication.
pub(crate) fn prove(
    dialog: &mut Dialog,
    address: &Address,
    host: &HostName,
    result: u64,
) -> Result<(), Reason> {
    if result & SECURE_CHANNEL_REQUIRED != 0 {
        return Err(Reason::Encryption);
    }
    match (&host.keys, result & PROOF_REQUIRED != 0) {
        (None, false) | (Some(Keys { controller: None, .. }), false) => Ok(()),
        (None, true) => Err(Reason::Authentication),
        (Some(Keys { controller: Some(_), .. }), false) => Err(Doubt::Unproven.into()),
        (Some(keys), true) => {
            let names = Names { host: host.nqn.clone(), subsystem: address.nqn.clone() };
            talk(dialog, Claim::new(names, keys.clone(), fresh()?))
        }
    }
}

fn talk(dialog: &mut Dialog, mut claim: Claim) -> Result<(), Reason> {
    tell(dialog, &claim.offer())?;
    let reply = claim.reply(&hear(dialog)?)?;
    tell(dialog, &reply)?;
    match claim.conclude(&hear(dialog)?)? {
        Some(last) => tell(dialog, &last),
        None => Ok(()),
    }
}

fn tell(dialog: &mut Dialog, message: &[u8]) -> Result<(), Reason> {
    let sqe = message_send(message.len() as u32);
    accepted(dialog.run(sqe, Load::Sent(message), SETUP_TIME_MAX)?).map(drop)
}

/// The target may send the full requested length, or only the message.
fn hear(dialog: &mut Dialog) -> Result<Vec<u8>, Reason> {
    let mut message = vec![0; MESSAGE_ROOM];
    let sqe = message_receive(MESSAGE_ROOM as u32);
    accepted(dialog.run(sqe, Load::Message(&mut message), SETUP_TIME_MAX)?)?;
    Ok(message)
}

fn fresh() -> Result<Fresh, Reason> {
    let (mut challenge, mut exponent, mut sequence) = ([0; 64], [0; 64], [0; 4]);
    for bytes in [&mut challenge[..], &mut exponent, &mut sequence] {
        // Linux has random bytes since its start; without them authentication must fail.
        getrandom::fill(bytes).map_err(|_| Reason::Socket(Errno::IO))?;
    }
    Ok(Fresh { challenge, exponent, sequence: u32::from_le_bytes(sequence) })
}
