//! `--output json` is the message itself, for every answer there is.

use crate::fake::{Script, against, array};
use serde_json::Value;
use strake_api::v1::Array;

/// Commands, and a field that their answer has.
const ANSWERS: [(&str, &str); 49] = [
    ("status", "problems"),
    ("doctor", "checks"),
    ("array create tank --level 6 --drives ram:1GiB", "plan"),
    ("array list", "arrays"),
    ("array show tank", "members"),
    ("array stats tank", "requests"),
    ("array fail tank --member 1", "warnings"),
    ("array replace tank --member 1 --with ram:1GiB", "array"),
    ("array add tank --drive ram:1GiB", "array"),
    ("array readd tank", "array"),
    ("array rebuild tank", "array"),
    ("array grow tank", "array"),
    ("array upgrade-format tank", "array"),
    ("array rename tank vault", "array"),
    ("array set tank --auto-readd on", "array"),
    ("array import", "arrays"),
    ("array unload tank", "array"),
    ("array destroy tank --yes", "array"),
    ("array undelete tank", "array"),
    ("drive list", "drives"),
    ("drive show ram:1GiB", "spare_of"),
    ("drive errors ram:1GiB", "errors"),
    ("drive smart ram:1GiB", "warnings"),
    ("drive telemetry ram:1GiB --file telemetry.bin", "generation"),
    ("drive format ram:1GiB --yes", "plan"),
    ("drive sanitize ram:1GiB --action block --yes", "plan"),
    ("drive firmware ram:1GiB", "slots"),
    ("drive locate ram:1GiB", "drive"),
    ("drive discover nvme-tcp://host", "offers"),
    ("drive clean ram:1GiB --yes", "plan"),
    ("drive take pci:0000:3b:00.0", "drives"),
    ("drive release pci:0000:3b:00.0", "drives"),
    ("spare add ram:1GiB", "spare"),
    ("spare list", "spares"),
    ("spare remove ram:1GiB", "spare"),
    ("job list", "jobs"),
    ("job pause tank/rebuild", "job"),
    ("event list", "events"),
    ("hook add pager --webhook https://a.example/", "hook"),
    ("hook list", "hooks"),
    ("host list", "hosts"),
    ("config show", "arrays"),
    ("config backup backup.json", "file"),
    ("export create tank --via nbd --listen 127.0.0.1:10809", "export"),
    ("export list", "exports"),
    ("export referral list", "referrals"),
    ("export referral add nvme-tcp://192.0.2.8", "referral"),
    ("daemon status", "cpu_us"),
    ("wait tank --for healthy", "states"),
];

fn script() -> Script {
    Script { arrays: vec![array(&["online"], &["in_sync"; 4])], ..Script::default() }
}

/// Every key of `value` and of what is inside it.
fn keys(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                out.push(key.clone());
                keys(field, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_answer_is_one_document_with_the_fields_of_its_message() {
    for (line, field) in ANSWERS {
        let arguments: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        let ran = against("answers", script(), &arguments);
        let document: Value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|e| panic!("{line}: {e}\n{}{}", ran.stdout, ran.stderr));
        assert!(document.get(field).is_some(), "{line}: no {field} in {document}");
        let mut all = Vec::new();
        keys(&document, &mut all);
        let odd = all.iter().find(|k| {
            !k.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        });
        assert_eq!(odd, None, "{line}: a key that is no snake_case");
    }
}

#[test]
fn the_message_comes_back_from_its_json() {
    let mut sent = array(&["online", "degraded"], &["in_sync", "faulty"]);
    sent.size_bytes = u64::MAX;
    let script = Script { arrays: vec![sent.clone()], ..Script::default() };
    let ran = against("back", script, &["array", "show", "tank", "--output", "json"]);
    let back: Array = serde_json::from_str(&ran.stdout).expect("one document");
    assert_eq!(back, sent);
    assert!(ran.stdout.contains(&format!("\"size_bytes\": {}", u64::MAX)), "a number, not a text");
}
