//! What an operator does on the stage.

use strake_engine::{ArrayError, MemberIo, Superblock, prepare_drive};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Nanos, Uuid};

use super::{Disk, STRICTLY, Stage};

impl Stage {
    pub fn fail(&mut self, member: u8) -> Result<(), ArrayError> {
        let pending = self.array().begin_fail(MemberIndex(member))?;
        self.asked(pending)
    }

    /// The member's drive is no longer where it was.
    pub fn vanish(&mut self, member: u8) -> Result<(), ArrayError> {
        let pending = self.array().begin_vanish(MemberIndex(member))?;
        self.asked(pending)
    }

    /// Waits for the answer to what was asked of the array.
    pub fn asked(&mut self, mut pending: strake_engine::Pending) -> Result<(), ArrayError> {
        self.awaited(|| pending.poll())
    }

    fn awaited<T>(&mut self, mut poll: impl FnMut() -> Option<T>) -> T {
        let mut answer = None;
        self.until("an answer", |_| {
            answer = poll();
            answer.is_some()
        });
        answer.expect("waited for")
    }

    pub fn spare(&mut self) -> Disk {
        self.next_disk += 1;
        self.set.disk(self.next_disk - 1, &self.log)
    }

    pub fn replace(&mut self, member: u8) -> Result<(), ArrayError> {
        let disk = self.spare();
        self.replace_with(member, disk)
    }

    /// Replaces a member that the operator fails first.
    pub fn fail_and_replace(&mut self, member: u8) {
        self.fail(member).expect("redundancy is left");
        self.replace(member).expect("replaceable");
    }

    pub fn replace_with(&mut self, member: u8, disk: Disk) -> Result<(), ArrayError> {
        self.uuids += 1;
        let uuid = Uuid([self.uuids; 16]);
        prepare_drive(&disk.drive, uuid, &mut || Some(Nanos(0))).expect("the drive works");
        let mut replacing = self.array().begin_replace(MemberIndex(member), &disk.drive, uuid)?;
        self.disks[usize::from(member)] = disk;
        self.awaited(|| replacing.poll())
    }

    pub fn healthy(&mut self) {
        self.until("rebuilding", |stage| {
            stage.status().members.iter().all(|m| m.state == MemberState::InSync)
        });
    }

    /// Waits for rebuilds, then reads `blocks` from the start and compares.
    pub fn verify_rebuilt(&mut self, blocks: u64) {
        self.healthy();
        self.verify(blocks);
    }

    /// A clean stop and a start of every member. Returns how many regions are to be resynchronized.
    pub fn restart(&mut self) -> u32 {
        self.stop().expect("a clean stop");
        self.again(STRICTLY)
    }

    pub fn stop(&mut self) -> Result<(), ArrayError> {
        let mut quiet = self.array().begin_quiesce();
        self.until("falling quiet", |_| {
            quiet.retain(|q| q.try_recv().is_err());
            quiet.is_empty()
        });
        let pending = self.array().begin_stop();
        let answer = self.asked(pending);
        self.down();
        answer
    }

    /// Drops everything where it stands.
    pub fn down(&mut self) {
        self.queues.clear();
        self.array = None;
        self.pollers.clear();
        self.answers.clear();
    }

    /// What a drive says it is.
    pub fn label(&self, disk: &Disk) -> Superblock {
        let mut now = self.now.0;
        let mut wait = || {
            now += 1_000_000;
            Some(Nanos(now))
        };
        let mut io = MemberIo::open(&disk.drive, &mut wait).expect("opens");
        io.inspect().expect("readable").label.expect("a member")
    }

    /// Takes `disk` back as `member`.
    pub fn readd_with(&mut self, member: u8, disk: Disk) -> Result<(), ArrayError> {
        let label = self.label(&disk);
        let mut replacing = self.array().begin_readd(MemberIndex(member), &disk.drive, &label)?;
        self.disks[usize::from(member)] = disk;
        self.awaited(|| replacing.poll())
    }

    /// Takes the member's own drive back.
    pub fn readd(&mut self, member: u8) -> Result<(), ArrayError> {
        let disk = self.disks[usize::from(member)].clone();
        self.readd_with(member, disk)
    }
}
