//! Fuzzes a whole target with connections that start correctly: the PDUs of a host are reordered, cut, repeated and
//! damaged, from the first byte, on admin queues and on I/O queues. The target responds with valid PDUs or closes; it
//! changes no data of another host, and keeps no resource.
//!
//! A failure prints its seed, which `STRAKE_FUZZ_SEED` runs again, and the input, for the corpus of `strake-fuzz`;
//! `cargo xtask nightly` sets `STRAKE_FUZZ_RUNS`.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, capsule, connect_data, export, h2c};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::Export;
use strake_fuzz::{Case, Chance, Shown, corpus, damage, disorder, runs};
use strake_nvme_tcp::PduError;
use strake_nvme_tcp::pdu::{COMMON_BYTES, Common, Digests, IC_BYTES, IcReq, IcResp, PduKind};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::nvm::SourceRange;
use strake_units::BlockSize;

/// The subsystem that is not attacked.
const CALM: &str = "nqn.2014-08.org.nvmexpress:uuid:calm";
const CALM_BLOCKS: u64 = 32;
/// Memory that a target may take permanently in half of all runs; an I/O queue alone has 6 MiB.
const GROWTH_MAX: u64 = 64 << 20;

/// A target with an export that is attacked, and one with a host that must not be affected.
struct Field {
    machine: Machine,
    calm: RamDevice,
    written: Vec<u8>,
    _admin: Host,
    bystander: Host,
}

impl Field {
    fn new() -> Self {
        let machine = Machine::start();
        let calm = RamDevice::new(CALM_BLOCKS, BlockSize::B4096);
        let uuid = [9; 16];
        let device = Arc::new(calm.clone());
        let other = Export { nqn: CALM.to_owned(), uuid, ..export(device) };
        machine.target.add_export(&other).expect("a fresh name can be exported");
        let mut admin = Host::asked(&machine);
        let id = admin.connect_as((HOST, CALM), 0, 0xffff, 0).expect("a controller") as u16;
        admin.enable();
        let mut bystander = Host::asked(&machine);
        bystander.connect_as((HOST, CALM), 1, id, 0).expect("an I/O queue");
        let written: Vec<u8> =
            (0..CALM_BLOCKS as usize * BLOCK).map(|at| (at / 97) as u8).collect();
        for (at, part) in written.chunks(2 * BLOCK).enumerate() {
            assert_eq!(bystander.write(2 * at as u32, part), 0);
        }
        Self { machine, calm, written, _admin: admin, bystander }
    }

    fn is_undisturbed(&mut self, chance: &mut Chance) {
        let at = chance.below(CALM_BLOCKS as usize - 1);
        let expected = self.written[at * BLOCK..(at + 2) * BLOCK].to_vec();
        assert_eq!(self.bystander.read(at as u32, 2), (expected, 0), "blocks from {at} on");
        let mut medium = vec![0; self.written.len()];
        self.calm.read_at(0, &mut medium).expect("on the drive");
        assert!(medium == self.written, "another export was written to");
    }

    /// Waits until all resources of disconnected hosts are released; a hang fails the test.
    fn is_left(&self) {
        let attacked = || {
            let all = self.machine.target.exports();
            all.iter().filter(|export| export.name != CALM).map(|e| e.connections).sum::<u32>()
        };
        while attacked() > 0 {
            std::thread::yield_now();
        }
    }

    /// Sends `parts` as `role`, in pieces of any size, and checks every response.
    fn hear(&self, role: &str, parts: &[Vec<u8>], chance: &mut Chance) -> Heard {
        let (mut host, _admin, begins) = match role {
            "fresh" => (self.machine.dial(), None, Begins::Here),
            "admin" => (self.machine.controller().0, None, Begins::Before),
            _ => {
                let (admin, io) = self.machine.controller();
                (io, Some(admin), Begins::Before)
            }
        };
        let bytes = parts.concat();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = if chance.one_in(2) { rest.len() } else { 1 + chance.below(rest.len()) };
            // The target may close during the input.
            if host.stream.write_all(&rest[..piece]).is_err() {
                break;
            }
            rest = &rest[piece..];
        }
        // A connection that the target has closed cannot be shut down.
        let _ = host.stream.shutdown(Shutdown::Write);
        let (answers, ending) = answers(&mut host);
        check(&answers, begins, ending).unwrap_or_else(|why| panic!("{why}"))
    }
}

/// Whether the input contains the start of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Here,
    Before,
}

/// The end of a connection. After a reset, the bytes in flight are lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Reset,
}

fn answers(host: &mut Host) -> (Vec<u8>, Ending) {
    let mut bytes = Vec::new();
    match host.stream.read_to_end(&mut bytes) {
        Ok(_) => (bytes, Ending::Closed),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => (bytes, Ending::Reset),
        Err(error) => panic!("the target neither answers nor closes: {error}"),
    }
}

/// The response of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    /// The number of completions.
    completions: usize,
    /// Whether the target terminated the connection because of the input.
    terminated: bool,
}

/// Checks that these are complete PDUs that a target may send, without bytes behind a terminating one.
fn check(mut bytes: &[u8], begins: Begins, ending: Ending) -> Result<Heard, String> {
    let mut heard = Heard::default();
    let mut digests = Digests::default();
    let mut granted = begins == Begins::Before;
    while let Some(first) = bytes.first_chunk::<COMMON_BYTES>() {
        let broken = |error: PduError| format!("{error}: {first:02x?}");
        let common = Common::parse(first).map_err(broken)?;
        common.frame(digests).map_err(broken)?;
        let total = common.bytes as usize;
        match common.kind {
            PduKind::IcResp if !granted => granted = true,
            PduKind::C2hTermReq if bytes.len() > total => {
                return Err("more after the end".to_owned());
            }
            PduKind::C2hTermReq => heard.terminated = true,
            PduKind::CapsuleResp if granted => heard.completions += 1,
            PduKind::C2hData | PduKind::R2t if granted => {}
            kind => return Err(format!("{kind:?} is not expected")),
        }
        if bytes.len() < total {
            break;
        }
        if let (PduKind::IcResp, Some(header)) = (common.kind, bytes.first_chunk::<IC_BYTES>()) {
            digests = IcResp::parse(header).map_err(broken)?.digests;
        }
        bytes = &bytes[total..];
    }
    if bytes.is_empty() || ending == Ending::Reset {
        Ok(heard)
    } else {
        Err("half a PDU".to_owned())
    }
}

/// Input of a host that violates nothing, and does not wait for responses.
fn usual(role: &str, chance: &mut Chance) -> Vec<Vec<u8>> {
    match role {
        "fresh" => [opening(), admin_commands(chance)].concat(),
        "admin" => admin_commands(chance),
        _ => io_commands(chance),
    }
}

/// A controller from the first byte on.
fn opening() -> Vec<Vec<u8>> {
    let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 };
    let data = connect_data((HOST, SUBSYSTEM), 0xffff);
    let connect = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
    let enable = [(11, 0x14), (12, 0x46_0001)];
    vec![
        asked.bytes().to_vec(),
        capsule(0x7f, 100, connect, &[(1, 1), (11, 31)], &data),
        capsule(0x7f, 101, Sgl::Transport { length: 0 }, &enable, &[]),
    ]
}

fn admin_commands(chance: &mut Chance) -> Vec<Vec<u8>> {
    let command = |cid: u16, chance: &mut Chance| match chance.below(6) {
        0 | 1 => {
            let page = [(10, chance.below(8) as u32)];
            capsule(6, cid, Sgl::Transport { length: 4096 }, &page, &[])
        }
        kind => {
            let opcode = [0x02, 0x09, 0x0a, 0x18][kind - 2];
            let words = [(10, chance.below(16) as u32 | 15 << 16)];
            capsule(opcode, cid, Sgl::Transport { length: 64 }, &words, &[])
        }
    };
    (1..2 + chance.below(12) as u16).map(|cid| command(cid, chance)).collect()
}

/// Writes with H2CData come first: while none of them has completed, their tags count up from 0, so that the data can
/// be sent without an R2T. There is at most one Copy, because a waiting Copy is dropped when its host sends no more.
fn io_commands(chance: &mut Chance) -> Vec<Vec<u8>> {
    let (mut announced, mut sent, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut copies = false;
    for cid in 1..2 + chance.below(12) as u16 {
        let blocks = 1 + chance.below(4) as u32;
        let (at, bytes) = (chance.below(4000) as u32, blocks * BLOCK as u32);
        let words = [(1, 1), (10, at), (12, blocks - 1)];
        let all = Sgl::Transport { length: bytes };
        match chance.below(7) {
            0 | 1 => others.push(capsule(2, cid, all, &words, &[])),
            2 => others.push(capsule(0, cid, Sgl::Transport { length: 0 }, &[(1, 1)], &[])),
            3 => {
                let data = vec![chance.bits() as u8; BLOCK];
                let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
                others.push(capsule(1, cid, sgl, &[(1, 1), (10, at)], &data));
            }
            4 if !copies => {
                copies = true;
                let sources: Vec<u8> = (0..blocks)
                    .flat_map(|n| SourceRange { start: (at + 8 * n).into(), count: blocks }.bytes())
                    .collect();
                let sgl = Sgl::InCapsule { offset: 0, length: sources.len() as u32 };
                let words = [(1, 1), (10, at + 40), (12, blocks - 1)];
                others.push(capsule(0x19, cid, sgl, &words, &sources));
            }
            _ => {
                let data = vec![chance.bits() as u8; bytes as usize];
                let tag = announced.len() as u16;
                announced.push(capsule(1, cid, all, &words, &[]));
                sent.push(h2c(cid, tag, 0, bytes, 4, &data));
            }
        }
    }
    [announced, sent, others].concat()
}

/// A fused Compare and Write. Pairs are not part of the usual input, because a waiting pair is dropped when its host
/// sends no more.
fn pair(chance: &mut Chance) -> [Vec<u8>; 2] {
    let words = [(1, 1), (10, chance.below(4000) as u32)];
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    [(1, 5), (2, 1)].map(|(half, opcode)| {
        let mut part = capsule(opcode, 200 + u16::from(half), sgl, &words, &[0; BLOCK]);
        part[9] |= half;
        part
    })
}

/// Resident memory of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number of pages") * 4096
}

#[test]
fn what_is_kept_is_answered_or_refused() {
    let mut field = Field::new();
    let mut chance = Chance::new(0);
    for case in corpus("to-target") {
        let shown = Shown::new(&case);
        field.hear(&case.role, &case.parts, &mut chance);
        field.is_undisturbed(&mut chance);
        field.is_left();
        drop(shown);
    }
}

/// All commands of a correct host complete, and its connection is not terminated. Otherwise the inputs that are derived
/// from these would fail early, and would test little of the later code.
#[test]
fn what_is_usual_is_answered() {
    let field = Field::new();
    runs(60, |seed| {
        let mut chance = Chance::new(seed);
        for role in ["fresh", "admin", "io"] {
            let case = Case::of(role, usual(role, &mut chance));
            let shown = Shown::new(&case);
            let commands = case.parts.iter().filter(|part| part[0] == 4).count();
            let heard = field.hear(role, &case.parts, &mut chance);
            assert_eq!(heard, Heard { completions: commands, terminated: false }, "{role}");
            field.is_left();
            drop(shown);
        }
    });
}

#[test]
fn random_conversations_disturb_no_other_and_leave_nothing() {
    let kept = corpus("to-target");
    let mut field = Field::new();
    let (mut before, mut done) = (0, 0);
    runs(300, |seed| {
        let mut chance = Chance::new(seed);
        let mut case = match chance.below(2) {
            0 => kept[chance.below(kept.len())].clone(),
            _ => {
                let role = chance.pick(&["fresh", "admin", "io", "io"]);
                Case::of(role, usual(role, &mut chance))
            }
        };
        if case.role == "io" && chance.one_in(3) {
            let at = chance.below(case.parts.len() + 1);
            case.parts.splice(at..at, pair(&mut chance));
        }
        for _ in 0..chance.below(3) {
            disorder(&mut case.parts, &mut chance);
        }
        for _ in 0..chance.below(4) {
            let at = chance.below(case.parts.len());
            if let Some(part) = case.parts.get_mut(at) {
                damage(part, &mut chance);
            }
        }
        let shown = Shown::new(&case);
        field.hear(&case.role, &case.parts, &mut chance);
        field.is_undisturbed(&mut chance);
        field.is_left();
        drop(shown);
        done += 1;
        if done == 50 {
            before = resident();
        }
    });
    if before > 0 {
        let growth = resident().saturating_sub(before);
        assert!(growth < GROWTH_MAX, "{growth} bytes stayed behind after {} runs", done - 50);
    }
}
