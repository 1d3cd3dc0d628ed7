//! Clients of an array that a host has reserved through another export.

mod common;

use std::sync::Arc;

use common::Host;
use common::client::{Client, request};
use strake_dev_mem::RamDevice;
use strake_export_nbd::wire::{Code, command, command_flag};
use strake_export_nbd::{Export, Rights, SharedRights};
use strake_units::BlockSize;

const KIB: usize = 1 << 10;
const FUA: u16 = command_flag::FUA;

#[test]
fn a_reservation_refuses_writes_of_clients_that_are_connected() {
    let host = Host::start();
    let (ram, rights) = (RamDevice::new(64, BlockSize::B4096), Arc::new(SharedRights::default()));
    let export = Export {
        name: "shared".into(),
        description: String::new(),
        device: Arc::new(ram),
        extents: None,
        rights: Arc::clone(&rights),
        limits: None,
        read_only: false,
    };
    host.server().add_export(export).expect("a fresh name");
    let mut client = Client::simple(&host.socket(), "shared");
    let (before, refused) = (vec![7; 64 * KIB], vec![1; 64 * KIB]);
    assert_eq!(client.write(0, 0, &before), 0);

    rights.set(Rights::Read);
    for flags in [0, FUA] {
        assert_eq!(client.write(flags, 0, &refused), Code::Perm as u32);
        for command in [command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(client.ask(&request(command, flags, 7, 0, 4096)), Code::Perm as u32);
        }
    }
    assert_eq!(client.ask(&request(command::FLUSH, 0, 8, 0, 0)), 0);
    assert!(client.read_simple(0, 64 * KIB as u32) == Ok(before.clone()), "nothing was written");

    rights.set(Rights::Nothing);
    assert_eq!(client.read_simple(0, 4096), Err(Code::Perm as u32));
    assert_eq!(client.write(0, 0, &refused), Code::Perm as u32);

    rights.set(Rights::All);
    assert!(client.read_simple(0, 64 * KIB as u32) == Ok(before), "nothing was written");
    assert_eq!(client.write(0, 0, &refused), 0);
    drop(client);
    host.stop();
}
