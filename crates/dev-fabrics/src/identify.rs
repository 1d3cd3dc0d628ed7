//! Properties of a controller and its namespace that matter for I/O.

use crate::address::Address;
use crate::dialog::{Dialog, Load};
use crate::error::{Reason, Unfit};
use crate::limits::{
    ACCESS_GROUPS_MAX, BYTES_MAX, IO_BYTES_MAX, KEEP_ALIVE_MS, KEEP_ALIVES_MISSED,
    KEEP_ALIVES_MISSED_IN_TRAFFIC, QUIESCE_UNSENT, SETTLE_TIME_MAX, SETUP_TIME_MAX,
};
use crate::reservation::Ability;
use crate::session::{accepted, read_log};
use std::fmt::Write as _;
use strake_block::{DeallocateReads, VolatileCache};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::identified::{ControllerFacts, NamespaceFacts, uuid_of, zeroes_bytes_max};
use strake_nvme_wire::identify::{Deallocated, IDENTIFY_BYTES, Page, cns, optional};
use strake_nvme_wire::log::{
    ACCESS_BYTES, ACCESS_GROUP_BYTES, Access, access_groups_in, access_in, page,
};
use strake_nvme_wire::nvm::RANGE_BYTES;
use strake_nvme_wire::{Sgl, Sqe, reservation};
use strake_units::{BlockSize, Nanos};

/// The prefix of the identity of a namespace without a globally unique identifier.
const NAMELESS: &str = "nvme:";

/// Properties of a namespace and its controller that matter for I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) identity: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) nsid: u32,
    pub(crate) blocks: u64,
    pub(crate) block: BlockSize,
    /// Largest command in bytes.
    pub(crate) transfer_bytes: u32,
    /// Largest Write Zeroes in bytes; `None` if the command is not supported.
    pub(crate) zeroes_bytes: Option<u64>,
    pub(crate) deallocate: DeallocateReads,
    pub(crate) cache: VolatileCache,
    pub(crate) read_only: bool,
    pub(crate) optimal_bytes: u32,
    /// Time after the end of an association during which the target may still execute its commands.
    pub(crate) settle_time: Nanos,
    /// The instance of its device that the target reports.
    pub(crate) instance: Option<[u8; 16]>,
    /// The reservation capabilities; `None` if there are none.
    pub(crate) reservations: Option<Ability>,
    /// The ANA state of the namespace; `None` if the controller does not report one. The path is then usable.
    pub(crate) access: Option<Access>,
}

impl Facts {
    /// Checks that `is` describes the same namespace, with the capabilities that users rely on. The namespace may have
    /// grown; the transfer limit is checked for every command.
    pub(crate) fn check(&self, is: &Self) -> Result<(), Reason> {
        if is.identity != self.identity || is.block != self.block || is.blocks < self.blocks {
            return Err(Reason::Replaced);
        }
        let absent = |is, was| is == DeallocateReads::Unsupported && was != is;
        if (is.cache == VolatileCache::Present && self.cache == VolatileCache::Absent)
            || absent(is.deallocate, self.deallocate)
            || (is.read_only && !self.read_only)
        {
            return Err(Reason::Lesser);
        }
        Ok(())
    }

    /// Updates the properties that users see: the namespace may have grown, and writes may be permitted now.
    pub(crate) fn tell(&mut self, is: &Self) {
        self.blocks = self.blocks.max(is.blocks);
        self.read_only &= is.read_only;
    }

    /// True if the namespace has a globally unique identifier.
    pub(crate) fn is_named(&self) -> bool {
        !self.identity.starts_with(NAMELESS)
    }
}

fn identify(dialog: &mut Dialog, what: u8, nsid: u32) -> Result<Page, Reason> {
    let mut page = [0; IDENTIFY_BYTES];
    let length = IDENTIFY_BYTES as u32;
    let sqe = Sqe::new(admin::IDENTIFY, nsid, Sgl::Transport { length }).with(10, u32::from(what));
    accepted(dialog.run(sqe, Load::Received(&mut page), SETUP_TIME_MAX)?)?;
    Ok(page)
}

/// Identifies a controller, and checks that it is usable.
pub(crate) fn identify_controller(dialog: &mut Dialog) -> Result<ControllerFacts, Reason> {
    let controller = ControllerFacts::parse(&identify(dialog, cns::CONTROLLER, 0)?);
    if controller.in_capsule_offset != 0 {
        return Err(Reason::Unusable(Unfit::Capsule));
    }
    if settle_time(&controller) > SETTLE_TIME_MAX {
        return Err(Reason::Unusable(Unfit::Quiesce));
    }
    Ok(controller)
}

/// Identifies the namespace.
pub(crate) fn identify_namespace(
    dialog: &mut Dialog,
    address: &Address,
    controller: &ControllerFacts,
) -> Result<Facts, Reason> {
    let unfit = |why| Err(Reason::Unusable(why));
    let nsid = address.nsid;
    let namespace = match identify(dialog, cns::NAMESPACE, nsid) {
        Ok(page) => NamespaceFacts::parse(&page),
        Err(Reason::Refused(_)) => return unfit(Unfit::Absent),
        Err(reason) => return Err(reason),
    };
    if namespace.blocks == 0 {
        return unfit(Unfit::Absent);
    }
    if namespace.metadata_bytes != 0 {
        return unfit(Unfit::Metadata);
    }
    let block = match namespace.block_log2 {
        9 => BlockSize::B512,
        12 => BlockSize::B4096,
        _ => return unfit(Unfit::BlockSize),
    };
    if namespace.blocks > BYTES_MAX >> block.shift() {
        return unfit(Unfit::Size);
    }
    // A controller without this data structure rejects the command.
    let descriptors = match identify(dialog, cns::DESCRIPTORS, nsid) {
        Ok(page) => uuid_of(&page),
        Err(Reason::Refused(_)) => None,
        Err(reason) => return Err(reason),
    };
    let zeroes_bytes = if controller.commands & optional::WRITE_ZEROES == 0 {
        None
    } else {
        match identify(dialog, cns::COMMAND_SET_CONTROLLER, 0) {
            Ok(page) => Some(zeroes_bytes_max(&page).unwrap_or(u64::MAX)),
            Err(Reason::Refused(_)) => Some(u64::MAX),
            Err(reason) => return Err(reason),
        }
    };
    let optimal = u32::from(namespace.optimal_blocks) << block.shift();
    let access = match controller.access_groups {
        0 => None,
        groups => access_to(dialog, groups, namespace.access_group)?,
    };
    Ok(Facts {
        identity: identity_of(&namespace, descriptors, address, controller),
        serial: controller.serial.clone(),
        model: controller.model.clone(),
        nsid,
        blocks: namespace.blocks,
        block,
        transfer_bytes: transfer_bytes(controller.transfer_pages_log2).max(block.bytes()),
        zeroes_bytes,
        deallocate: match namespace.deallocated {
            // Ranges are sent in the capsule.
            _ if controller.commands & optional::DATASET_MANAGEMENT == 0
                || (controller.in_capsule_bytes as usize) < RANGE_BYTES =>
            {
                DeallocateReads::Unsupported
            }
            // NVMe specifies the content only of blocks that were actually deallocated, so parity cannot rely on it.
            Deallocated::Zeroes | Deallocated::Unspecified => DeallocateReads::Unspecified,
        },
        cache: if controller.write_cache { VolatileCache::Present } else { VolatileCache::Absent },
        read_only: namespace.write_protected,
        optimal_bytes: optimal,
        settle_time: settle_time(controller),
        instance: namespace.instance,
        reservations: reservations_of(controller, &namespace),
        access,
    })
}

/// The reservation capabilities. The keys are sent in the capsule.
fn reservations_of(controller: &ControllerFacts, namespace: &NamespaceFacts) -> Option<Ability> {
    let is_able = controller.commands & optional::RESERVATIONS != 0
        && reservation::has_write_exclusive(namespace.reservations)
        && controller.in_capsule_bytes as usize >= reservation::KEYS_BYTES;
    let can_persist = reservation::can_persist(namespace.reservations);
    is_able.then_some(Ability { can_persist })
}

/// Reads the ANA state of `group`. The read also enables reports of changes (Base, section 8.1.1.3).
fn access_to(dialog: &mut Dialog, groups: u32, group: u32) -> Result<Option<Access>, Reason> {
    let groups = groups.min(ACCESS_GROUPS_MAX) as usize;
    let mut read = vec![0; ACCESS_BYTES + groups * ACCESS_GROUP_BYTES];
    read_log(dialog, page::ACCESS, GROUPS_ONLY, &mut read)?;
    Ok(access_of(&read, group))
}

/// The ANA state of `group`. A group that is missing from the page is inaccessible; if the page was not read
/// completely, the state is unknown.
fn access_of(read: &[u8], group: u32) -> Option<Access> {
    let room = (read.len() - ACCESS_BYTES) / ACCESS_GROUP_BYTES;
    let whole = usize::from(access_groups_in(read)) <= room;
    access_in(read, group).or(whole.then_some(Access::Inaccessible))
}

/// The groups without the namespaces in them (RGO; Base, section 5.16.1.13).
const GROUPS_ONLY: u8 = 1;

/// Time for which a controller may continue after the end of its association: until its keep-alive timer expires, and
/// then until it has quiesced (TP4129).
fn settle_time(controller: &ControllerFacts) -> Nanos {
    let missed = match controller.traffic_is_life {
        true => KEEP_ALIVES_MISSED_IN_TRAFFIC,
        false => KEEP_ALIVES_MISSED,
    };
    let quiesce = match controller.quiesce_ms {
        0 => QUIESCE_UNSENT,
        reported => Nanos::MILLI.times(reported.into()),
    };
    Nanos::MILLI.times(missed * u64::from(KEEP_ALIVE_MS)).plus(quiesce)
}

/// Largest command in bytes (MDTS), from a power of two of pages of 4 KiB.
fn transfer_bytes(pages_log2: u8) -> u32 {
    match pages_log2 {
        0 => IO_BYTES_MAX,
        log2 => 4096_u32
            .checked_shl(log2.into())
            .filter(|&b| b > 0)
            .map_or(IO_BYTES_MAX, |bytes| bytes.min(IO_BYTES_MAX)),
    }
}

/// The identity of the namespace, which is the same over every path. It equals the `wwid` in sysfs of a kernel
/// connection, so that one drive is not treated as two.
fn identity_of(
    namespace: &NamespaceFacts,
    uuid: Option<[u8; 16]>,
    address: &Address,
    controller: &ControllerFacts,
) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if let Some(uuid) = uuid.filter(|uuid| *uuid != [0; 16]) {
        let all = hex(&uuid);
        let [a, b, c, d, e] = [&all[..8], &all[8..12], &all[12..16], &all[16..20], &all[20..]];
        return format!("wwid:uuid.{a}-{b}-{c}-{d}-{e}");
    }
    if namespace.nguid != [0; 16] {
        return format!("wwid:eui.{}", hex(&namespace.nguid));
    }
    if namespace.eui64 != [0; 8] {
        return format!("wwid:eui.{}", hex(&namespace.eui64));
    }
    format!("{NAMELESS}{}/{}/{}", address.nqn, controller.serial, address.nsid)
}

#[cfg(test)]
mod tests {
    use super::{access_of, identity_of, settle_time};
    use crate::limits::ACCESS_GROUPS_MAX;
    use strake_nvme_wire::identified::{ControllerFacts, NamespaceFacts};
    use strake_nvme_wire::identify::IDENTIFY_BYTES;
    use strake_nvme_wire::log::{ACCESS_BYTES, ACCESS_GROUP_BYTES, Access};
    use strake_units::Nanos;

    #[test]
    fn what_is_not_read_of_the_page_about_access_is_not_known() {
        let mut read = vec![0; ACCESS_BYTES + ACCESS_GROUPS_MAX as usize * ACCESS_GROUP_BYTES];
        for (groups, expected) in [
            (ACCESS_GROUPS_MAX as u16, Some(Access::Inaccessible)),
            (ACCESS_GROUPS_MAX as u16 + 1, None),
        ] {
            read[8..10].copy_from_slice(&groups.to_le_bytes());
            assert_eq!(access_of(&read, 500), expected, "{groups}");
        }
        read[ACCESS_BYTES] = 1;
        read[ACCESS_BYTES + 16] = 1;
        assert_eq!(access_of(&read, 1), Some(Access::Optimized));
    }

    /// A target that reports a further identifier after an update must stay the same drive.
    #[test]
    fn a_uuid_identifies_a_namespace_whether_it_has_an_nguid_or_not() {
        let address = "nvme-tcp://192.0.2.1:4420/nqn.2014-08.org.example?nsid=1";
        let address = address.parse().expect("an address");
        let controller = ControllerFacts::parse(&[0; IDENTIFY_BYTES]);
        let identity = |nguid: u8, uuid| {
            let mut page = [0; IDENTIFY_BYTES];
            page[104..120].fill(nguid);
            identity_of(&NamespaceFacts::parse(&page), uuid, &address, &controller)
        };
        let uuid = Some([0x11; 16]);
        assert_eq!(identity(0, uuid), "wwid:uuid.11111111-1111-1111-1111-111111111111");
        assert_eq!(identity(0x22, uuid), identity(0, uuid));
        assert_eq!(identity(0x22, None), format!("wwid:eui.{}", "22".repeat(16)));
    }

    /// TP4129: two or three times KATO until the timer of the target expires, and then CQT.
    #[test]
    fn what_was_sent_is_over_when_the_target_says_so() {
        for (attributes, quiesce_ms, expected_ms) in
            [(0, 0_u16, 8000), (1 << 6, 0, 11_000), (0, 500, 6500), (1 << 6 | 1, 12_000, 21_000)]
        {
            let mut page = [0; IDENTIFY_BYTES];
            page[96] = attributes;
            page[386..388].copy_from_slice(&quiesce_ms.to_le_bytes());
            let facts = ControllerFacts::parse(&page);
            assert_eq!(settle_time(&facts), Nanos::MILLI.times(expected_ms), "{quiesce_ms}");
        }
    }
}
