//! The places of a pool.

use strake_block::{DeallocateReads, DeviceInfo, VolatileCache};
use strake_units::{BlockSize, Uuid};
use strake_volume_map::{Image, VolumeMap};

use super::world::name;
use crate::{Layout, PoolErrorKind};

fn info(bytes: u64, stripe: u32) -> DeviceInfo {
    DeviceInfo {
        identity: "array:1".into(),
        blocks: bytes / 4096,
        block_size: BlockSize::B4096,
        io_bytes_max: 1 << 20,
        io_bytes_optimal: stripe,
        cache: VolatileCache::Present,
        deallocate: DeallocateReads::Unspecified,
        fast_zeroes: true,
        read_only: false,
    }
}

#[test]
fn clusters_fill_the_device_and_start_at_stripes() {
    for (bytes, stripe) in [
        (1 << 30, 768 << 10),
        (1 << 40, 768 << 10),
        (100 << 40, 768 << 10),
        (1 << 40, 128 << 10),
        (1 << 40, 0),
        (10 << 40, 3 << 20),
        ((1 << 40) + 4096, 640 << 10),
    ] {
        let layout = Layout::new(&info(bytes, stripe), &name("tank"), Uuid([1; 16]));
        let layout = layout.expect("there is room");
        let header = &layout.header;
        assert_eq!(header.wrong_field(), None);
        let cluster = u64::from(header.cluster_bytes);
        let stripe = u64::from(stripe.max(4096));
        assert!(cluster >= 256 << 10 && cluster.is_multiple_of(stripe));
        assert!(header.data_at.is_multiple_of(cluster));
        let rest = bytes - header.data_at - cluster * u64::from(header.clusters);
        assert!(rest < 8 * cluster, "{rest} bytes of {bytes} are unused");
        let overhead = header.data_at as f64 / bytes as f64;
        assert!(overhead < 0.03, "{overhead}");
        let recorded = Layout::recorded(header.clone(), &info(bytes, 0)).expect("it fits");
        assert_eq!(recorded, layout);
    }
}

#[test]
fn devices_that_cannot_have_a_pool_are_refused() {
    let refused = |bytes, stripe| {
        let layout = Layout::new(&info(bytes, stripe), &name("tank"), Uuid([1; 16]));
        layout.expect_err("it is refused").kind
    };
    assert_eq!(refused(16 << 20, 0), PoolErrorKind::TooSmall);
    assert_eq!(refused(0, 0), PoolErrorKind::TooSmall);
    assert_eq!(refused(1 << 40, 5 << 20), PoolErrorKind::Unsuitable);
    let layout = Layout::new(&info(1 << 30, 0), &name("tank"), Uuid([1; 16])).expect("room");
    for info in
        [info((1 << 30) - 4096, 0), DeviceInfo { block_size: BlockSize::B512, ..info(1 << 30, 0) }]
    {
        let refused = Layout::recorded(layout.header.clone(), &info).expect_err("it does not fit");
        assert_eq!(refused.kind, PoolErrorKind::Damaged);
    }
}

#[test]
fn a_place_of_a_root_has_room_for_every_image() {
    let layout = Layout::new(&info(1 << 30, 0), &name("tank"), Uuid([1; 16])).expect("room");
    assert!(layout.shape.image_bytes_max() + 4096 <= layout.header.root_bytes);
    let mut map = VolumeMap::create(layout.shape, 1).expect("a map");
    let id = map.begin(strake_volume_map::Request::Checkpoint).expect("a checkpoint");
    let strake_volume_map::Progress::Do(strake_volume_map::Step::WriteRoot { sequence, .. }) =
        map.advance(id)
    else {
        panic!("a root is written")
    };
    let mut bytes = Vec::new();
    while !map.root_piece(&mut bytes, 1 << 10) {}
    assert_eq!(Image::decode(&bytes).expect("an image").sequence(), sequence);
}
