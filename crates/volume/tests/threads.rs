//! Users on threads of their own, beside snapshots, deletions and discards on the pool core: no user sees a block of
//! another volume or an older version, and no snapshot changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut, Durability, Op, Sg};
use strake_dev_mem::RamDevice;
use strake_reactor::{CoreConfig, CoreThread, monotonic};
use strake_testkit::Chance;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos, Uuid};
use strake_volume::{Answer, Pool, PoolSpec, Request, SpacePolicy, VolumeId};

const BLOCK: usize = 4096;
/// Blocks of a cluster, and of the volume that is examined.
const CLUSTER: u64 = 64;
const BLOCKS: u64 = 16 * CLUSTER;
const ROUNDS: u64 = 40;

/// What a block contains: the volume, the block, and the version.
type Content = [u64; 3];

fn wait() -> Option<Nanos> {
    std::thread::yield_now();
    Some(monotonic())
}

/// What the writers of the volume have done, by block.
struct Versions {
    issued: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

impl Versions {
    fn new() -> Self {
        let zeroes = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        Self { issued: zeroes(), acknowledged: zeroes() }
    }
}

fn buffer(contents: &[Content]) -> BufMut {
    let mut buffer = BufMut::alone(contents.len() * BLOCK);
    for (block, content) in buffer.as_mut_slice().chunks_exact_mut(BLOCK).zip(contents) {
        for (at, word) in block.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&content[at % 3].to_le_bytes());
        }
    }
    buffer
}

fn contents(bytes: &[u8]) -> Vec<Content> {
    let word = |block: &[u8], at: usize| {
        u64::from_le_bytes(block[8 * at..8 * at + 8].try_into().expect("eight bytes"))
    };
    let blocks = bytes.chunks_exact(BLOCK).map(|block| {
        let content = [word(block, 0), word(block, 1), word(block, 2)];
        let whole = (0..BLOCK / 8).all(|at| word(block, at) == content[at % 3]);
        assert!(whole, "a block is torn");
        content
    });
    blocks.collect()
}

fn read(io: &mut Blocking<'_>, at: u64, count: u64) -> Vec<Content> {
    let data = BufMut::alone(count as usize * BLOCK);
    contents(io.read(Lba(at), data).expect("blocks are readable").as_slice())
}

fn write(io: &mut Blocking<'_>, at: u64, blocks: &[Content]) {
    let data = Sg::from(buffer(blocks).freeze());
    let write = Op::Write { at: Lba(at), data, durability: Durability::Normal };
    io.run(write).expect("blocks are written");
}

/// Writes and reads every second block of the volume until the end.
fn use_half(
    device: &dyn BlockDevice,
    half: u64,
    versions: &Versions,
    is_over: &AtomicBool,
    volume: u64,
) -> u64 {
    let queue = device.open_queue(CoreIndex(63), 4).expect("the pool runs");
    let mut wait = wait;
    let mut io = Blocking::new(queue, &mut wait);
    let mut chance = Chance::new(half);
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let block = chance.below(BLOCKS as usize / 2) as u64 * 2 + half;
        let at = block as usize;
        let last = versions.acknowledged[at].load(Ordering::Relaxed);
        if chance.one_in(3) {
            let found = read(&mut io, block, 1)[0];
            assert_eq!(found, if last == 0 { [0; 3] } else { [volume, block, last] });
        } else {
            versions.issued[at].store(last + 1, Ordering::SeqCst);
            write(&mut io, block, &[[volume, block, last + 1]]);
            versions.acknowledged[at].store(last + 1, Ordering::SeqCst);
        }
        count += 1;
    }
    count
}

/// Fills and discards clusters of another volume, so that clusters are used again.
fn churn(device: &dyn BlockDevice, is_over: &AtomicBool, volume: u64) {
    let queue = device.open_queue(CoreIndex(63), 4).expect("the pool runs");
    let mut wait = wait;
    let mut io = Blocking::new(queue, &mut wait);
    let mut version = 0;
    while !is_over.load(Ordering::Relaxed) {
        version += 1;
        let at = version % 16 * CLUSTER;
        let blocks: Vec<Content> = (at..at + CLUSTER).map(|at| [volume, at, version]).collect();
        write(&mut io, at, &blocks);
        assert_eq!(read(&mut io, at, CLUSTER), blocks);
        let range = LbaRange::new(Lba(at), CLUSTER);
        io.run(Op::Deallocate { range }).expect("blocks are discarded");
        assert_eq!(read(&mut io, at, 1), [[0; 3]]);
    }
}

fn ask(pool: &Pool, request: Request) -> Answer {
    pool.ask(request).wait().expect("the pool runs").expect("it is done")
}

fn create(pool: &Pool, name: &str) -> VolumeId {
    let (name, policy) = (name.parse().expect("a name"), SpacePolicy::default());
    let Answer::Created(made) = ask(pool, Request::Create { name, blocks: BLOCKS, policy }) else {
        panic!("a volume")
    };
    made[0]
}

/// Reads a whole volume.
fn image(pool: &Pool, volume: VolumeId) -> Vec<Content> {
    let device = pool.device(volume).expect("the volume exists");
    let queue = device.open_queue(CoreIndex(63), 4).expect("the pool runs");
    let mut wait = wait;
    let mut io = Blocking::new(queue, &mut wait);
    (0..BLOCKS / CLUSTER).flat_map(|at| read(&mut io, at * CLUSTER, CLUSTER)).collect()
}

fn all(versions: &[AtomicU64]) -> Vec<u64> {
    versions.iter().map(|version| version.load(Ordering::SeqCst)).collect()
}

/// Takes snapshots beside the users, and checks each twice.
fn take_snapshots(pool: &Pool, volume: VolumeId, versions: &Versions) {
    let mut kept: Option<(VolumeId, Vec<Content>)> = None;
    for round in 0..ROUNDS {
        let before = all(&versions.acknowledged);
        let name = format!("s{round}").parse().expect("a name");
        let snapshot = Request::Snapshot { volumes: vec![(volume, name)] };
        let Answer::Created(made) = ask(pool, snapshot) else { panic!("a snapshot") };
        let after = all(&versions.issued);
        let found = image(pool, made[0]);
        for (block, found) in found.iter().enumerate() {
            let (least, most) = (before[block], after[block]);
            assert!((least..=most).contains(&found[2]), "{found:?} is not in {least}..={most}");
            let is_own = found[2] == 0 || found[..2] == [u64::from(volume.0), block as u64];
            assert!(is_own, "{found:?} in block {block}");
        }
        if let Some((older, content)) = kept.replace((made[0], found)) {
            assert_eq!(image(pool, older), content, "a snapshot never changes");
            ask(pool, Request::Delete { volume: older });
        }
    }
}

#[test]
fn users_beside_the_pool_core_see_no_other_content() {
    let below: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(32 << 10, BlockSize::B4096));
    let name = "tank".parse().expect("a name");
    let spec = PoolSpec { name, pool: Uuid([1; 16]), nonce: 1 };
    let opened = strake_volume::create(below, &spec, &mut wait).expect("the pool is created");
    let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
    let pool = Pool::start(opened, &[core.handle()], 0).expect("the pool starts");
    let (volume, other) = (create(&pool, "vm1"), create(&pool, "vm2"));
    let devices = [volume, other].map(|volume| pool.device(volume).expect("the volume exists"));
    let (versions, is_over) = (Versions::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let users = [0, 1].map(|half| {
            let (device, versions, is_over) = (&*devices[0], &versions, &is_over);
            scope.spawn(move || use_half(device, half, versions, is_over, volume.0.into()))
        });
        let churning = scope.spawn(|| churn(&*devices[1], &is_over, other.0.into()));
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            take_snapshots(&pool, volume, &versions);
        }));
        is_over.store(true, Ordering::Relaxed);
        for user in users {
            assert!(user.join().expect("a user ends") > 0);
        }
        churning.join().expect("the user ends");
        taken.expect("all snapshots are right");
    });
    pool.stop();
    core.stop();
}
