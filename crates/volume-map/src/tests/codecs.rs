//! Images and records as bytes: written data can be read, and no bytes make a start panic.

use strake_fuzz::{Chance, damage, runs};

use super::world::{Op, World};
use crate::{
    Blocks, Change, ClusterId, ErrorKind, Image, Number, Partial, Record, Ring, Shape, SpacePolicy,
    Start, VolumeId, VolumeMap, VolumesChange, decode_record, encode_record, scan_log,
};

/// Number of damaged images and logs; the variable STRAKE_FUZZ_RUNS sets a larger number.
const RUNS: u64 = 2_000;
const SHAPE: Shape = Shape { clusters: 6, cluster_blocks: 3, leaf_entries: 2, rings: 2 };

fn world() -> World {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 8));
    world.run(2, Op::Write("V", 0, 3, 0, false));
    world.run(3, Op::Snap(vec![("V".into(), "S".into())]));
    world.run(4, Op::Write("V", 1, 1, 0, false));
    world.run(5, Op::Clone("S".into(), "C".into()));
    world.run(6, Op::Write("V", 6, 2, 1, false));
    world
}

fn image(world: &mut World) -> Vec<u8> {
    world.run(0, Op::Checkpoint);
    world.run(0, Op::Checkpoint);
    world.roots[0].clone().expect("a root")
}

/// Returns the same bytes with a correct CRC-32C.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let fields = bytes.len().saturating_sub(4);
    let crc = crc32c::crc32c(&bytes[..fields]).to_le_bytes();
    bytes.truncate(fields);
    bytes.extend_from_slice(&crc);
    bytes
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

fn start(number: u32) -> Start {
    Start { number, nonce: 1 }
}

fn kind(error: crate::Error) -> ErrorKind {
    error.kind
}

#[test]
fn an_image_is_read_as_it_was_written() {
    let bytes = image(&mut world());
    let read = Image::decode(&bytes).expect("an image");
    assert_eq!(read.encode(), bytes);
    assert_eq!(read.shape(), SHAPE);
    assert!(read.floor(Ring(1)).is_some() && read.floor(Ring(2)).is_none());
}

#[test]
fn an_image_notices_any_changed_byte_exhaustive() {
    let bytes = image(&mut world());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert_eq!(Image::decode(&changed).map_err(kind), Err(ErrorKind::Checksum), "byte {at}");
        assert!(Image::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn an_image_is_refused_with_the_name_of_the_field() {
    let bytes = image(&mut world());
    let with = |at: usize, value: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + value.len()].copy_from_slice(value);
        Image::decode(&sealed(changed)).map_err(kind)
    };
    let field = |name, recorded| Err(ErrorKind::Field { name, recorded });
    assert_eq!(with(0, b"x"), Err(ErrorKind::Magic));
    assert_eq!(with(8, &[2, 0]), field("version", 2));
    assert_eq!(with(22, &[0; 4]), field("clusters", 0));
    // A pool of 2^30 clusters needs an image of this size: no memory is allocated before this check.
    assert_eq!(
        with(22, &(1_u32 << 30).to_le_bytes()),
        Err(ErrorKind::Truncated { name: "clusters" })
    );
    assert_eq!(with(26, &[0xff, 0xff]), field("cluster_blocks", 0xffff));
    assert_eq!(with(28, &[0, 0]), field("leaf_entries", 0));
    assert_eq!(with(30, &[65]), field("rings", 65));
    assert_eq!(Image::decode(&sealed([bytes, vec![0; 4]].concat())).map_err(kind), field("end", 4));
}

/// Returns the error of a start from an image with a changed value at `at`.
fn start_with(image: &[u8], at: usize, value: u64) -> Option<ErrorKind> {
    let mut changed = image.to_vec();
    changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let logs = vec![Vec::new(); 2];
    let image = Image::decode(&sealed(changed));
    let map = image.and_then(|image| VolumeMap::open(&image, &logs, 2, 1));
    let mut map = match map {
        Ok(map) => map,
        Err(error) => return Some(error.kind),
    };
    for _ in 0..3 {
        let id = map.begin(crate::Request::Checkpoint).expect("a checkpoint");
        let progress = map.advance(id);
        assert!(matches!(progress, crate::Progress::Do(crate::Step::WriteRoot { .. })));
        let mut bytes = Vec::new();
        while !map.root_piece(&mut bytes, 64) {}
        map.completed(id);
        map.advance(id);
        Image::decode(&bytes).expect("a root that was written is read");
    }
    None
}

#[test]
fn numbers_that_a_start_would_use_up_are_refused() {
    let bytes = image(&mut world());
    let refused = |name, recorded| Some(ErrorKind::Field { name, recorded });
    let most = crate::limits::START_NUMBER_MAX;
    // The offsets of the sequence, and of the floor of the first ring.
    let (sequence, floor) = (10, 31);
    assert_eq!(start_with(&bytes, sequence, u64::MAX), refused("sequence", u64::MAX));
    assert_eq!(start_with(&bytes, sequence, most), refused("sequence", most));
    assert_eq!(start_with(&bytes, sequence, most - 1), None);
    assert_eq!(start_with(&bytes, floor, most - 1), None);
    assert_eq!(start_with(&bytes, floor, (1 << 56) - 1), refused("number", (1 << 56) - 1));
    assert_eq!(start_with(&bytes, floor, 0), refused("floor", 0));
}

#[test]
fn a_leaf_that_a_record_would_make_again_is_refused() {
    let bytes = image(&mut world());
    let read = Image::decode(&bytes).expect("an image");
    let leaf = *read.tables.slots.keys().next().expect("a leaf");
    let (ring, number) = leaf.record();
    assert!(number < read.floor(ring).expect("a ring"));
    let floor = 31 + 8 * ring.at();
    let refused = ErrorKind::Field { name: "leaf", recorded: leaf.0 };
    assert_eq!(start_with(&bytes, floor, number.0), Some(refused));
    let last = read.tables.slots.keys().rfind(|id| id.record().0 == ring);
    assert_eq!(start_with(&bytes, floor, last.expect("a leaf").record().1.0 + 1), None);
}

#[test]
fn random_damage_to_an_image_is_refused_or_is_a_sound_map() {
    let bytes = image(&mut world());
    runs(RUNS, |seed| {
        let mut chance = Chance::new(seed);
        let mut changed = bytes.clone();
        damage(&mut changed, &mut chance);
        if changed.len() < 4 {
            changed.resize(4, 0);
        }
        let Ok(image) = Image::decode(&sealed(changed)) else { return };
        let rings = image.shape().rings;
        let logs = vec![Vec::new(); usize::from(rings)];
        let map = VolumeMap::open(&image, &logs, rings, 1);
        let map = match map.map_err(kind) {
            Ok(map) => map,
            Err(ErrorKind::Field { name: "number" | "sequence" | "start", .. }) => return,
            Err(kind) => panic!("an image without a log is a map: {kind:?}"),
        };
        assert_eq!(map.state.tables.recount(), map.state.tables.clusters.counts());
        for (id, volume) in map.volumes() {
            let clusters = image.shape().clusters_of(volume.blocks);
            for index in 0..clusters.min(100) as u32 {
                let first = Blocks { first: 0, count: 1 };
                assert_eq!(map.places(id, index, first).expect("a volume").count(), 1);
            }
        }
    });
}

#[test]
fn a_log_ends_at_the_first_torn_record_exhaustive() {
    let world = world();
    let records = &world.logs[0];
    let bytes: Vec<u8> = records.iter().flat_map(|record| encode_record(record, SHAPE)).collect();
    for end in 0..=bytes.len() {
        let scan = scan_log(&bytes[..end], Ring(0), SHAPE);
        assert!(scan.bytes <= end && records.starts_with(&scan.records));
        assert_eq!(scan.end.is_none(), scan.bytes == end);
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        let scan = scan_log(&changed, Ring(0), SHAPE);
        assert!(records.starts_with(&scan.records) && scan.bytes <= at, "byte {at}");
    }
}

#[test]
fn records_of_an_earlier_start_behind_the_end_are_no_part_of_a_log() {
    let record = |number, of| Record {
        ring: Ring(1),
        number: Number(number),
        start: start(of),
        change: Change::Filled { cluster: ClusterId(0) },
    };
    let log = [record(5, 1), record(6, 1), record(9, 2), record(10, 2), record(11, 1)];
    let bytes: Vec<u8> = log.iter().flat_map(|record| encode_record(record, SHAPE)).collect();
    let scan = scan_log(&bytes, Ring(1), SHAPE);
    assert_eq!(scan.records, log[..4]);
    let other = scan_log(&bytes, Ring(0), SHAPE).end.map(kind);
    assert_eq!(other, Some(ErrorKind::Field { name: "ring", recorded: 1 }));
}

#[test]
fn records_of_a_start_without_a_trace_do_not_follow_those_of_the_next_one() {
    let mut world = world();
    let image = Image::decode(&image(&mut world)).expect("an image");
    let ring = Ring::LEADER;
    // Two records are in one write. The first is torn, so that the next start has the same number.
    let records = |nonce, names: [&str; 2]| -> Vec<Vec<u8>> {
        let logs = vec![Vec::new(); 2];
        let mut map = VolumeMap::open(&image, &logs, 2, nonce).expect("a map");
        for name in names {
            let (name, policy) = (name.parse().expect("a name"), SpacePolicy::default());
            let id =
                map.begin(crate::Request::Create { name, blocks: 3, policy }).expect("it fits");
            assert!(matches!(map.advance(id), crate::Progress::Wait(crate::Wait::Records { .. })));
        }
        map.records(ring).map(|record| encode_record(record, SHAPE)).collect()
    };
    let (torn, next) = (records(1, ["E", "F"]), records(2, ["G", "H"]));
    assert_eq!(torn[0].len(), next[0].len());
    let bytes = [next[0].clone(), torn[1].clone()].concat();
    let scan = scan_log(&bytes, ring, SHAPE);
    assert_eq!((scan.records.len(), scan.bytes), (1, next[0].len()));
    let name = "number";
    let recorded = image.floor(ring).expect("a ring").0 + 1;
    assert_eq!(scan.end.map(kind), Some(ErrorKind::Field { name, recorded }));
}

fn draw_change(chance: &mut Chance) -> Change {
    let volume = VolumeId(chance.below(6) as u32);
    let cluster = ClusterId(chance.below(7) as u32);
    let (first, count) = (chance.below(4) as u16, chance.below(4) as u16);
    let (blocks, index) = (Blocks { first, count }, chance.below(8) as u32);
    let name = || "N".parse().expect("a name");
    let next = |chance: &mut Chance| VolumeId(4 + chance.below(6) as u32);
    let volumes = |change| Change::Volumes(change, vec![Number(0), Number(1 << 40)]);
    match chance.below(15) {
        0..=2 => {
            let base = chance.one_in(2).then(|| ClusterId(chance.below(6) as u32));
            let partial = Partial::over(base, SHAPE.cluster_blocks);
            let partial = chance.one_in(2).then(|| Box::new(partial));
            Change::Map { volume, index, cluster, partial }
        }
        3 => Change::Unmap { volume, index },
        4 => Change::Own { cluster, blocks },
        5 => Change::Zero { cluster, blocks },
        6 => Change::Filled { cluster },
        7..=8 => Change::CopyLeaf { volume, at: chance.below(3) as u32 },
        9 => Change::DropLeaf { volume, at: chance.below(3) as u32 },
        10 => volumes(VolumesChange::Snapshot(vec![(volume, next(chance), name())])),
        11 => volumes(VolumesChange::Rollback { volume, snapshot: volume, old: next(chance) }),
        12 => volumes(VolumesChange::Size { volume, blocks: chance.below(12) as u64 }),
        13 => volumes(VolumesChange::Rename { volume, name: name() }),
        _ => volumes(VolumesChange::Create {
            volume: next(chance),
            name: name(),
            blocks: chance.below(9) as u64,
            policy: SpacePolicy::default(),
        }),
    }
}

#[test]
fn random_logs_are_refused_or_leave_counts_that_are_references() {
    let image = Image::decode(&image(&mut world())).expect("an image");
    let mut taken = 0;
    runs(RUNS, |seed| {
        let mut chance = Chance::new(seed);
        let floor = |ring| image.floor(ring).expect("a ring");
        let rings = [Ring(0), Ring(1)];
        let logs = rings.map(|ring| -> Vec<Record> {
            let numbers = floor(ring).0..floor(ring).0 + chance.below(4) as u64;
            let record = |number| {
                let change = draw_change(&mut chance);
                Record { ring, number: Number(number), start: start(9), change }
            };
            numbers.map(record).collect()
        });
        for record in logs.iter().flatten() {
            let bytes = encode_record(record, SHAPE);
            assert_eq!(decode_record(&bytes, SHAPE), Ok((record.clone(), bytes.len())));
        }
        if let Ok(map) = VolumeMap::open(&image, &logs, 2, 1) {
            taken += 1;
            assert_eq!(map.state.tables.recount(), map.state.tables.clusters.counts());
            let root = Image::of(&map.state, &map.state.next_numbers()).encode();
            Image::decode(&root).expect("a root of the map is read");
            let again = VolumeMap::open(&image, &logs, 2, 1).expect("as before");
            assert_eq!(map, again);
        }
    });
    assert!(taken > 0, "some logs are maps");
}

#[test]
fn a_log_that_changes_blocks_of_a_base_is_refused() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 3));
    world.run(2, Op::Write("V", 0, 3, 0, false));
    world.run(3, Op::Snap(vec![("V".into(), "S".into())]));
    world.run(4, Op::Write("V", 1, 1, 0, false));
    world.run(5, Op::Delete("S".into()));
    let image = Image::decode(&image(&mut world)).expect("an image");
    let bases = image.tables.clusters.partials().find_map(|partial| partial.base);
    let cluster = bases.expect("a base");
    assert_eq!(image.tables.clusters.count(cluster), 1, "no entry refers to it");
    let change = Change::Zero { cluster, blocks: Blocks { first: 0, count: 1 } };
    let number = image.floor(Ring(1)).expect("a ring");
    let record = Record { ring: Ring(1), number, start: start(9), change };
    let opened = VolumeMap::open(&image, &[Vec::new(), vec![record]], 2, 1);
    let refused = ErrorKind::Field { name: "base", recorded: cluster.0.into() };
    assert_eq!(opened.map(|_| ()).map_err(kind), Err(refused));
}

#[test]
fn a_log_that_makes_too_many_leaves_is_refused() {
    let mut world = World::new(SHAPE);
    world.run(1, Op::Create("V", 12));
    let mut image = Image::decode(&image(&mut world)).expect("an image");
    image.tables.leaves_max = 1;
    let floor = image.floor(Ring(1)).expect("a ring").0;
    let record = |at: u32| Record {
        ring: Ring(1),
        number: Number(floor + u64::from(at)),
        start: start(9),
        change: Change::CopyLeaf { volume: VolumeId(1), at },
    };
    let open = |records| VolumeMap::open(&image, &[Vec::new(), records], 2, 1).map(|_| ());
    assert_eq!(open(vec![record(0)]), Ok(()));
    let refused = ErrorKind::Field { name: "leaves", recorded: 1 };
    assert_eq!(open(vec![record(0), record(1)]).map_err(kind), Err(refused));
}

#[test]
fn random_bytes_are_no_record() {
    runs(RUNS, |seed| {
        let mut chance = Chance::new(seed);
        let length = chance.below(80);
        let mut body = chance.bytes(length.max(4));
        if let Some(kind) = body.get_mut(21) {
            *kind = chance.below(26) as u8;
        }
        let bytes = framed(&sealed(body));
        if let Ok((record, used)) = decode_record(&bytes, SHAPE) {
            assert_eq!(used, bytes.len());
            assert_eq!(encode_record(&record, SHAPE), bytes);
        }
    });
}

#[test]
fn a_log_that_begins_above_the_floor_is_refused() {
    let mut world = world();
    let image = Image::decode(&image(&mut world)).expect("an image");
    let number = Number(image.floor(Ring(1)).expect("a ring").0 + 1);
    let change = Change::Filled { cluster: ClusterId(0) };
    let record = Record { ring: Ring(1), number, start: start(1), change };
    let refused = VolumeMap::open(&image, &[Vec::new(), vec![record]], 2, 1).map_err(kind);
    assert_eq!(refused.err(), Some(ErrorKind::Field { name: "number", recorded: number.0 }));
}

#[test]
fn records_have_the_sizes_of_decision_39() {
    let shape = Shape { clusters: 6, cluster_blocks: 192, leaf_entries: 1008, rings: 2 };
    let (volume, cluster) = (VolumeId(1), ClusterId(1));
    let bytes = |change| {
        let record = Record { ring: Ring(0), number: Number(1), start: start(1), change };
        encode_record(&record, shape).len()
    };
    let partial = Some(Box::new(Partial::zeroes(192)));
    assert_eq!(bytes(Change::Map { volume, index: 0, cluster, partial }), 95);
    assert_eq!(bytes(Change::CopyLeaf { volume, at: 0 }), 38);
    assert_eq!(bytes(Change::Own { cluster, blocks: Blocks { first: 0, count: 1 } }), 38);
    let name: strake_units::Name = "n".repeat(63).parse().expect("a name");
    let group = (0..1000).map(|at| (volume, VolumeId(2 + at), name.clone())).collect();
    let cut = vec![Number(1); 64];
    let largest = bytes(Change::Volumes(VolumesChange::Snapshot(group), cut));
    assert!(largest <= crate::limits::RECORD_BYTES_MAX, "{largest}");
}
