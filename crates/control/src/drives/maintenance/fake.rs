//! A simulated drive at the level of its commands.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};

use strake_nvme_wire::Status;
use strake_nvme_wire::bytes::{put, put_text};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::maintenance::{AdminCommand, Answer, Transfer};

use super::{AdminSource, Undone};

type Distort = Box<dyn FnMut(&AdminCommand, &mut Vec<u8>) + Send>;

/// The state of the drive. Tests change its fields.
pub(crate) struct State {
    /// Identify of the controller.
    pub(crate) controller: [u8; 4096],
    /// Identify of the namespace.
    pub(crate) namespace: [u8; 4096],
    /// Active namespaces.
    pub(crate) namespaces: Vec<u32>,
    /// Allocated namespaces.
    pub(crate) allocated: Vec<u32>,
    /// Whether the list of allocated namespaces cannot be read.
    pub(crate) fails_allocated: bool,
    /// The last blocks of the telemetry areas.
    pub(crate) areas: [u16; 3],
    pub(crate) generation: u8,
    /// The number of later reads of the telemetry header before which the data change.
    pub(crate) changes: u32,
    /// The Sanitize Status page.
    pub(crate) sanitize: [u8; 512],
    /// The firmware slot page.
    pub(crate) slots: [u8; 512],
    /// The transferred image of firmware.
    pub(crate) image: Vec<u8>,
    /// Statuses of commands, by opcode, instead of success.
    pub(crate) statuses: BTreeMap<u8, Status>,
    /// Changes data from the drive.
    pub(crate) distort: Option<Distort>,
    /// The signal that the next command with this opcode waits for.
    pub(crate) gate: Option<(u8, Receiver<()>)>,
    /// Notified when a command waits for the gate.
    pub(crate) reached: Option<Sender<()>>,
    /// Why commands have no answer, by opcode.
    pub(crate) undone: BTreeMap<u8, Undone>,
    /// The opcode of the command that ends the thread of its job.
    pub(crate) fatal: Option<u8>,
    /// The commands that are no reads: opcode, namespace ID, dword 10.
    pub(crate) changed: Vec<(u8, u32, u32)>,
}

/// The drive.
pub(crate) struct Fake(Mutex<State>);

impl Fake {
    /// A drive with all commands, one namespace, and the formats 512 and 4096, of which the latter is used.
    pub(crate) fn new(serial: &str) -> Arc<Self> {
        let (mut controller, mut namespace) = ([0; 4096], [0; 4096]);
        put_text(&mut controller, (4, 20), serial, b' ');
        put_text(&mut controller, (24, 40), "Fake drive", b' ');
        put_text(&mut controller, (64, 8), "1.0", b' ');
        // OACS: Format and firmware. FRMW: three slots, activation without a reset. LPA: telemetry.
        (controller[256], controller[260], controller[261]) = (0b110, 0b1_0111, 0b1000);
        // SANICAP: all. FNA: crypto. FWUG: 4 KiB.
        (controller[328], controller[524], controller[319]) = (0b111, 0b100, 1);
        // A member waits for at most five seconds.
        controller[270] = 10;
        // Formats: 512 bytes, 4096 bytes, 4096 bytes with metadata.
        (namespace[25], namespace[26]) = (2, 1);
        put(&mut namespace, 128, &[0, 0, 9, 2, 0, 0, 12, 0, 8, 0, 12, 0]);
        let mut slots = [0; 512];
        slots[0] = 1;
        put(&mut slots, 8, b"1.0     ");
        Arc::new(Self(Mutex::new(State {
            controller,
            namespace,
            namespaces: vec![1],
            allocated: vec![1],
            fails_allocated: false,
            areas: [1, 2, 700],
            generation: 0,
            changes: 0,
            sanitize: [0; 512],
            slots,
            image: Vec::new(),
            statuses: BTreeMap::new(),
            distort: None,
            gate: None,
            reached: None,
            undone: BTreeMap::new(),
            fatal: None,
            changed: Vec::new(),
        })))
    }

    /// The state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test has failed")
    }
}

impl State {
    fn telemetry(&mut self, command: &AdminCommand) -> Vec<u8> {
        let [low, _, offset, ..] = *command.dwords();
        if offset == 0 {
            let creates = low & 1 << 8 != 0;
            let changes = !creates && self.changes > 0;
            self.changes -= u32::from(changes);
            self.generation = self.generation.wrapping_add(u8::from(creates || changes));
        }
        let mut bytes = vec![0; 512];
        bytes[0] = low as u8;
        for (at, last) in self.areas.iter().enumerate() {
            bytes[8 + 2 * at..10 + 2 * at].copy_from_slice(&last.to_le_bytes());
        }
        (bytes[381], bytes[383]) = (self.generation, self.generation);
        bytes.extend((1..=self.areas[2]).flat_map(|block| block.to_le_bytes().repeat(256)));
        bytes.split_off(bytes.len().min(offset as usize))
    }

    fn read(&mut self, command: &AdminCommand) -> Vec<u8> {
        match (command.opcode(), command.dwords()[0] as u8) {
            (admin::IDENTIFY, cns::CONTROLLER) => self.controller.to_vec(),
            (admin::IDENTIFY, cns::NAMESPACE) => self.namespace.to_vec(),
            (admin::IDENTIFY, cns::ACTIVE_NAMESPACES) => {
                self.namespaces.iter().flat_map(|number| number.to_le_bytes()).collect()
            }
            (admin::IDENTIFY, cns::ALLOCATED_NAMESPACES) => {
                self.allocated.iter().flat_map(|number| number.to_le_bytes()).collect()
            }
            (admin::GET_LOG_PAGE, 0x07 | 0x08) => self.telemetry(command),
            (admin::GET_LOG_PAGE, 0x81) => self.sanitize.to_vec(),
            (admin::GET_LOG_PAGE, 0x03) => self.slots.to_vec(),
            other => panic!("{other:?} is not simulated"),
        }
    }

    fn change(&mut self, command: &AdminCommand) {
        let [ten, eleven, ..] = *command.dwords();
        self.changed.push((command.opcode(), command.nsid(), ten));
        match (command.opcode(), command.transfer()) {
            (admin::FORMAT, _) => self.namespace[26] = ten as u8 & 0xf,
            (admin::SANITIZE, _) => {
                self.sanitize[2] = 2;
                put(&mut self.sanitize, 4, &ten.to_le_bytes());
            }
            (admin::DOWNLOAD, Transfer::ToDrive(piece)) => {
                assert_eq!(self.image.len(), eleven as usize * 4, "a piece is missing");
                self.image.extend(piece);
            }
            (admin::COMMIT, _) => {}
            other => panic!("{other:?} is not simulated"),
        }
    }
}

impl AdminSource for Fake {
    fn run(&self, command: AdminCommand) -> Result<Answer, Undone> {
        let gate = self.state().gate.take_if(|(opcode, _)| *opcode == command.opcode());
        if let Some((_, gate)) = gate {
            let reached = self.state().reached.take();
            reached.map(|reached| reached.send(()));
            // The wait ends when the other side is dropped.
            let _ = gate.recv();
        }
        let is_fatal = self.state().fatal == Some(command.opcode());
        if is_fatal {
            resume_unwind(Box::new("a job ends"));
        }
        if let Some(undone) = self.state().undone.get(&command.opcode()) {
            return Err(undone.clone());
        }
        let mut state = self.state();
        let is_allocated = command.opcode() == admin::IDENTIFY
            && command.dwords()[0] == u32::from(cns::ALLOCATED_NAMESPACES);
        if is_allocated && state.fails_allocated {
            return Ok(Answer { status: Status::INTERNAL, result: 0, data: Vec::new() });
        }
        let status = state.statuses.get(&command.opcode()).copied().unwrap_or(Status::SUCCESS);
        let mut data = Vec::new();
        if let Transfer::FromDrive(bytes) = *command.transfer() {
            data = state.read(&command);
            data.resize(bytes as usize, 0);
            if let Some(distort) = &mut state.distort {
                distort(&command, &mut data);
            }
        } else {
            state.change(&command);
        }
        Ok(Answer { status, result: 0, data })
    }

    fn namespace(&self) -> Result<u32, String> {
        Ok(1)
    }
}
