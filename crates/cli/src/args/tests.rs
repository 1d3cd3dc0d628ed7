use super::Cli;
use clap::Parser as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use strake_wording::{ApiCommand, EachRequest, each_request, import};

/// The words of a command as a shell takes them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut chars) = (vec![String::new()], false, line.chars());
    while let Some(c) = chars.next() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            '\\' if !quoted => words.last_mut().expect("a word").extend(chars.next()),
            c => words.last_mut().expect("a word").push(c),
        }
    }
    words
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["strake".to_owned()].into_iter().chain(words(line)))
}

/// Fields that a request needs in addition to the tested field. Some of these fields exclude each other.
fn bases(request: &str) -> Vec<Value> {
    match request {
        "AddHookRequest" => vec![
            json!({ "kind": "webhook" }),
            json!({ "kind": "exec", "target": "/bin/a b" }),
            json!({ "kind": "email", "target": "a@h", "from": "b@h", "server": "smtp://h" }),
        ],
        "AddHostRequest" => vec![
            json!({ "new_secret": true }),
            json!({ "known": true, "new_tls_key": true }),
            json!({ "new_controller_secret": true }),
        ],
        "AwaitArray" => vec![json!({ "name": "tank", "goal": "online" })],
        "ChangeJobRequest" => vec![
            json!({ "id": "tank/rebuild", "action": "pause" }),
            json!({ "action": "set", "priority": 7 }),
        ],
        "ConnectDriveRequest" | "DiscoverDrivesRequest" => {
            vec![json!({}), json!({ "secret": "DHHC-1:00:x:" })]
        }
        "SanitizeDriveRequest" => vec![json!({ "action": "block" })],
        "VerifyAuditRequest" => vec![json!({ "number": 7, "hash": "ab" })],
        "ChangeScrubRequest" => vec![json!({ "action": "pause" })],
        "GetArrayRequest" | "WatchArrayRequest" | "GetScrubRequest" => {
            vec![json!({ "name": "tank" })]
        }
        "CreateVolumeRequest" | "ResizeVolumeRequest" => {
            vec![json!({ "name": "tank/vm1", "size_bytes": 1_073_741_824 })]
        }
        "SetVolumeRequest" => vec![
            json!({ "name": "tank/vm1", "thick": true }),
            json!({ "name": "tank/vm1", "quota_bytes": 0 }),
        ],
        "SetQosRequest" => vec![json!({ "kind": "volume", "name": "tank/vm1", "iops": 7 })],
        "GetQosRequest" | "ClearQosRequest" => {
            vec![json!({ "kind": "volume", "name": "tank/vm1" })]
        }
        "CreateSnapshotsRequest" => {
            vec![json!({ "snapshots": [{ "volume": "tank/vm1", "name": "before" }] })]
        }
        "SetExportRequest" => vec![json!({ "allow_hosts": ["nqn.a"], "deny_hosts": ["nqn.b"] })],
        "SetArrayRequest" => {
            vec![json!({ "auto_replace": true }), json!({ "scrub_every_s": 5000 })]
        }
        _ => vec![json!({})],
    }
}

/// Possible values of a field; one of them has the type of the field.
fn values(field: &str) -> Vec<Value> {
    match field {
        "consistency" => vec![json!("strict"), json!(null)],
        "accept" => vec![json!(["redundancy"]), json!(["data"])],
        "via" => vec![json!("nvme-tcp")],
        "severity" => vec![json!("critical")],
        "hold_s" | "burst_ms" => vec![json!(12)],
        "area" => vec![json!(2)],
        "block_bytes" => vec![json!(4096)],
        "erase" => vec![json!("user")],
        "activate" => vec![json!("now")],
        "kind" | "action" | "goal" => vec![],
        _ => vec![json!(true), json!(7), json!("a, 'b'\\$c"), json!(["d,e\\", "\"f\" g"])],
    }
}

fn typed<R: ApiCommand + DeserializeOwned>(request: Value) -> Option<String> {
    serde_json::from_value::<R>(request).ok().map(|request| request.line().typed)
}

/// The number of parsed commands.
struct Parsed(usize);

impl EachRequest for Parsed {
    fn request<R: ApiCommand + Default + Serialize + DeserializeOwned>(&mut self, name: &str) {
        let default = serde_json::to_value(R::default()).expect("it has a JSON form");
        let fields: Vec<&String> = default.as_object().expect("a message").keys().collect();
        let mut bases = bases(name);
        for base in &mut bases {
            let mut request = default.clone();
            for (field, value) in base.as_object().expect("fields") {
                request[field] = value.clone();
            }
            *base = request;
            let line = typed::<R>(base.clone()).expect("the base is a request");
            parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let is_placeholder = |w: &&str| *w != "FILE" && w.chars().all(char::is_uppercase);
            assert_eq!(line.split(' ').find(is_placeholder), None, "{line}");
        }
        for field in fields {
            let with = |base: &Value, value| {
                let mut request = base.clone();
                request[field] = value;
                typed::<R>(request)
            };
            let each =
                bases.iter().flat_map(|base| values(field).into_iter().map(|v| with(base, v)));
            let lines: Vec<String> = each.flatten().collect();
            assert!(lines.is_empty() || lines.iter().any(|line| parse(line).is_ok()), "{lines:#?}");
            self.0 += lines.len();
        }
    }
}

/// The history: records had "DRIVE" or "NAME" for empty fields, options of hooks without values, and intervals in a
/// unit that the command line did not accept.
#[test]
fn every_command_of_the_record_can_be_typed() {
    let mut parsed = Parsed(0);
    each_request(&mut parsed);
    assert!(parsed.0 > 150, "{} commands were parsed", parsed.0);
}

/// The history: the parser of the command line ended a drive path at a comma.
#[test]
fn a_remedy_with_unusual_paths_is_typed_as_it_is_printed() {
    let drives = ["/dev/disk/by-path/a,b", "/x\\", "/it's", "/a b"].map(str::to_owned);
    let request = strake_api::v1::ImportArraysRequest { drives: drives.into(), ..import("tank") };
    let line = request.line().advised;
    let parsed = parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let super::Command::Array(super::array::ArrayVerb::Import(parsed)) = parsed.command else {
        panic!("{line}: {parsed:?}")
    };
    assert_eq!(
        parsed.drives.into_iter().flat_map(|list| list.0).collect::<Vec<_>>(),
        request.drives
    );
}
