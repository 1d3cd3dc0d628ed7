use crate::FILE_DESCRIPTOR_SET;
use crate::v1::{Array, Controller, Drive, Export, Progress, Queue};
use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use serde_json::Value;
use std::collections::BTreeSet;

fn ours() -> FileDescriptorProto {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the descriptor set is valid");
    set.file.into_iter().find(|f| f.package() == "strake.v1").expect("it has our package")
}

fn check_fields(message: &str, json: &Value) {
    let file = ours();
    let descriptor =
        file.message_type.iter().find(|m| m.name() == message).expect("the message exists");
    let proto: BTreeSet<&str> = descriptor.field.iter().map(|f| f.name()).collect();
    let printed: BTreeSet<&str> =
        json.as_object().expect("a message is an object").keys().map(String::as_str).collect();
    assert_eq!(printed, proto, "JSON of {message} differs from the proto file");
}

fn json(message: &impl serde::Serialize) -> Value {
    serde_json::to_value(message).expect("messages have a JSON form")
}

#[test]
fn json_has_the_names_of_the_proto_file() {
    check_fields("Array", &json(&Array::default()));
    check_fields("Drive", &json(&Drive::default()));
    check_fields("Export", &json(&Export::default()));
    check_fields("Controller", &json(&Controller::default()));
    check_fields("Queue", &json(&Queue::default()));
    check_fields("Progress", &json(&Progress::default()));
}

#[test]
fn integers_are_numbers_and_absent_is_null() {
    let progress = Progress { job: "rebuild".into(), done_bytes: 1 << 40, ..Default::default() };
    let json = json(&progress);
    assert_eq!(json["done_bytes"], Value::from(1_u64 << 40));
    assert_eq!(json["eta_s"], Value::Null);
}

#[test]
fn json_reads_back() {
    let array = Array { name: "tank".into(), states: vec!["online".into()], ..Default::default() };
    let text = serde_json::to_string(&array).expect("messages have a JSON form");
    assert_eq!(serde_json::from_str::<Array>(&text).expect("it reads back"), array);
}

#[test]
fn the_descriptor_names_every_call() {
    let calls: Vec<String> = ours()
        .service
        .iter()
        .flat_map(|s| s.method.iter().map(|m| format!("{}.{}", s.name(), m.name())))
        .collect();
    assert_eq!(
        calls,
        [
            "DaemonService.GetDaemon",
            "DaemonService.GetStatus",
            "DaemonService.StopDaemon",
            "DaemonService.RunDoctor",
            "ConfigService.GetConfig",
            "ConfigService.RestoreConfig",
            "EventService.ListEvents",
            "EventService.FollowEvents",
            "EventService.AddHook",
            "EventService.ListHooks",
            "EventService.RemoveHook",
            "EventService.TestHook",
            "AuditService.ListAudit",
            "AuditService.VerifyAudit",
            "JobService.ListJobs",
            "JobService.ChangeJob",
            "SpareService.AddSpare",
            "SpareService.ListSpares",
            "SpareService.RemoveSpare",
            "DriveService.ListDrives",
            "DriveService.GetDrive",
            "DriveService.GetDriveHealth",
            "DriveService.ReadTelemetry",
            "DriveService.LocateDrive",
            "DriveService.CleanDrive",
            "DriveService.FormatDrive",
            "DriveService.SanitizeDrive",
            "DriveService.GetFirmware",
            "DriveService.UpdateFirmware",
            "DriveService.TakeDrives",
            "DriveService.ReleaseDrives",
            "DriveService.ConnectDrive",
            "DriveService.DisconnectDrive",
            "DriveService.DiscoverDrives",
            "ArrayService.CreateArray",
            "ArrayService.ListArrays",
            "ArrayService.GetArray",
            "ArrayService.GetArrayStats",
            "ArrayService.ListTraces",
            "ArrayService.WatchArray",
            "ArrayService.FailMember",
            "ArrayService.ReplaceMember",
            "ArrayService.AddDrive",
            "ArrayService.ListImportable",
            "ArrayService.ImportArrays",
            "ArrayService.UnloadArray",
            "ArrayService.DestroyArray",
            "ArrayService.ReaddMember",
            "ArrayService.RebuildArray",
            "ArrayService.RenameArray",
            "ArrayService.GrowArray",
            "ArrayService.UpgradeFormat",
            "ArrayService.UndeleteArray",
            "ArrayService.SetArray",
            "ArrayService.StartScrub",
            "ArrayService.ChangeScrub",
            "ArrayService.GetScrub",
            "PoolService.CreatePool",
            "PoolService.ListPools",
            "PoolService.GetPool",
            "PoolService.DestroyPool",
            "VolumeService.CreateVolume",
            "VolumeService.ListVolumes",
            "VolumeService.GetVolume",
            "VolumeService.ResizeVolume",
            "VolumeService.SetVolume",
            "VolumeService.RenameVolume",
            "VolumeService.DestroyVolume",
            "VolumeService.CreateSnapshots",
            "VolumeService.CloneSnapshot",
            "VolumeService.RollbackVolume",
            "VolumeService.CompareVolumes",
            "QosService.SetQos",
            "QosService.ListQos",
            "QosService.GetQos",
            "QosService.ClearQos",
            "ExportService.CreateExport",
            "ExportService.ListExports",
            "ExportService.GetExport",
            "ExportService.RemoveExport",
            "ExportService.SetExport",
            "ExportService.ReleaseExport",
            "ExportService.AddHost",
            "ExportService.ListHosts",
            "ExportService.RemoveHost",
            "ExportService.DisconnectHost",
            "ExportService.AddReferral",
            "ExportService.ListReferrals",
            "ExportService.RemoveReferral",
        ]
    );
}

#[test]
fn field_names_are_snake_case_and_numbers_unique() {
    for message in ours().message_type {
        let mut numbers = BTreeSet::new();
        for field in &message.field {
            let name = field.name();
            let fine =
                name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            assert!(fine, "{}.{name}", message.name());
            assert!(numbers.insert(field.number()), "{}.{name} reuses a number", message.name());
        }
    }
}
