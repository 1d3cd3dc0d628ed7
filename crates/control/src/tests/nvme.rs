//! NVMe/TCP exports: the hosts that are admitted, the requests that are refused, and the records.

use super::{Testbed, check_refused, exports, nvme_tcp, raid6};
use crate::commands::backup::parse;
use crate::commands::exports::offer_recorded_exports;
use crate::control::Control;
use crate::error::ControlErrorKind::{Exists, NotFound, State, Store, Usage};
use crate::manager::Manager;
use crate::record::files::StateFolder;
use crate::record::reserved::ReservationFile;
use crate::record::store::ExportRecord;
use crate::upkeep::starting::start_recorded;
use strake_api::v1::{
    AddHostRequest, AddReferralRequest, CreateArrayRequest, CreateExportRequest,
    DestroyArrayRequest, DiscoverDrivesRequest, Export, ReleaseExportRequest, RemoveExportRequest,
    RemoveHostRequest, RemoveReferralRequest, RestoreConfigRequest, UndeleteArrayRequest,
};
use strake_export_nbd::Removal;
use strake_export_nvmet::{Held, Ledger, Registrant, ReservationType, Reservations};
use strake_units::Nanos;

pub(super) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";

pub(super) fn request() -> CreateExportRequest {
    nvme_tcp(HOST)
}

pub(super) fn only_export(control: &Control) -> Export {
    let [export] = exports(control).try_into().expect("one export");
    export
}

#[test]
fn what_no_host_may_reach_or_what_would_clash_is_refused() {
    let (control, _) = Testbed::raid6(4);
    let other = |change: fn(&mut CreateExportRequest)| {
        let mut request = request();
        change(&mut request);
        control.run(|m| m.create_export(&request))
    };
    check_refused(other(|r| r.allow_hosts.clear()), Usage, "--allow-host");
    check_refused(other(|r| r.allow_hosts.push("not-an-nqn".into())), Usage, "is not a valid NQN");
    check_refused(other(|r| r.nqn = "nqn.".into()), Usage, "is not a valid NQN");
    check_refused(other(|r| r.listen = "unix:/x".into()), Usage, "an address and a port");
    check_refused(other(|r| r.via = "nbd".into()), Usage, "NBD has no subsystems");
    check_refused(other(|r| r.via = "iscsi".into()), Usage, "nbd and nvme-tcp");

    let made = other(|_| ()).expect("it is offered").export.expect("it is told");
    assert_eq!(
        (made.via.as_str(), made.allow_hosts.as_slice()),
        ("nvme-tcp", &[HOST.to_owned()][..])
    );
    assert!(made.nqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{}", made.nqn);
    assert_eq!(made.uri, format!("nvme-tcp://{}/{}", made.listen, made.nqn));
    check_refused(other(|r| r.name = "second".into()), Exists, "export tank offers this array");
    let taken = CreateExportRequest {
        array: "tank".into(),
        name: "beside".into(),
        listen: made.listen,
        ..Default::default()
    };
    let beside = control.run(|m| m.create_export(&taken));
    check_refused(beside, State, "another protocol");
}

pub(super) const SECRET: &str = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
pub(super) const OTHER: &str = "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:";

pub(super) fn host(secret: &str, controller_secret: &str) -> AddHostRequest {
    AddHostRequest {
        nqn: HOST.into(),
        secret: secret.into(),
        controller_secret: controller_secret.into(),
        ..Default::default()
    }
}

/// Connects to a subsystem as the host `host`. Returns the completion of its Connect command.
pub(super) fn connect_as(address: &str, host: &str, subsystem: &str) -> [u8; 16] {
    let mut stream = std::net::TcpStream::connect(address).expect("the target listens");
    let mut bytes = vec![0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes.extend([4, 0, 72, 72]);
    bytes.extend((72_u32 + 1024).to_le_bytes());
    let mut sqe = [0; 64];
    (sqe[0], sqe[1], sqe[4], sqe[44]) = (0x7f, 0x40, 1, 31);
    sqe[32..36].copy_from_slice(&1024_u32.to_le_bytes());
    sqe[39] = 1;
    bytes.extend(sqe);
    let mut data = vec![0; 1024];
    data[16..18].fill(0xff);
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    bytes.extend(data);
    std::io::Write::write_all(&mut stream, &bytes).expect("the target takes it");
    let mut answer = [0; 128 + 24];
    std::io::Read::read_exact(&mut stream, &mut answer).expect("the target answers");
    answer[128 + 8..].try_into().expect("16 bytes")
}

/// Returns whether the target at an address requires host authentication (Base, Figure 393), from the result of its
/// Connect command.
pub(super) fn asks_for_proof(address: &str, subsystem: &str) -> bool {
    let answer = connect_as(address, HOST, subsystem);
    assert_eq!(answer[14..], [0, 0], "the host may connect");
    answer[2] & 2 != 0
}

/// Hosts with a secret must authenticate, also after a restart and after a restore of the configuration. No output
/// shows the secret.
#[test]
fn a_host_with_a_secret_is_asked_for_proof_from_then_on() {
    let (mut control, _) = Testbed::raid6(4);
    let add = |control: &Control, r: AddHostRequest| control.run(|m| m.add_host(&r));
    check_refused(add(&control, host("", "")), Usage, "--secret-file");
    check_refused(add(&control, host("DHHC-1:00:AAAA:", "")), Usage, "32, 48 or 64");
    check_refused(add(&control, host(SECRET, SECRET)), Usage, "the same");
    let stranger = AddHostRequest { nqn: "not-an-nqn".into(), ..host(SECRET, "") };
    check_refused(add(&control, stranger), Usage, "is not a valid NQN");
    let export = control.run(|m| m.create_export(&request())).expect("it is offered");
    let export = export.export.expect("it says which");
    assert!(!asks_for_proof(&export.listen, &export.nqn));
    assert_eq!(add(&control, host(SECRET, "")).expect("a secret").result, "created");
    assert_eq!(add(&control, host(SECRET, "")).expect("a secret").result, "unchanged");
    assert!(asks_for_proof(&export.listen, &export.nqn), "at once");
    assert_eq!(add(&control, host(SECRET, OTHER)).expect("a secret").result, "changed");
    let remove = RemoveHostRequest { nqn: HOST.into() };
    check_refused(control.run(|m| m.remove_host(&remove)), State, "only by its name");

    let document = control.document();
    let shown = format!(
        "{document}{:?}{:?}",
        control.with(|m| m.list_hosts()),
        control.with(|m| m.records.config.clone())
    );
    assert!(document.contains(HOST) && !shown.contains("DHHC"), "{shown}");
    control.restart();
    let export = only_export(&control);
    assert!(asks_for_proof(&export.listen, &export.nqn), "after a restart");

    // A configuration whose secrets are hidden admits no host that had to authenticate.
    control.with(|m| m.records.config.hosts.clear()).expect("forgotten");
    let restore = RestoreConfigRequest { json: document, dry_run: false };
    let restored = control.restore_config(&restore).expect("it is understood");
    assert!(restored.warnings.iter().any(|w| w.contains("strake host add")), "{restored:?}");
    assert!(asks_for_proof(&export.listen, &export.nqn), "after it was restored");
    let listed = control.with(|m| m.list_hosts()).expect("hosts");
    assert_eq!(listed.hosts[0].state, "locked");
    assert_eq!(add(&control, host(SECRET, "")).expect("a secret").result, "changed");
}

/// The tests of the target cover the referrals that it reports.
#[test]
fn hosts_are_referred_to_other_services_after_a_restart_too() {
    let (mut control, _) = Testbed::raid6(4);
    let add = |control: &Control, address: &str| {
        let request = AddReferralRequest { address: address.into() };
        control.run(|m| m.add_referral(&request)).map(|change| change.result)
    };
    check_refused(add(&control, "192.0.2.7:8009"), Usage, "nvme-tcp://");
    check_refused(add(&control, "nvme-tcp://store"), Usage, "needs an IP address");
    check_refused(add(&control, "nvme-tcp://0.0.0.0"), Usage, "not an address");
    // A referral is added before a target exists, and while a target exists.
    assert_eq!(add(&control, "nvme-tcp://192.0.2.7").expect("a service"), "created");
    let export = control.run(|m| m.create_export(&request())).expect("it is offered").export;
    let place = format!("nvme-tcp://{}", export.expect("it says which").listen);
    check_refused(add(&control, &place), Usage, "an address of this daemon");
    assert_eq!(add(&control, "nvme-tcp://[2001:db8::1]:4420").expect("a service"), "created");
    for same in ["192.0.2.7:8009/", "[::ffff:192.0.2.7]", "[2001:DB8:0::1]:4420"] {
        let same = format!("nvme-tcp://{same}");
        assert_eq!(add(&control, &same).expect("it is known"), "unchanged", "{same}");
    }
    let seen = |control: &Control| {
        let ask = DiscoverDrivesRequest {
            address: format!("nvme-tcp://{}", only_export(control).listen),
            host_nqn: HOST.into(),
            ..Default::default()
        };
        let offers = control.discover_drives(&ask).expect("it is allowed").offers;
        let referred = offers.into_iter().filter(|offer| offer.kind == "referral");
        referred.map(|offer| offer.address).collect::<Vec<_>>()
    };
    let both = ["nvme-tcp://192.0.2.7:8009", "nvme-tcp://[2001:db8::1]:4420"];
    assert_eq!(seen(&control), both);
    let document = control.document();
    control.restart();
    assert_eq!(seen(&control), both, "after a restart");
    let remove = RemoveReferralRequest { address: "nvme-tcp://192.0.2.7".into() };
    control.run(|m| m.remove_referral(&remove)).expect("it is known");
    assert_eq!(seen(&control), both[1..]);
    let reported = control.reported("referral_changed").into_iter();
    let reported: Vec<_> = reported.map(|event| event.what).collect();
    assert_eq!(
        reported,
        [
            "discovery refers hosts to nvme-tcp://192.0.2.7:8009",
            "discovery refers hosts to nvme-tcp://[2001:db8::1]:4420",
            "discovery no longer refers hosts to nvme-tcp://192.0.2.7:8009",
        ]
    );
    check_refused(control.run(|m| m.remove_referral(&remove)), NotFound, "no referral to");
    let restore = RestoreConfigRequest { json: document, dry_run: false };
    let restored = control.restore_config(&restore).expect("it is understood");
    assert_eq!(restored.plan, ["refer hosts to nvme-tcp://192.0.2.7:8009"]);
    assert_eq!(seen(&control), [both[1], both[0]]);
}

/// A key for TLS is shown only in the answer to the command that creates it. A host may have it with a secret or
/// without one.
#[test]
fn a_key_for_tls_is_made_and_shown_once() {
    let control = Testbed::new();
    let add = |r: AddHostRequest| control.run(|m| m.add_host(&r));
    let with = |tls_key: &str, new_tls_key| AddHostRequest {
        tls_key: tls_key.into(),
        new_tls_key,
        ..host("", "")
    };
    let made = add(with("", true)).expect("a key is made");
    assert!(made.tls_key.starts_with("NVMeTLSkey-1:01:"), "Linux proves any key with SHA-256");
    let (usage, key) = (Usage, made.tls_key.as_str());
    check_refused(add(with(key, true)), usage, "not both");
    check_refused(add(with("NVMeTLSkey-1:01:AAAA:", false)), usage, "key for TLS");
    check_refused(add(host("", OTHER)), usage, "only with a host secret");
    let same = add(with(key, false)).expect("it is the same");
    assert_eq!((same.result.as_str(), same.tls_key.as_str()), ("unchanged", ""));
    let listed = || control.with(|m| m.list_hosts()).expect("hosts").hosts.remove(0);
    let is = |host: &strake_api::v1::Host| (host.state.clone(), host.proof, host.tls);
    assert_eq!(is(&listed()), ("ready".to_owned(), false, true));
    let both = AddHostRequest { secret: SECRET.into(), ..with(key, false) };
    assert_eq!(add(both).expect("both").result, "changed");
    assert_eq!(is(&listed()), ("ready".to_owned(), true, true));

    let document = control.document();
    let reported = control.reported("");
    let shown = format!(
        "{document}{reported:?}{:?}{:?}",
        listed(),
        control.with(|m| m.records.config.clone())
    );
    assert!(shown.contains("use TLS and authenticate") && !shown.contains(&key[16..40]), "{shown}");
    // If its secret and key are hidden, the host cannot connect, and still needs both.
    restore_hosts(&control, document);
    assert_eq!(is(&listed()), ("locked".to_owned(), true, true));
    assert_eq!(add(with(key, false)).expect("its key").result, "changed");
    assert_eq!(is(&listed()), ("locked".to_owned(), true, true), "without its secret");
    assert_eq!(add(host(SECRET, "")).expect("its secret").result, "changed");
    assert_eq!(is(&listed()), ("ready".to_owned(), true, true));
}

/// Restores a document on a control plane without its hosts.
fn restore_hosts(control: &Control, document: String) {
    control.with(|m| m.records.config.hosts.clear()).expect("forgotten");
    let restore = RestoreConfigRequest { json: document, dry_run: false };
    control.restore_config(&restore).expect("it is understood");
}

/// History: after a change of one of its keys, a host was admitted with a weaker authentication, and this was not
/// reported.
#[test]
fn a_host_keeps_what_it_is_not_given_again() {
    let control = Testbed::new();
    let add = |r: AddHostRequest| control.run(|m| m.add_host(&r));
    let is = |expected: (&str, bool, bool), reported: &str| {
        let host = control.with(|m| m.list_hosts()).expect("hosts").hosts.remove(0);
        assert_eq!((host.state.as_str(), host.proof, host.tls), expected);
        let last = control.reported("host_changed").pop().expect("it was reported");
        assert!(last.cause == reported, "{last:?}");
    };
    add(AddHostRequest { new_tls_key: true, ..host("", "") }).expect("a key");
    is(("ready", false, true), "its key for TLS is new");
    add(host(SECRET, OTHER)).expect("a secret");
    is(("ready", true, true), "its secret is new, its secret of the target is new");
    add(AddHostRequest { new_tls_key: true, ..host("", "") }).expect("another key");
    is(("ready", true, true), "its key for TLS is another");
    let without = |no_secret, no_tls, r: AddHostRequest| AddHostRequest { no_secret, no_tls, ..r };
    check_refused(add(without(true, false, host(SECRET, ""))), Usage, "not both");
    let new = AddHostRequest { new_tls_key: true, ..host("", "") };
    check_refused(add(without(false, true, new)), Usage, "not both");
    check_refused(add(without(true, true, host("", ""))), Usage, "needs a secret or a key");
    add(without(true, false, host("", ""))).expect("its key is enough");
    let gone = "its secret is taken away, its secret of the target is taken away";
    is(("ready", false, true), gone);
    // A backup of a host that needs only TLS: without TLS, the host does not even see the subsystem.
    let document = control.document();
    restore_hosts(&control, document);
    let keys =
        control.run(|m| crate::exports::keys::keys_of(&m.records.hosts[0])).expect("made up");
    assert!(keys.proof.is_empty() && keys.tls.len() == 1);
    add(without(false, true, host(SECRET, ""))).expect("its secret is enough");
    is(("ready", true, false), "its secret is new, its key for TLS is taken away");
}

/// A secret is shown only in the answer to the command that creates it. The other secrets remain unchanged.
#[test]
fn a_host_is_given_other_secrets_one_by_one() {
    let control = Testbed::new();
    let add = |r: AddHostRequest| control.run(|m| m.add_host(&r));
    let recorded = || control.with(|m| m.records.hosts[0].clone()).expect("it is there");
    let new = || AddHostRequest { known: true, new_secret: true, ..host("", "") };
    check_refused(add(new()), NotFound, "strake host list");
    add(host(SECRET, OTHER)).expect("secrets");
    let made = add(new()).expect("another secret");
    let bytes = made.secret.parse::<strake_export_nvmet::Secret>();
    assert!(made.result == "changed" && bytes.is_ok(), "{}", made.result);
    assert_eq!((made.controller_secret.as_str(), made.tls_key.as_str()), ("", ""));
    assert!(recorded().secret == made.secret && recorded().controller_secret == OTHER);
    let other = AddHostRequest { new_controller_secret: true, ..host("", "") };
    let target = add(other).expect("another secret of the target").controller_secret;
    assert!(recorded().secret == made.secret && recorded().controller_secret == target);
    assert!(target != made.secret && target != OTHER);
    let both = AddHostRequest { new_secret: true, ..host(SECRET, "") };
    check_refused(add(both), Usage, "or generate one, not both");
    let both = AddHostRequest { new_controller_secret: true, ..host("", OTHER) };
    check_refused(add(both), Usage, "or generate one, not both");
    let both = AddHostRequest { new_secret: true, no_secret: true, ..host("", "") };
    check_refused(add(both), Usage, "not both");
    let both = AddHostRequest { no_controller_secret: true, ..host(SECRET, OTHER) };
    check_refused(add(both), Usage, "not both");
    let events = control.reported("");
    let shown = format!("{events:?}{:?}", control.with(|m| m.list_hosts()));
    assert!(!shown.contains("DHHC"), "{shown}");

    // A host that receives only one of two secrets remains locked.
    let document = control.document();
    restore_hosts(&control, document);
    let listed = || control.with(|m| m.list_hosts()).expect("hosts").hosts.remove(0);
    add(host(SECRET, "")).expect("its secret");
    assert_eq!((listed().state.as_str(), listed().bidirectional), ("locked", true));
    let keys =
        control.run(|m| crate::exports::keys::keys_of(&m.records.hosts[0])).expect("made up");
    assert!(keys.proof.iter().all(|proof| Ok(proof.host.clone()) != SECRET.parse()));
    assert_eq!(keys.proof.len(), 1);
    add(AddHostRequest { no_controller_secret: true, ..host("", "") }).expect("none");
    assert_eq!((listed().state.as_str(), listed().bidirectional), ("ready", false));
    let keys =
        control.run(|m| crate::exports::keys::keys_of(&m.records.hosts[0])).expect("its own");
    assert!(keys.proof.iter().all(|proof| Ok(proof.host.clone()) == SECRET.parse()));
    assert_eq!(keys.proof.len(), 1);
}

/// A secure export is refused while one of its hosts could not connect, and it prevents the removal of keys. It is also
/// secure after a restart and after a restore from a backup.
#[test]
fn a_secure_export_has_hosts_with_keys_only() {
    let (mut control, _) = Testbed::raid6(4);
    let add = |control: &Control, r: AddHostRequest| control.run(|m| m.add_host(&r));
    let offer = |r: CreateExportRequest| control.run(|m| m.create_export(&r));
    let secure = || CreateExportRequest { secure: true, ..request() };
    let nbd = CreateExportRequest { via: "nbd".into(), allow_hosts: Vec::new(), ..secure() };
    check_refused(offer(nbd), Usage, "--secure");
    check_refused(offer(secure()), State, "--new-tls-key");
    add(&control, host(SECRET, "")).expect("a secret");
    check_refused(offer(secure()), State, "has no TLS key");
    let keyed = || AddHostRequest { new_tls_key: true, ..host("", "") };
    add(&control, keyed()).expect("a key");
    let lone = offer(secure()).expect("it is offered").export.expect("it says which");
    assert!(lone.secure);
    let bare = AddHostRequest { no_tls: true, ..host(SECRET, "") };
    check_refused(add(&control, bare), State, "export tank, which requires TLS");
    add(&control, keyed()).expect("another key");
    let remove = RemoveHostRequest { nqn: HOST.into() };
    check_refused(control.run(|m| m.remove_host(&remove)), State, "export tank");

    let json = control.document();
    control.restart();
    assert!(only_export(&control).secure, "after a restart");
    control.lose_state();
    control.start();
    let restore = RestoreConfigRequest { json, ..Default::default() };
    let restored = control.restore_config(&restore).expect("it is understood");
    assert!(restored.warnings.iter().all(|warning| !warning.contains("export")), "{restored:?}");
    assert!(only_export(&control).secure, "from a backup, though its host has no key yet");
}

/// The names of hosts are quoted, and many connection attempts do not cause many events.
#[test]
fn hosts_that_are_rejected_are_reported_once() {
    let (control, _) = Testbed::raid6(4);
    let export = control.run(|m| m.create_export(&request())).expect("it is offered");
    let export = export.export.expect("it says which");
    let stranger = "nqn.\u{202e}\"x\u{1f980}";
    let reported = |second: u64| {
        let now = Nanos(second * Nanos::SECOND.0);
        let tell = |m: &mut Manager| {
            m.exports.rejections(now).into_iter().for_each(|note| m.record(note));
        };
        control.with(tell).expect("it answers");
        control.reported("host_refused")
    };
    connect_as(&export.listen, stranger, &export.nqn);
    let [first] = &reported(1)[..] else { panic!("one event") };
    let Export { listen, .. } = &export;
    let expected = format!(
        "connection of host \"nqn.\\u{{202e}}\\\"x\u{1f980}\" at 127.0.0.1 rejected on {listen}"
    );
    assert_eq!((first.what.as_str(), first.severity.as_str()), (&expected[..], "warning"));
    for _ in 0..3 {
        connect_as(&export.listen, stranger, &export.nqn);
    }
    assert_eq!(reported(2).len(), 1);
    let [_, more] = &reported(601)[..] else { panic!("one event more") };
    assert_eq!(more.what, format!("{expected}, and 2 more connections for the same reason"));
}

/// F32, F36: hosts find the same subsystem after a restart, after the array was destroyed and undeleted, and after a
/// restore from its members or from a backup.
#[test]
fn f32_names_and_hosts_outlast_everything_that_the_array_does() {
    let (mut control, _) = Testbed::raid6(4);
    control.export(&request());
    let before = only_export(&control);
    let json = control.document();
    control.restart();
    assert_eq!(only_export(&control), before, "after a restart");
    let destroy = DestroyArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    control.destroy_array(&destroy).expect("it is destroyed");
    let undelete = UndeleteArrayRequest { name: "tank".into(), ..Default::default() };
    let back = control.undelete_array(&undelete).expect("it comes back");
    assert_eq!(back.warnings, Vec::<String>::new());
    assert_eq!(only_export(&control), before, "after it was destroyed");
    control.shut_down();

    let config = parse(&json).expect("a configuration");
    assert_eq!(config.exports[0].nvme.as_ref().map(|nvme| nvme.hosts.len()), Some(1));
    std::fs::remove_dir_all(control.path("state")).expect("it can be removed");
    control.start();
    let restore = RestoreConfigRequest { json, ..Default::default() };
    control.restore_config(&restore).expect("it is restored");
    assert_eq!(only_export(&control), before, "from a backup, and what the members remember");
}

#[test]
fn arrays_of_one_subsystem_are_its_namespaces() {
    let mut control = Testbed::new();
    let mut drives = control.drives(8);
    let others = drives.split_off(4);
    control.create_array(&raid6(drives)).expect("it is created");
    let second = CreateArrayRequest { name: "second".into(), ..raid6(others) };
    control.create_array(&second).expect("it is created");
    let first = control.run(|m| m.create_export(&request())).expect("it is offered");
    let first = first.export.expect("it says which");
    assert_eq!(first.namespace, 1);

    let beside = CreateExportRequest {
        array: "second".into(),
        listen: first.listen.clone(),
        nqn: first.nqn.clone(),
        ..request()
    };
    let other = |change: fn(&mut CreateExportRequest)| {
        let mut request = beside.clone();
        change(&mut request);
        control.run(|m| m.create_export(&request))
    };
    check_refused(other(|r| r.listen = "127.0.0.1:0".into()), Exists, "the same address");
    check_refused(other(|r| r.allow_hosts.push(format!("{HOST}2"))), Exists, "hosts and security");
    check_refused(other(|r| r.namespace = 1), Exists, "namespace 1 of this subsystem");
    check_refused(other(|r| r.namespace = 33), Usage, "1 to 32");
    let made = other(|r| r.namespace = 7).expect("it is offered").export.expect("it says which");
    assert_eq!((made.nqn, made.namespace), (first.nqn.clone(), 7));
    let remove = |name: &str, force| {
        let request = RemoveExportRequest { name: name.to_owned(), force };
        control.run(|m| m.remove_export(&request))
    };
    remove("second", false).expect("nobody is connected");
    let made = other(|_| ()).expect("it is offered").export.expect("it says which");
    assert_eq!(made.namespace, 2, "the lowest that is free");
    assert_eq!(other(|_| ()).expect("it is there").result, "unchanged");
    let before = exports(&control);
    remove("tank", false).expect("the other one stays");
    assert!(!asks_for_proof(&first.listen, &first.nqn), "the subsystem is there");
    let back = CreateExportRequest { listen: first.listen, nqn: first.nqn, ..request() };
    control.export(&back);
    control.restart();
    let mut after = exports(&control);
    after.sort_by_key(|export| export.namespace);
    assert_eq!(after, before, "after a restart");
}

/// F32. History: a host that reconnected before an array was started received the answer that the subsystem does not
/// exist and that a retry has no use. It removed its device.
#[test]
fn f32_a_host_that_comes_back_before_the_array_is_let_in() {
    let mut control = Testbed::new();
    let drives = control.drives(4);
    control.create_array(&raid6(drives.clone())).expect("it is created");
    control.export(&request());
    let before = only_export(&control);
    control.shut_down();

    let hidden = |drive: &String| format!("{drive}.away");
    drives.iter().for_each(|d| std::fs::rename(d, hidden(d)).expect("it can be renamed"));
    control.start();
    assert_eq!(only_export(&control).state, "offline");
    assert!(!asks_for_proof(&before.listen, &before.nqn), "it may connect");
    drives.iter().for_each(|d| std::fs::rename(hidden(d), d).expect("it can be renamed"));
    start_recorded(&control).expect("it looks again");
    assert_eq!(only_export(&control), before);
    control.remove_export("tank");
    assert!(std::net::TcpStream::connect(&before.listen).is_err(), "nobody listens any more");
}

/// Offers an export as if its array had just been started.
fn offer_again(control: &Control, record: &ExportRecord) {
    let again = |m: &mut Manager| {
        m.exports.withdraw(record, Removal::Force)?;
        offer_recorded_exports(m, &record.array);
        Ok(())
    };
    control.run(again).expect("it goes on");
}

/// A change that cannot be recorded is refused. The list, one event, and the command of the operator report the reason.
#[test]
fn why_reservations_are_not_recorded_is_reported() {
    let (control, _) = Testbed::raid6(4);
    control.export(&request());
    let record = control.with(|m| m.records.exports[0].clone()).expect("one export");
    let file = ReservationFile::new(&StateFolder::of(&control.path("state")), &record);
    let registrants = vec![Registrant { host: [1; 16], name: HOST.into(), key: 1 }];
    let reservations = Reservations { persists: true, registrants, ..Reservations::default() };
    file.write(Some(&reservations)).expect("it can be written");
    offer_again(&control, &record);

    let path = control.path("state").join(format!("reservations/{}.json", record.array));
    std::fs::remove_file(&path).expect("it is there");
    std::fs::create_dir(&path).expect("it can be in the way");
    let release =
        || control.run(|m| m.release_export(&ReleaseExportRequest { name: "tank".into() }));
    let events = || {
        let tell = |m: &mut Manager| {
            m.exports.unrecorded_news(&m.records).into_iter().for_each(|note| m.record(note));
        };
        control.with(tell).expect("it answers");
        let reported = control.reported("reservations_unrecorded").into_iter();
        reported.map(|event| event.cause).collect::<Vec<_>>()
    };
    assert_eq!(events(), [""; 0]);
    check_refused(release(), Store, &record.array);
    let export = only_export(&control);
    assert_eq!(export.state, "online");
    assert!(export.reason.contains(&record.array), "{}", export.reason);
    assert_eq!(events(), [export.reason.as_str()]);
    assert_eq!(events().len(), 1, "it is told once");
    std::fs::remove_dir(&path).expect("it is empty");
    assert_eq!(release().expect("it is possible again").result, "changed");
    assert_eq!(only_export(&control).reason, "");
    assert_eq!(events().len(), 1);
}

/// History: reservations that a removed export leaves are in force again with the next export of its array. This was
/// not reported.
#[test]
fn reservations_that_do_not_go_with_their_export_are_reported() {
    let (control, _) = Testbed::raid6(4);
    control.export(&request());
    let array = control.with(|m| m.records.exports[0].array.clone()).expect("one export");
    let path = control.path("state").join(format!("reservations/{array}.json"));
    std::fs::create_dir_all(&path).expect("a folder can be in the way");
    let remove = RemoveExportRequest { name: "tank".into(), force: true };
    assert_eq!(control.run(|m| m.remove_export(&remove)).expect("it goes").result, "removed");
    let reported = control.reported("reservations_unrecorded");
    let [left] = &reported[..] else { panic!("one event: {reported:?}") };
    assert_eq!(left.object, "export/tank");
    assert!(left.cause.contains(&array) && left.next_action.contains("writable"), "{left:?}");
}

/// Reservations are in force after a restart. If they cannot be read, the export is not offered until the operator
/// decides.
#[test]
fn reservations_outlast_the_daemon_and_are_never_lost_silently() {
    let (mut control, _) = Testbed::raid6(4);
    control.export(&request());
    let before = only_export(&control);
    assert_eq!(before.reservation, None);
    let release = |control: &Control| {
        let request = ReleaseExportRequest { name: "tank".into() };
        control.run(|m| m.release_export(&request)).map(|change| change.result)
    };
    assert_eq!(release(&control).expect("there is nothing to end"), "unchanged");
    let record = control.with(|m| m.records.exports[0].clone()).expect("one export");
    control.shut_down();

    let file = ReservationFile::new(&StateFolder::of(&control.path("state")), &record);
    let registrant = Registrant { host: [1; 16], name: HOST.into(), key: 0x1f };
    let held = Held { kind: ReservationType::WriteExclusive, holder: Some([1; 16]) };
    let (held, registrants) = (Some(held), vec![registrant]);
    let reservations = Reservations { generation: 3, persists: true, held, registrants };
    file.write(Some(&reservations)).expect("it can be written");
    control.start();
    let shown = only_export(&control).reservation.expect("it is in force");
    assert_eq!((shown.r#type.as_str(), shown.persistent), ("write-exclusive", true));
    let [known] = shown.registrants.try_into().expect("one registrant");
    assert_eq!((known.nqn.as_str(), known.key.as_str(), known.holds), (HOST, "0x1f", true));
    control.shut_down();

    let path = control.path("state").join(format!("reservations/{}.json", record.array));
    std::fs::write(&path, "torn").expect("it can be damaged");
    control.start();
    let export = only_export(&control);
    assert_eq!(export.state, "offline");
    assert!(export.reason.contains("strake export release tank"), "{}", export.reason);
    assert!(!asks_for_proof(&before.listen, &before.nqn), "hosts are told to wait");
    assert_eq!(release(&control).expect("it is put aside"), "changed");
    // The host that connected for the check may still be connected.
    let after = Export { connections: 0, ..only_export(&control) };
    assert_eq!(after, before);
    assert!(path.with_extension("json.damaged").exists(), "for whoever wants to know");

    // Hosts also wait if the address was in use at the start of the daemon and became free later.
    std::fs::write(&path, "torn").expect("it can be damaged");
    offer_again(&control, &record);
    assert_eq!(only_export(&control).state, "offline");
    assert!(!asks_for_proof(&before.listen, &before.nqn), "hosts are told to wait");
    assert_eq!(release(&control).expect("it is put aside"), "changed");

    // The next export starts without reservations: they are removed with their export.
    file.write(Some(&reservations)).expect("it can be written");
    control.remove_export("tank");
    assert!(!path.exists(), "with its export");
    control.export(&request());
    assert_eq!(only_export(&control).reservation, None);
    assert_eq!(control.reported("reservations_released").len(), 2);
    let nothing = ReleaseExportRequest { name: "other".into() };
    let unknown = control.run(|m| m.release_export(&nothing));
    check_refused(unknown, NotFound, "existing names: tank");
    let nbd = CreateExportRequest { via: "nbd".into(), name: "block".into(), ..request() };
    let nbd = CreateExportRequest { allow_hosts: Vec::new(), ..nbd };
    control.run(|m| m.create_export(&nbd)).expect("it is offered over NBD");
    let block = ReleaseExportRequest { name: "block".into() };
    check_refused(control.run(|m| m.release_export(&block)), Usage, "NBD");
}
