//! Tests of whole connections over a Unix socket with conforming clients.

mod common;

use common::Host;
use common::client::{Client, Message, request, word};
use std::sync::Arc;
use strake_block::{BlockDevice, Extent, ExtentSource, IoErrorKind};
use strake_dev_mem::{Effect, FaultPlan, Faulty, MemSpec, Ops, RamDevice, Rule, When};
use strake_export_nbd::wire::{self, Code, command, command_flag};
use strake_export_nbd::{Export, ExportErrorKind};
use strake_units::{BlockSize, Lba, LbaRange};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const FUA: u16 = command_flag::FUA;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i >> 9) as u8) ^ (i as u8).wrapping_mul(31)).collect()
}

/// A host with a RAM drive of 64 MiB whose faults a plan defines.
fn faulty(block: BlockSize) -> (Host, RamDevice, FaultPlan) {
    let host = Host::start();
    let ram = RamDevice::new((64 << 20) >> block.shift(), block);
    let plan = FaultPlan::new(1);
    host.export("ram", Arc::new(Faulty::new(ram.clone(), plan.clone())));
    (host, ram, plan)
}

#[test]
fn simple_replies_carry_every_size() {
    let (host, ram) = Host::with_ram(64, BlockSize::B512);
    let mut client = Client::simple(&host.socket(), "ram");
    for bytes in [512, 4 * KIB, 17 * KIB, 256 * KIB, MIB, MIB + 512, 5 * MIB, 32 * MIB] {
        let data = pattern(bytes);
        assert_eq!(client.write(0, 512, &data), 0, "{bytes}");
        let mut there = vec![0; bytes];
        ram.read_at(512, &mut there).expect("it is on the drive");
        assert!(there == data, "{bytes} bytes arrived");
        assert!(client.read_simple(512, bytes as u32) == Ok(data), "{bytes} bytes came back");
    }
    drop(client);
    host.stop();
}

#[test]
fn structured_replies_carry_every_size() {
    let (host, _ram) = Host::with_ram(64, BlockSize::B4096);
    let mut client = Client::structured(&host.socket(), "ram");
    let data = pattern(32 * MIB);
    assert_eq!(client.write(FUA, 0, &data), 0);
    for (bytes, flags, chunks) in [
        (4 * KIB, 0, 1),
        (MIB, 0, 1),
        (5 * MIB, 0, 5),
        (32 * MIB, 0, 32),
        (64 * KIB, command_flag::DF, 1),
        (4 * MIB, command_flag::DF, 1),
    ] {
        let got = client.read_chunks(flags, 0, bytes as u32);
        assert!(got == Ok((data[..bytes].to_vec(), chunks)), "{bytes} {flags}");
    }
    let overflow = Err(Code::Overflow as u32);
    assert_eq!(client.read_chunks(command_flag::DF, 0, 5 << 20), overflow);
    assert_eq!(client.read_chunks(0, 0, 33 << 20), overflow);
    assert_eq!(client.read_chunks(0, 0, 0), Ok((Vec::new(), 0)));
    drop(client);
    host.stop();
}

#[test]
fn refused_writes_have_their_payload_thrown_away() {
    let (host, _ram) = Host::with_ram(1, BlockSize::B4096);
    let mut client = Client::simple(&host.socket(), "ram");
    let megabytes = pattern(3 * MIB);
    assert_eq!(client.write(0, 0, &megabytes), Code::NoSpace as u32);
    assert_eq!(client.write(0, 100, &megabytes[..100 * KIB]), Code::Invalid as u32);
    assert_eq!(client.write(0, 0, &megabytes[..100]), Code::Invalid as u32);
    assert_eq!(client.write(1 << 9, 0, &megabytes[..4 * KIB]), Code::Invalid as u32);
    // The stream still has its framing.
    assert_eq!(client.write(0, 0, &megabytes[..MIB]), 0);
    assert!(client.read_simple(0, MIB as u32) == Ok(megabytes[..MIB].to_vec()));
    assert_eq!(client.read_simple(MIB as u64, 4096), Err(Code::Invalid as u32));
    let errors = host.server().exports()[0].errors;
    assert_eq!(errors, 5);
    drop(client);
    host.stop();
}

#[test]
fn zeroes_trims_and_flushes_reach_the_device() {
    let (host, ram) = Host::with_ram(256, BlockSize::B4096);
    ram.write_at(0, &[7; 4 * MIB]).expect("it is on the drive");
    let mut client = Client::structured(&host.socket(), "ram");
    assert_eq!(client.ask(&request(command::WRITE_ZEROES, FUA, 1, 0, MIB as u32)), 0);
    assert_eq!(client.ask(&request(command::TRIM, FUA, 2, MIB as u64, MIB as u32)), 0);
    assert_eq!(client.ask(&request(command::TRIM, 0, 3, 2 << 20, MIB as u32)), 0);
    assert_eq!(client.ask(&request(command::FLUSH, 0, 4, 0, 0)), 0);
    assert_eq!(client.ask(&request(command::CACHE, 0, 5, 0, 4096)), 0);
    let mut there = vec![0; 4 * MIB];
    ram.read_at(0, &mut there).expect("it is on the drive");
    assert!(there[..3 * MIB].iter().all(|&b| b == 0) && there[3 * MIB..].iter().all(|&b| b == 7));
    // A range longer than one I/O is executed in several.
    assert_eq!(client.ask(&request(command::WRITE_ZEROES, 0, 6, 0, 256 << 20)), 0);
    assert_eq!(ram.allocated_bytes(), 0);
    drop(client);
    let stats = host.server().exports()[0].clone();
    // The trim with FUA counts as the flush that ends it.
    assert_eq!((stats.effects, stats.flushes), (3, 2));
    host.stop();
}

#[test]
fn fast_zeroes_fail_fast_where_zeroing_is_slow() {
    struct Slow(RamDevice);
    impl BlockDevice for Slow {
        fn info(&self) -> strake_block::DeviceInfo {
            strake_block::DeviceInfo { fast_zeroes: false, ..self.0.info() }
        }
        fn open_queue(
            &self,
            core: strake_units::CoreIndex,
            depth: u32,
        ) -> Result<Box<dyn strake_block::IoQueue>, strake_block::DeviceError> {
            self.0.open_queue(core, depth)
        }
    }
    let host = Host::start();
    host.export("slow", Arc::new(Slow(RamDevice::new(64, BlockSize::B512))));
    let mut client = Client::simple(&host.socket(), "slow");
    let zero = |flags| request(command::WRITE_ZEROES, flags, 1, 0, 4096);
    assert_eq!(client.ask(&zero(command_flag::FAST_ZERO)), Code::NotSupported as u32);
    assert_eq!(client.ask(&zero(0)), 0);
    drop(client);
    host.stop();
}

#[test]
fn block_status_tells_holes_from_data() {
    /// MiB with even numbers were written, MiB with odd numbers never.
    struct Striped;
    impl ExtentSource for Striped {
        fn extent(&self, at: Lba, blocks_max: u64) -> Extent {
            let left = 256 - at.0 % 256;
            let blocks = left.min(blocks_max);
            Extent { range: LbaRange::new(at, blocks), written: (at.0 / 256).is_multiple_of(2) }
        }
    }
    let host = Host::start();
    let device = Arc::new(RamDevice::new(64 << 8, BlockSize::B4096));
    let export = Export {
        name: "striped".into(),
        description: String::new(),
        device,
        extents: Some(Arc::new(Striped)),
        rights: Arc::default(),
        limits: None,
        read_only: false,
    };
    host.server().add_export(export).expect("a fresh name");
    let mut client = Client::structured(&host.socket(), "striped");
    let mut check = |flags: u16, offset: u64, length: u32, want: &[(u32, u32)]| {
        client.put(&request(command::BLOCK_STATUS, flags, 9, offset, length).bytes());
        let Message::Chunk { flags, kind, payload, .. } = client.message() else {
            panic!("a status is a chunk")
        };
        assert_eq!((flags, kind), (wire::REPLY_FLAG_DONE, wire::chunk::BLOCK_STATUS));
        assert_eq!(word(&payload[..4]), wire::allocation::CONTEXT);
        let got: Vec<_> =
            payload[4..].chunks_exact(8).map(|d| (word(&d[..4]), word(&d[4..]))).collect();
        assert_eq!(got, want);
    };
    let mib = 1 << 20;
    check(0, 0, 3 << 20, &[(mib, 0), (mib, 3), (mib, 0)]);
    check(0, 4096, 4 << 20, &[(mib - 4096, 0), (mib, 3), (mib, 0), (mib, 3), (4096, 0)]);
    check(command_flag::REQ_ONE, 0, 3 << 20, &[(mib, 0)]);
    check(command_flag::REQ_ONE, 0, 4096, &[(4096, 0)]);
    drop(client);
    host.stop();
}

#[test]
fn device_errors_become_error_numbers() {
    let table = [
        (IoErrorKind::Medium, Code::Io),
        (IoErrorKind::Device, Code::Io),
        (IoErrorKind::Gone, Code::Io),
        (IoErrorKind::Timeout, Code::Io),
        (IoErrorKind::Lost, Code::Io),
        (IoErrorKind::NoSpace, Code::NoSpace),
        (IoErrorKind::ReadOnly, Code::Perm),
        (IoErrorKind::OutOfRange, Code::Invalid),
        (IoErrorKind::Misaligned, Code::Invalid),
        (IoErrorKind::Unsupported, Code::NotSupported),
        (IoErrorKind::Aborted, Code::Shutdown),
    ];
    let (host, _ram, plan) = faulty(BlockSize::B4096);
    let mut simple = Client::simple(&host.socket(), "ram");
    let mut chunks = Client::structured(&host.socket(), "ram");
    for (kind, code) in table {
        let rule = plan.add(Rule::new(Ops::ANY, Effect::Fail(kind)));
        let code = code as u32;
        assert_eq!(simple.write(0, 0, &[1; 4096]), code, "{kind:?}");
        assert_eq!(simple.read_simple(0, 4096), Err(code), "{kind:?}");
        assert_eq!(chunks.read_chunks(0, 0, 4096), Err(code), "{kind:?}");
        assert_eq!(chunks.write(0, 0, &[1; 4096]), code, "{kind:?}");
        assert_eq!(chunks.ask(&request(command::TRIM, 0, 5, 0, 4096)), code, "{kind:?}");
        assert_eq!(chunks.ask(&request(command::FLUSH, 0, 5, 0, 0)), code, "{kind:?}");
        plan.remove(rule);
        assert!(simple.read_simple(0, 4096).is_ok(), "{kind:?} is over");
    }
    drop((simple, chunks));
    host.stop();
}

#[test]
fn an_error_inside_a_long_read_is_reported_as_far_as_the_protocol_can() {
    let (host, _ram, plan) = faulty(BlockSize::B4096);
    let bad = LbaRange::new(Lba((2 << 20) >> 12), 1);
    plan.add(Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).within(bad));
    let mut chunks = Client::structured(&host.socket(), "ram");
    let io = Err(Code::Io as u32);
    assert_eq!(chunks.read_chunks(0, 0, 8 << 20), io);
    assert_eq!(chunks.read_chunks(command_flag::DF, 0, 4 << 20), io);
    // With simple replies, a read that fits into memory is completed before its header is sent.
    let mut simple = Client::simple(&host.socket(), "ram");
    assert_eq!(simple.read_simple(0, 4 << 20), Err(Code::Io as u32));
    assert!(simple.read_simple(3 << 20, 4 << 20).is_ok());
    // A longer read that fails after its header ends the connection, and no wrong data is sent.
    simple.put(&request(command::READ, 0, 3, 0, 32 << 20).bytes());
    match simple.message().error() {
        0 => {
            let mut rest = Vec::new();
            let ended = std::io::Read::read_to_end(&mut simple.stream, &mut rest);
            assert!(ended.is_err() || rest.len() <= 2 << 20, "{} bytes were sent", rest.len());
        }
        error => assert_eq!(error, Code::Io as u32),
    }
    drop((simple, chunks));
    host.stop();
}

#[test]
fn replies_come_as_completions_do() {
    let (host, _ram, plan) = faulty(BlockSize::B4096);
    let slow = LbaRange::new(Lba(0), 1);
    let rule = plan.add(Rule::new(Ops::READ, Effect::Hang).within(slow).when(When::Nth(1)));
    let mut client = Client::simple(&host.socket(), "ram");
    for cookie in 0..100_u64 {
        client.put(&request(command::READ, 0, cookie, cookie << 12, 4096).bytes());
    }
    let mut seen = Vec::new();
    for _ in 1..100 {
        let message = client.message();
        assert_eq!(message.error(), 0);
        client.take(4096);
        seen.push(message.cookie());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..100).collect::<Vec<_>>(), "all but the one that hangs");
    plan.remove(rule);
    plan.release();
    assert_eq!(client.message().cookie(), 0);
    client.take(4096);
    drop(client);
    host.stop();
}

#[test]
fn a_device_with_small_ios_gets_small_ios() {
    let host = Host::start();
    let spec = MemSpec { io_bytes_max: 20 << 10, ..MemSpec::new(16 << 8, BlockSize::B4096) };
    host.export("narrow", Arc::new(RamDevice::with_spec(spec)));
    let mut client = Client::structured(&host.socket(), "narrow");
    let data = pattern(8 * MIB);
    assert_eq!(client.write(0, 4096, &data), 0);
    let (got, chunks) = client.read_chunks(0, 4096, 8 << 20).expect("it was written");
    assert!(got == data && chunks == (8 * MIB).div_ceil(20 * KIB));
    drop(client);
    host.stop();
}

#[test]
fn a_read_only_export_refuses_changes() {
    let host = Host::start();
    let export = Export {
        name: "fixed".into(),
        description: String::new(),
        device: Arc::new(RamDevice::new(64, BlockSize::B512)),
        extents: None,
        rights: Arc::default(),
        limits: None,
        read_only: true,
    };
    host.server().add_export(export).expect("a fresh name");
    let mut client = Client::simple(&host.socket(), "");
    assert_eq!(client.write(0, 0, &[1; 512]), Code::Perm as u32);
    assert_eq!(client.read_simple(0, 512), Ok(vec![0; 512]));
    drop(client);
    host.stop();
}

/// The test of mdadm: a read-only array is never written. Here every request that would change the export is refused
/// before it reaches the device, whose content does not change.
#[test]
fn md_00readonly() {
    let host = Host::start();
    let ram = RamDevice::new(64 << 11, BlockSize::B512);
    let before = pattern(MIB);
    ram.write_at(0, &before).expect("it is there");
    let plan = FaultPlan::new(1);
    // The rule detects every I/O other than a read that reaches the device.
    let noticed = plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)));
    let export = Export {
        name: "fixed".into(),
        description: String::new(),
        device: Arc::new(Faulty::new(ram.clone(), plan.clone())),
        extents: None,
        rights: Arc::default(),
        limits: None,
        read_only: true,
    };
    host.server().add_export(export).expect("a fresh name");
    let mut client = Client::simple(&host.socket(), "fixed");
    for flags in [0, FUA] {
        assert_eq!(client.write(flags, 0, &[1; 4096]), Code::Perm as u32);
        for command in [command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(client.ask(&request(command, flags, 7, 0, 4096)), Code::Perm as u32);
        }
    }
    assert_eq!(client.ask(&request(command::FLUSH, 0, 8, 0, 0)), 0);
    assert!(client.read_simple(0, MIB as u32) == Ok(before.clone()), "it is read");
    drop(client);
    host.stop();
    let mut after = vec![0; MIB];
    ram.read_at(0, &mut after).expect("it is there");
    assert!(after == before, "a byte has changed");
    plan.remove(noticed);
}

#[test]
fn exports_come_and_go() {
    let (host, _ram) = Host::with_ram(1, BlockSize::B512);
    let server = host.server();
    let spare = || Export {
        name: "ram".into(),
        description: String::new(),
        device: Arc::new(RamDevice::new(8, BlockSize::B512)),
        extents: None,
        rights: Arc::default(),
        limits: None,
        read_only: false,
    };
    let kind = |result: Result<(), strake_export_nbd::ExportError>| result.map_err(|e| e.kind);
    assert_eq!(kind(server.add_export(spare())), Err(ExportErrorKind::Duplicate));
    let empty = Export { name: String::new(), ..spare() };
    assert_eq!(kind(server.add_export(empty)), Err(ExportErrorKind::BadExport));
    let unused = strake_export_nbd::Removal::IfUnused;
    assert_eq!(kind(server.remove_export("none", unused)), Err(ExportErrorKind::Unknown));
    let mut client = Client::simple(&host.socket(), "ram");
    assert_eq!(server.exports()[0].connections, 1);
    assert_eq!(kind(server.remove_export("ram", unused)), Err(ExportErrorKind::InUse));
    assert_eq!(kind(server.remove_export("ram", strake_export_nbd::Removal::Force)), Ok(()));
    assert!(client.is_closed());
    assert_eq!(kind(server.add_export(spare())), Ok(()));
    let mut client = Client::simple(&host.socket(), "ram");
    assert_eq!(client.read_simple(0, 4096), Ok(vec![0; 4096]));
    drop(client);
    host.stop();
}

#[test]
fn disconnecting_ends_what_was_begun() {
    let (host, ram) = Host::with_ram(8, BlockSize::B4096);
    let mut client = Client::simple(&host.socket(), "ram");
    let data = pattern(2 * MIB);
    client.put(&request(command::WRITE, 0, 1, 0, data.len() as u32).bytes());
    client.put(&data);
    client.put(&request(command::DISC, 0, 2, 0, 0).bytes());
    let message = client.message();
    assert_eq!((message.cookie(), message.error()), (1, 0));
    assert!(client.is_closed());
    let mut there = vec![0; data.len()];
    ram.read_at(0, &mut there).expect("it is on the drive");
    assert!(there == data);
    host.stop();
}

/// A device that grows.
struct Growing {
    ram: RamDevice,
    blocks: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Growing {
    fn info(&self) -> strake_block::DeviceInfo {
        let blocks = self.blocks.load(std::sync::atomic::Ordering::SeqCst);
        strake_block::DeviceInfo { blocks, ..self.ram.info() }
    }

    fn open_queue(
        &self,
        core: strake_units::CoreIndex,
        depth: u32,
    ) -> Result<Box<dyn strake_block::IoQueue>, strake_block::DeviceError> {
        self.ram.open_queue(core, depth)
    }
}

#[test]
fn a_new_connection_sees_the_size_of_a_device_that_grew() {
    let host = Host::start();
    let ram = RamDevice::new(512, BlockSize::B4096);
    let growing = Arc::new(Growing { ram, blocks: 256.into() });
    host.export("volume", Arc::clone(&growing) as Arc<dyn BlockDevice>);
    let mut before = Client::simple(&host.socket(), "volume");
    growing.blocks.store(512, std::sync::atomic::Ordering::SeqCst);
    let data = pattern(4 * KIB);
    assert_ne!(before.write(0, 1 << 20, &data), 0, "a client keeps the size that it knows");
    let mut after = Client::simple(&host.socket(), "volume");
    assert_eq!(after.write(0, 1 << 20, &data), 0);
    assert!(after.read_simple(1 << 20, 4 * KIB as u32) == Ok(data));
    drop((before, after));
    host.stop();
}
