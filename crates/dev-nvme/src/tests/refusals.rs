//! Controllers that are unusable or return false data: the driver returns a reason, and memory stays untouched.

use super::world::World;
use crate::error::Reason;
use crate::keeper::Keeper;
use crate::lifecycle::Phase;
use crate::shared::Shared;
use crate::transport::memory::MemorySpace;
use crate::transport::{Reach, Space};
use crate::wire::{Capabilities, offset};
use crate::{NvmeDevice, Window};
use std::sync::Arc;
use strake_block::{BlockDevice, IoErrorKind};
use strake_nvme_model::{Fault, NamespaceSpec, PERMANENT, Pace, Spec};
use strake_nvme_wire::identify::{Page, cns};
use strake_testkit::Chance;
use strake_units::{CoreIndex, Nanos};

/// Returns the reason why a controller is not used.
fn check(spec: Spec, prepare: impl FnOnce(&World)) -> Reason {
    let mut world = World::new(spec, Pace::Prompt);
    prepare(&world);
    world.step = Nanos(50 * Nanos::MILLI.0);
    world.run_until("given up", |world| world.phase() == Phase::Gone);
    let error = world.device().open_queue(CoreIndex(0), 1).err().expect("nothing can be opened");
    assert_eq!(error.kind, IoErrorKind::Gone);
    world.assert_clean();
    world.device().reason().expect("there is a reason")
}

/// Returns the reason why an Identify page is rejected.
fn lie(what: u8, mut change: impl FnMut(&mut Page) + Send + 'static) -> Reason {
    check(Spec::new(64), |world| {
        world.drive.model().distort(move |cns, page| {
            if cns == what {
                change(page);
            }
        });
    })
}

#[test]
fn identify_with_nonsense_ends_with_a_reason() {
    let controller = |at: usize, value: u8| lie(cns::CONTROLLER, move |page| page[at] = value);
    assert_eq!(controller(512, 0x77), Reason::Identify("SQES"));
    assert_eq!(controller(512, 0x00), Reason::Identify("SQES"));
    assert_eq!(controller(513, 0x55), Reason::Identify("CQES"));
    assert_eq!(controller(111, 2), Reason::Identify("CNTRLTYPE"));
    let nothing = |page: &mut Page| page.fill(0);
    assert_eq!(lie(cns::CONTROLLER, nothing), Reason::Identify("SQES"));
    assert_eq!(lie(cns::ACTIVE_NAMESPACES, nothing), Reason::NoNamespace);
    assert_eq!(
        lie(cns::ACTIVE_NAMESPACES, |page| page.fill(0xff)),
        Reason::Identify("active namespaces")
    );
    assert_eq!(lie(cns::NAMESPACE, nothing), Reason::Identify("NSZE"));
    assert_eq!(lie(cns::NAMESPACE, |page| page[..8].fill(0xff)), Reason::Identify("NSZE"));
    let format = |block_log2, metadata_bytes| Reason::Format { block_log2, metadata_bytes };
    assert_eq!(lie(cns::NAMESPACE, |page| page[134] = 13), format(13, 0));
    assert_eq!(lie(cns::NAMESPACE, |page| page[134] = 255), format(255, 0));
    assert_eq!(lie(cns::NAMESPACE, |page| page[132] = 16), format(12, 16));
    assert_eq!(lie(cns::NAMESPACE, |page| page[132] = 8), format(12, 8));
    // This format does not exist.
    assert_eq!(lie(cns::NAMESPACE, |page| page[26] = 0x6f), format(0, 0));
}

/// With random pages, the driver is ready or fails, and the model finds no violation.
#[test]
fn random_pages_are_used_or_refused() {
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let mut world = World::new(Spec::new(64), Pace::Prompt);
        world.step = Nanos(100 * Nanos::MILLI.0);
        world.drive.model().distort(move |_, page| match chance.below(3) {
            0 => page.iter_mut().for_each(|byte| *byte = chance.bits() as u8),
            1 => page[chance.below(600)] = chance.bits() as u8,
            _ => {}
        });
        let is_over = |world: &World| matches!(world.phase(), Phase::Live | Phase::Gone);
        world.run_until("ready or given up", is_over);
        world.assert_clean();
    }
}

#[test]
fn no_queues_and_no_namespace_are_reasons() {
    let arm = |fault| move |world: &World| world.drive.model().arm(fault, PERMANENT);
    assert_eq!(check(Spec::new(64), arm(Fault::NoQueues)), Reason::NoQueues);
    let none = Spec { namespaces: Vec::new(), ..Spec::new(0) };
    assert_eq!(check(none, |_| ()), Reason::NoNamespace);
    assert_eq!(check(Spec::new(64), arm(Fault::NeverReady)), Reason::NeverReady);
    assert_eq!(check(Spec::new(64), arm(Fault::FatalOnEnable)), Reason::Fatal);
    assert_eq!(check(Spec::new(64), arm(Fault::SilentAdmin)), Reason::NoAnswer);
}

#[test]
fn large_pages_and_short_queues_are_refused_at_once() {
    let refused = |spec| World::try_new(spec, Pace::Prompt).err().map(|error| error.what);
    let large = refused(Spec { page_min_log2: 1, ..Spec::new(64) }).expect("it is refused");
    assert!(large.contains("MPSMIN"), "{large}");
    let short = refused(Spec { entries_max: 1, ..Spec::new(64) }).expect("it is refused");
    assert!(short.contains("MQES"), "{short}");
    let wide = refused(Spec { doorbell_stride_log2: 15, ..Spec::new(64) }).expect("it is refused");
    assert!(wide.contains("DSTRD"), "{wide}");
}

/// The driver does not use capabilities that change after the check: such a doorbell would be outside of the registers.
#[test]
fn capabilities_are_read_once() {
    let space = Arc::new(MemorySpace::default());
    let window = Window::new(space.clone());
    let (drive, function) = super::world::drive(Spec::new(64), Pace::Prompt, &space);
    let registers = drive.peer().registers();
    let shared = Shared::new(&window, Capabilities(registers.read_long(offset::CAP)));
    let shared = Arc::new(shared.expect("there is memory"));
    registers.write(offset::CAP + 4, registers.read(offset::CAP + 4) | 0xf);
    let mut keeper = Keeper::new(&shared, Box::new(function)).expect("there is memory");
    for turn in 1..100 {
        let now = Nanos::MILLI.times(turn);
        drive.step(now);
        keeper.turn(now);
    }
    assert_eq!(shared.word().phase(), Phase::Live);
}

/// If the controller does not create a queue, the requests of this queue fail, and the other queues work.
#[test]
fn a_queue_that_is_not_created_fails_alone() {
    let mut world = World::ready(Spec::new(64));
    world.drive.model().arm(Fault::NoQueueCreated, 1);
    let (mut bad, mut good) = (world.open(4), world.open(4));
    bad.turn(world.now);
    good.turn(world.now);
    let op = world.read(0, 4096);
    let error = world.run(&mut bad, op).result.expect_err("there is no queue");
    assert_eq!(error.kind, IoErrorKind::Device);
    let op = world.read(0, 4096);
    world.run(&mut good, op).result.expect("the other queue works");
}

/// Without space for mappings, the error is a sentence, and no mapping remains.
#[test]
fn memory_that_cannot_be_mapped_is_a_sentence() {
    for mappings_max in 0..6 {
        let space = Arc::new(MemorySpace::new(Reach { addresses: 1 << 32..1 << 39, mappings_max }));
        let window = Window::new(space.clone());
        let (_, function) = super::world::drive(Spec::new(64), Pace::Prompt, &space);
        let Err(error) = NvmeDevice::attach("model", Box::new(function), &window) else {
            panic!("{mappings_max} mappings are too few");
        };
        assert!(error.to_string().contains("memory cannot be mapped"), "{error}");
        drop(window);
        assert!(space.unmap(1 << 32, 4096).is_err(), "something stayed mapped");
    }
}

#[test]
fn an_unsupported_format_says_what_to_do() {
    let namespace = NamespaceSpec::new(64, 12);
    let spec = Spec { namespaces: vec![namespace], ..Spec::new(0) };
    let reason = check(spec, |world| {
        world.drive.model().distort(|what, page| {
            if what == cns::NAMESPACE {
                page[132] = 64;
            }
        });
    });
    assert!(reason.to_string().contains("format the namespace with 512 or 4096 bytes"), "{reason}");
}
