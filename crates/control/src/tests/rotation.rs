//! Replaced secrets and keys of hosts, which are accepted for some time beside the new ones.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strake_api::v1::{AddHostRequest, ConnectDriveRequest, Host, HostChange};

use super::nvme::{HOST, OTHER, SECRET, host};
use super::remote::disconnect;
use super::testbed::Testbed;
use super::{State, Usage, check_refused, mirror, nvme_tcp};
use crate::commands::exports::RETRY;
use crate::commands::hosts::withdraw_old_keys;
use crate::error::ControlError;
use crate::error::ControlErrorKind::Store;
use crate::events::WallClock;
use crate::exports::keys::{HostKeys, keys_of};
use crate::manager::Options;

const BEGAN_US: u64 = 1_000_000_000_000_000;
const DAY_S: u64 = 24 * 3600;

/// Options with a clock that shows `now`.
fn options(now: &Arc<AtomicU64>) -> Options {
    let shown = Arc::clone(now);
    let clock = WallClock::new(move || shown.load(Ordering::Relaxed));
    Options { clock, ..Options::default() }
}

/// A control plane whose clock advances only when it is set.
fn control() -> (Testbed, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(BEGAN_US));
    (Testbed::with(options(&now)), now)
}

fn restart(control: &mut Testbed, now: &Arc<AtomicU64>) {
    control.shut_down();
    control.start_with(options(now));
}

/// Exports a mirror to the host over NVMe/TCP. Returns its address.
fn export(control: &Testbed) -> String {
    control.create_array(&mirror(&control.drives(2))).expect("it is created");
    control.export(&nvme_tcp(HOST)).uri
}

/// Returns whether the target at `address` accepts a connection with these secrets and keys.
fn accepts(address: &str, keys: ConnectDriveRequest) -> bool {
    let client = Testbed::new();
    let asked = ConnectDriveRequest { address: address.into(), host_nqn: HOST.into(), ..keys };
    let connected = client.connect_drive(&asked);
    match connected {
        Ok(change) => {
            assert_eq!(change.result, "created");
            disconnect(&client, address).expect("nothing uses it");
            true
        }
        Err(error) => {
            let words = ["does not accept our proof", "TLS was refused"];
            assert!(words.iter().any(|words| error.what.contains(words)), "{error}");
            false
        }
    }
}

fn add(control: &Testbed, request: AddHostRequest) -> Result<HostChange, ControlError> {
    control.run(|m| m.add_host(&request))
}

/// A request for a new secret of the host.
fn new_secret(keep_old_seconds: u64) -> AddHostRequest {
    AddHostRequest { known: true, new_secret: true, keep_old_seconds, ..host("", "") }
}

/// A request for a new TLS key of the host.
fn new_tls_key(keep_old_seconds: u64) -> AddHostRequest {
    AddHostRequest { new_tls_key: true, keep_old_seconds, ..host("", "") }
}

fn listed(control: &Testbed) -> Host {
    control.with(|m| m.list_hosts()).expect("it answers").hosts.remove(0)
}

fn keys(control: &Testbed) -> HostKeys {
    control.run(|m| keys_of(&m.records.hosts[0])).expect("they are valid")
}

#[test]
fn replaced_secrets_are_accepted_until_their_time_is_over() {
    let (mut control, now) = control();
    add(&control, host(SECRET, OTHER)).expect("secrets");
    assert_eq!(listed(&control).old_secret_until_us, 0);
    let until_us = BEGAN_US + DAY_S * 1_000_000;
    add(&control, new_secret(DAY_S)).expect("another secret");
    assert_eq!(listed(&control).old_secret_until_us, until_us);
    let change = control.reported("host_changed").pop().expect("an event");
    assert!(change.cause.contains("its replaced secret is accepted"), "{change:?}");
    let [_, old] = keys(&control).proof.try_into().expect("both are accepted");
    assert!(Ok(old.host) == SECRET.parse() && old.controller.map(Ok) == Some(OTHER.parse()));

    now.store(until_us - 1, Ordering::Relaxed);
    control.tick().expect("it answers");
    restart(&mut control, &now);
    control.tick().expect("it answers");
    assert_eq!(keys(&control).proof.len(), 2, "also after a restart");
    now.store(until_us, Ordering::Relaxed);
    control.tick().expect("it answers");
    assert_eq!(keys(&control).proof.len(), 1);
    assert_eq!(listed(&control).old_secret_until_us, 0);
    let changes = control.reported("host_changed");
    let what = format!("the replaced secret of host {HOST} is no longer accepted");
    assert_eq!(changes.iter().filter(|event| event.what == what).count(), 1, "{changes:?}");
}

/// The servers decide, not the records.
#[test]
fn a_target_accepts_a_replaced_secret_until_its_time_is_over() {
    let (mut control, now) = control();
    let address = export(&control);
    let proof = |secret: &str, controller_secret: &str| ConnectDriveRequest {
        secret: secret.into(),
        controller_secret: controller_secret.into(),
        ..ConnectDriveRequest::default()
    };
    add(&control, host(SECRET, OTHER)).expect("secrets");
    let new = add(&control, new_secret(DAY_S)).expect("another secret").secret;
    assert!(accepts(&address, proof(SECRET, OTHER)), "the replaced secret");
    assert!(accepts(&address, proof(&new, OTHER)), "the new secret");
    restart(&mut control, &now);
    control.tick().expect("it answers");
    assert!(accepts(&address, proof(SECRET, OTHER)), "after a restart");
    now.store(BEGAN_US + DAY_S * 1_000_000, Ordering::Relaxed);
    control.tick().expect("it answers");
    assert!(!accepts(&address, proof(SECRET, OTHER)), "after its time");
    assert!(accepts(&address, proof(&new, OTHER)), "the new secret");
}

#[test]
fn a_target_accepts_a_replaced_tls_key_until_its_time_is_over() {
    let (control, now) = control();
    let address = export(&control);
    let with = |tls_key: &str| ConnectDriveRequest {
        tls_key: tls_key.into(),
        ..ConnectDriveRequest::default()
    };
    let old = add(&control, new_tls_key(0)).expect("a key").tls_key;
    let new = add(&control, new_tls_key(DAY_S)).expect("another key").tls_key;
    assert!(accepts(&address, with(&old)), "the replaced key");
    assert!(accepts(&address, with(&new)), "the new key");
    now.store(BEGAN_US + DAY_S * 1_000_000, Ordering::Relaxed);
    control.tick().expect("it answers");
    assert!(!accepts(&address, with(&old)), "after its time");
    assert!(accepts(&address, with(&new)), "the new key");
}

/// A state directory that refuses changes delays the record, and not the end of the secret.
#[test]
fn an_end_that_cannot_be_recorded_is_in_effect_and_recorded_later() {
    let (control, now) = control();
    let address = export(&control);
    add(&control, host(SECRET, "")).expect("a secret");
    add(&control, new_secret(DAY_S)).expect("another secret");
    now.store(BEGAN_US + DAY_S * 1_000_000, Ordering::Relaxed);
    // This directory prevents the creation of the file that every change writes first.
    let obstacle = control.path("state/state.json.next");
    fs::create_dir(&obstacle).expect("it can be made");
    let start = Instant::now();
    let withdraw = |later| control.run(|m| withdraw_old_keys(m, start + later));
    check_refused(withdraw(Duration::ZERO), Store, "nothing was done");
    let secret = SECRET.to_owned();
    assert!(!accepts(&address, ConnectDriveRequest { secret, ..Default::default() }));
    withdraw(RETRY / 2).expect("no write is tried");
    check_refused(withdraw(RETRY), Store, "nothing was done");
    fs::remove_dir(&obstacle).expect("it is empty");
    assert_eq!(keys(&control).proof.len(), 2, "the record");
    withdraw(RETRY * 2).expect("it is recorded");
    assert_eq!(keys(&control).proof.len(), 1);
}

#[test]
fn a_replacement_that_keeps_nothing_withdraws_what_was_kept() {
    let (control, _) = control();
    add(&control, host(SECRET, OTHER)).expect("secrets");
    add(&control, new_tls_key(0)).expect("a key");
    add(&control, new_secret(DAY_S)).expect("another secret");
    add(&control, new_tls_key(2 * DAY_S)).expect("another key");
    let both = listed(&control);
    assert_eq!(both.old_secret_until_us, BEGAN_US + DAY_S * 1_000_000, "its time is its own");
    assert_eq!(both.old_tls_key_until_us, BEGAN_US + 2 * DAY_S * 1_000_000);
    assert_eq!(keys(&control).tls.len(), 2);
    add(&control, new_secret(0)).expect("another secret");
    let one = listed(&control);
    assert_eq!((one.old_secret_until_us, one.old_tls_key_until_us), (0, both.old_tls_key_until_us));
    add(&control, AddHostRequest { no_tls: true, ..host("", "") }).expect("its secret is enough");
    assert_eq!(listed(&control).old_tls_key_until_us, 0);
    assert_eq!(keys(&control).tls.len(), 0);
}

#[test]
fn there_must_be_something_to_keep_and_an_end_of_it() {
    let (control, _) = control();
    let kept = |request: AddHostRequest| AddHostRequest { keep_old_seconds: DAY_S, ..request };
    check_refused(add(&control, kept(host(SECRET, ""))), Usage, "nothing is replaced");
    add(&control, host(SECRET, "")).expect("a secret");
    check_refused(add(&control, kept(host(SECRET, ""))), Usage, "nothing is replaced");
    check_refused(add(&control, new_tls_key(DAY_S)), Usage, "nothing is replaced");
    check_refused(add(&control, new_secret(31 * DAY_S)), Usage, "at most 30 days");
    let controller = AddHostRequest { new_controller_secret: true, ..host("", "") };
    check_refused(add(&control, kept(controller)), Usage, "nothing is replaced");
    add(&control, new_secret(30 * DAY_S)).expect("the longest time");
    let kept_until_us = listed(&control).old_secret_until_us;
    check_refused(add(&control, new_secret(DAY_S)), State, "still accepted");
    assert_eq!(listed(&control).old_secret_until_us, kept_until_us, "a refusal changes nothing");
    let document = control.document();
    assert!(!document.contains("DHHC"), "a backup has no secrets: {document}");
}
