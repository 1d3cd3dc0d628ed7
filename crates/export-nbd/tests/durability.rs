//! Tests of the I/Os that NBD requests cause at the device: their place, their pieces, and their durability.

mod common;

use common::Host;
use common::client::{Client, request};
use std::sync::Arc;
use strake_block::Durability::{Fua, Normal};
use strake_dev_mem::{RamDevice, Record, Recorder, Seen};
use strake_export_nbd::wire::{command, command_flag};
use strake_units::{BlockSize, Lba, LbaRange};

const FUA: u16 = command_flag::FUA;
const BLOCK: usize = 4096;
const MIB: usize = 1 << 20;

/// A host with a drive of 512 MiB that records what reaches it.
fn recorded() -> (Host, Client, Record) {
    let host = Host::start();
    let ram = RamDevice::new((512 * MIB / BLOCK) as u64, BlockSize::B4096);
    let (device, record) = Recorder::new(ram);
    host.export("ram", Arc::new(device));
    let client = Client::simple(&host.socket(), "ram");
    // The reads that the server makes without a request are discarded.
    let _ = record.take();
    (host, client, record)
}

fn blocks(at: u64, count: u64) -> LbaRange {
    LbaRange::new(Lba(at), count)
}

#[test]
fn a_write_is_as_durable_as_it_asked_to_be() {
    let (host, mut client, record) = recorded();
    for (flags, durability) in [(0, Normal), (FUA, Fua), (0, Normal)] {
        assert_eq!(client.write(flags, 3 * BLOCK as u64, &[1; 2 * BLOCK]), 0);
        assert_eq!(record.take(), [Seen::Write(blocks(3, 2), durability)]);
    }
    drop(client);
    host.stop();
}

/// Every piece must be durable, because a missing piece would leave a part of an acknowledged write unstable.
#[test]
fn every_piece_of_a_large_write_is_durable() {
    let (host, mut client, record) = recorded();
    for (flags, durability) in [(FUA, Fua), (0, Normal)] {
        assert_eq!(client.write(flags, 0, &vec![2; 5 * MIB]), 0);
        let (mut next, seen) = (0, record.take());
        assert!(seen.len() > 1, "it was cut: {seen:?}");
        for piece in seen {
            let Seen::Write(range, said) = piece else { panic!("{piece:?} is no write") };
            assert_eq!((range.start.0, said), (next, durability));
            next = range.end().0;
        }
        assert_eq!(next, (5 * MIB / BLOCK) as u64, "all of it");
    }
    drop(client);
    host.stop();
}

#[test]
fn every_piece_of_zeroes_is_as_durable_as_they_asked_to_be() {
    let (host, mut client, record) = recorded();
    let zeroes = |flags, length| request(command::WRITE_ZEROES, flags, 1, 0, length);
    for (flags, durability) in [
        (0, Normal),
        (FUA, Fua),
        (FUA | command_flag::NO_HOLE, Fua),
        (command_flag::NO_HOLE, Normal),
    ] {
        assert_eq!(client.ask(&zeroes(flags, MIB as u32)), 0);
        assert_eq!(record.take(), [Seen::Zeroes(blocks(0, 256), durability)], "{flags:#x}");
        assert_eq!(client.ask(&zeroes(flags, 512 << 20)), 0);
        let seen = record.take();
        assert!(seen.len() > 1, "it was cut: {seen:?}");
        let mut next = 0;
        for piece in seen {
            let Seen::Zeroes(range, said) = piece else { panic!("{piece:?} are no zeroes") };
            assert_eq!((range.start.0, said), (next, durability), "{flags:#x}");
            next = range.end().0;
        }
        assert_eq!(next, (512 * MIB / BLOCK) as u64, "all of them");
    }
    drop(client);
    host.stop();
}

/// A device has no durable deallocation, so a durable trim ends with a flush after its last piece.
#[test]
fn a_trim_is_flushed_when_it_asked_to_be_durable() {
    let (host, mut client, record) = recorded();
    let trim = |flags| request(command::TRIM, flags, 1, 4 * BLOCK as u64, MIB as u32);
    assert_eq!(client.ask(&trim(0)), 0);
    assert_eq!(record.take(), [Seen::Deallocate(blocks(4, 256))]);
    assert_eq!(client.ask(&trim(FUA)), 0);
    assert_eq!(record.take(), [Seen::Deallocate(blocks(4, 256)), Seen::Flush]);
    assert_eq!(client.ask(&request(command::TRIM, FUA, 1, 0, 512 << 20)), 0);
    let seen = record.take();
    assert!(seen.len() > 2, "it was cut: {seen:?}");
    let (last, pieces) = seen.split_last().expect("there are some");
    assert_eq!(*last, Seen::Flush);
    assert!(pieces.iter().all(|seen| matches!(seen, Seen::Deallocate(_))), "{pieces:?}");
    drop(client);
    host.stop();
}

#[test]
fn a_flush_reaches_the_device_each_time() {
    let (host, mut client, record) = recorded();
    for flags in [0, FUA] {
        assert_eq!(client.ask(&request(command::FLUSH, flags, 1, 0, 0)), 0);
        assert_eq!(record.take(), [Seen::Flush]);
    }
    drop(client);
    host.stop();
}
