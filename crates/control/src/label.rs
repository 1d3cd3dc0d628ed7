//! Reading and retiring labels outside of a running array.

use strake_block::Sg;
use strake_block::blocking::Blocking;
use strake_block::BufMut;
use strake_dev_uring::control_wait;
use strake_engine::{Drive, Inspection, MemberIo};
use strake_ondisk::{AreaLayout, Copy, Superblock};
use strake_units::{CoreIndex, Lba};

use crate::error::{ControlError, ControlErrorKind};

/// What is on `drive`.
pub(crate) fn inspect(drive: &Drive) -> Result<Inspection, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.inspect()?)
}

/// Marks `drive`'s label as destroyed, in a new generation, head and tail. The earlier generations stay in the
/// rings until they are overwritten.
pub(crate) fn retire(drive: &Drive, label: &Superblock) -> Result<(), ControlError> {
    let info = drive.device.info();
    let failed = |why: &dyn std::fmt::Display| {
        let what = format!("{}: marking its label destroyed failed: {why}", drive.path);
        ControlError::new(ControlErrorKind::Device, what)
    };
    let layout = AreaLayout::of(info.bytes()).ok_or_else(|| failed(&"the drive has become too small"))?;
    let mut destroyed = label.clone();
    destroyed.destroyed = true;
    destroyed.generation += 1;
    let mut wait = control_wait();
    let mut io = Blocking::new(drive.device.open_queue(CoreIndex(0), 1)?, &mut wait);
    for copy in [Copy::Head, Copy::Tail] {
        let offset = layout.slot_offset(copy, destroyed.generation);
        let record = destroyed.encode(copy, offset);
        let mut buf = BufMut::alone(record.len());
        buf.as_mut_slice().copy_from_slice(&record);
        let at = Lba(offset >> info.block_size.shift());
        io.write_stable(at, Sg::from(buf.freeze())).map_err(|e| failed(&e))?;
    }
    Ok(())
}
