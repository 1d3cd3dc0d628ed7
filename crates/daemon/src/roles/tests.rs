//! Every call with every role, on the services of a daemon without arrays.

use super::{CALLS, Checked, PACKAGE, required};
use crate::access::{Admission, Groups, Peer, Stranger, Visitor};
use crate::run::control_threads;
use crate::shared::Shared;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::collections::BTreeSet;
use std::convert::Infallible;
use strake_api::FILE_DESCRIPTOR_SET;
use strake_api::v1::array_service_server::ArrayServiceServer;
use strake_api::v1::audit_service_server::AuditServiceServer;
use strake_api::v1::config_service_server::ConfigServiceServer;
use strake_api::v1::daemon_service_server::DaemonServiceServer;
use strake_api::v1::drive_service_server::DriveServiceServer;
use strake_api::v1::event_service_server::EventServiceServer;
use strake_api::v1::export_service_server::ExportServiceServer;
use strake_api::v1::job_service_server::JobServiceServer;
use strake_api::v1::pool_service_server::PoolServiceServer;
use strake_api::v1::qos_service_server::QosServiceServer;
use strake_api::v1::spare_service_server::SpareServiceServer;
use strake_api::v1::volume_service_server::VolumeServiceServer;
use strake_api::v1::{AuditEntry, ListAuditRequest, VerifyAuditRequest};
use strake_control::{Control, Options, Role};
use strake_testkit::{Chance, Folder};
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// Calls that change nothing although they are not for viewers: their result may reveal something, they ask other
/// hosts, or they open a drive.
const NO_COMMANDS: [&str; 3] =
    ["ArrayService/ListImportable", "DriveService/DiscoverDrives", "DriveService/GetFirmware"];

/// A call of the interface.
struct Method {
    /// Such as `ArrayService/GetArray`.
    name: String,
    input: DescriptorProto,
}

fn file() -> FileDescriptorProto {
    let set: FileDescriptorSet = prost::Message::decode(FILE_DESCRIPTOR_SET).expect("it is valid");
    set.file.into_iter().find(|file| file.package() == "strake.v1").expect("it is ours")
}

fn methods() -> Vec<Method> {
    let file = file();
    let message = |name: &str| {
        let name = name.trim_start_matches(PACKAGE.replace('/', ".").as_str());
        file.message_type.iter().find(|known| known.name() == name).expect("it exists").clone()
    };
    let of_service = |service: &prost_types::ServiceDescriptorProto| -> Vec<Method> {
        let name = |method: &str| format!("{}/{method}", service.name());
        let method = |m: &prost_types::MethodDescriptorProto| Method {
            name: name(m.name()),
            input: message(m.input_type()),
        };
        service.method.iter().map(method).collect()
    };
    file.service.iter().flat_map(of_service).collect()
}

/// A message of this type with drawn fields, in the wire format of protobuf. Texts are empty or the name of an array
/// that does not exist.
fn drawn(input: &DescriptorProto, chance: &mut Chance) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in &input.field {
        let (key, text) = ((field.number() as u8) << 3, *b"tank");
        assert!(field.number() < 16, "a key of one byte");
        match field.r#type() {
            _ if chance.one_in(3) => {}
            Type::String | Type::Bytes => {
                bytes.extend([key | 2, text.len() as u8]);
                bytes.extend(text);
            }
            Type::Bool => bytes.extend([key, 1]),
            Type::Uint32 | Type::Uint64 | Type::Int32 => bytes.extend([key, chance.below(4) as u8]),
            Type::Message => bytes.extend([key | 2, 0]),
            other => panic!("{}: {other:?} is not drawn yet", field.name()),
        }
    }
    bytes
}

type Calls = Box<dyn FnMut(http::Request<Body>) -> BoxFuture<http::Response<Body>, Infallible>>;

/// All services behind their checks.
struct Daemon {
    _state: Folder,
    runtime: Runtime,
    control: Control,
    services: Vec<(&'static str, Calls)>,
}

impl Daemon {
    fn start() -> Self {
        let state = Folder::in_memory("straked-roles");
        let control = Control::start(&state, Options::default()).expect("it starts");
        let shared = Shared::new(control.clone(), "/nowhere");
        let mut services: Vec<(&'static str, Calls)> = Vec::new();
        macro_rules! add {
            ($($server:ident)*) => {$({
                let mut service = Checked::new($server::new(shared.clone()), &control);
                let call: Calls = Box::new(move |request| service.call(request));
                services.push((<$server<Shared> as NamedService>::NAME, call));
            })*};
        }
        add! { ArrayServiceServer AuditServiceServer ConfigServiceServer DaemonServiceServer DriveServiceServer }
        add! { EventServiceServer ExportServiceServer JobServiceServer PoolServiceServer SpareServiceServer }
        add! { VolumeServiceServer }
        add! { QosServiceServer }
        Self { _state: state, runtime: control_threads().expect("threads"), control, services }
    }

    /// Calls `method`, and returns the code of the answer. The trailer of a successful answer is not read.
    fn call(&mut self, method: &str, message: &[u8], role: Option<Role>) -> Code {
        let known = |role| Visitor::Known(Peer { uid: role as u32, pid: 4711, role });
        self.call_as(method, message, role.map(known)).0
    }

    /// As [`call`](Self::call), of any peer. Also returns the message of the answer.
    fn call_as(
        &mut self,
        method: &str,
        message: &[u8],
        visitor: Option<Visitor>,
    ) -> (Code, String) {
        let mut frame = vec![0];
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(message);
        let path = format!("{PACKAGE}{method}");
        let mut request = http::Request::post(&path)
            .header("content-type", "application/grpc")
            .body(Body::new(http_body_util::Full::from(frame)))
            .expect("it is valid");
        if let Some(visitor) = visitor {
            request.extensions_mut().insert(visitor);
        }
        let (service, _) = method.split_once('/').expect("it names a service");
        let service = format!("strake.v1.{service}");
        let known = self.services.iter_mut().find(|(name, _)| *name == service);
        let (_, call) = known.unwrap_or_else(|| panic!("{service} is not served"));
        let answer = call(request);
        let Ok(answer) = self.runtime.block_on(answer);
        let status = Status::from_header_map(answer.headers());
        status.map_or((Code::Ok, String::new()), |s| (s.code(), s.message().to_owned()))
    }

    /// All entries of the audit log.
    fn entries(&self) -> Vec<AuditEntry> {
        let mut entries = Vec::new();
        loop {
            let before = entries.first().map_or(0, |entry: &AuditEntry| entry.number);
            let request = ListAuditRequest { before, ..ListAuditRequest::default() };
            let mut earlier = self.control.audit().list(&request).expect("it reads").entries;
            if before == 1 || earlier.is_empty() {
                return entries;
            }
            earlier.append(&mut entries);
            entries = earlier;
        }
    }
}

#[test]
fn every_call_has_one_role() {
    let mut listed: Vec<&str> = CALLS.iter().flat_map(|(_, calls)| calls.iter().copied()).collect();
    listed.sort_unstable();
    let methods = methods();
    let known: BTreeSet<&str> = methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!(listed, known.into_iter().collect::<Vec<_>>());
    for (role, calls) in CALLS {
        assert!(calls.is_sorted());
        calls.iter().for_each(|call| assert_eq!(required(&format!("{PACKAGE}{call}")), role));
    }
    assert_eq!(required("/strake.v1.ArrayService/Unknown"), Role::Admin);
    assert_eq!(required("/other.v1.ArrayService/GetArray"), Role::Admin);
    assert_eq!(required("/grpc.health.v1.Health/Check"), Role::Viewer);
}

/// docs/api.md is what people read.
#[test]
fn the_documentation_lists_the_role_of_every_call() {
    let page = include_str!("../../../../docs/api.md");
    for (role, calls) in CALLS {
        let row = format!("| {role} |");
        let row = page.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("docs/api.md has no row of {role}"));
        let names: BTreeSet<&str> = row.split(['|', ',', ' ']).filter(|w| !w.is_empty()).collect();
        for call in calls {
            let (_, name) = call.split_once('/').expect("it names a service");
            assert!(
                role == Role::Viewer || names.contains(name),
                "{call} is not in the row {role}"
            );
        }
    }
}

/// Every call with every role and drawn requests: a call beyond the role is denied, every other one is answered, and
/// the audit log has every command that ran. `STRAKE_CALLS` sets the number of calls, for a long run.
#[test]
fn no_call_goes_beyond_its_role_random() {
    let calls = std::env::var("STRAKE_CALLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let mut chance = Chance::new(20_261_128);
    let mut daemon = Daemon::start();
    let methods = methods();
    let (mut denied, mut commands) = (0, Vec::new());
    for at in 0..calls {
        // Every pair first, then drawn ones.
        let pair = if at < methods.len() * 3 { at } else { chance.below(methods.len() * 3) };
        let (method, role) = (&methods[pair / 3], Role::ALL[pair % 3]);
        let message = drawn(&method.input, &mut chance);
        let code = daemon.call(&method.name, &message, Some(role));
        let required = required(&format!("{PACKAGE}{}", method.name));
        let what = format!("call {at}: {} {message:?} as {role}: {code:?}", method.name);
        if role < required {
            assert_eq!(code, Code::PermissionDenied, "{what}");
            denied += 1;
        } else if required == Role::Viewer || NO_COMMANDS.contains(&method.name.as_str()) {
            assert_ne!(code, Code::PermissionDenied, "{what}");
        } else {
            // An operator may not consent to a loss, and has a budget.
            let is_refused = matches!(code, Code::PermissionDenied | Code::ResourceExhausted);
            assert!(role == Role::Operator || !is_refused, "{what}");
            let is_dry = is_dry(&method.input, &message);
            let ran = !is_refused && !is_dry;
            commands.extend(ran.then_some((role as u32, code == Code::Ok)));
        }
    }
    let entries = daemon.entries();
    let ended = |entry: &AuditEntry| {
        let is_done = entry.result != "refused";
        (entry.phase == "ended").then(|| (entry.uid.expect("a caller"), is_done))
    };
    let recorded: Vec<(u32, bool)> = entries.iter().filter_map(ended).collect();
    assert_eq!(recorded, commands, "{denied} of {calls} calls were denied");
    assert!(commands.iter().filter(|(uid, _)| *uid == Role::Operator as u32).count() >= 20);
    assert_eq!(entries.iter().filter(|entry| entry.phase == "started").count(), commands.len());
    let report = daemon.control.audit().verify(&VerifyAuditRequest::default()).expect("it reads");
    assert_eq!(
        (report.faults, report.first, report.entries),
        (Vec::new(), 1, entries.len() as u64)
    );
    assert!(entries.iter().any(|entry| entry.phase == "denied" && entry.role == "viewer"));
}

/// True if the field `dry_run` is set.
fn is_dry(input: &DescriptorProto, message: &[u8]) -> bool {
    let field = input.field.iter().find(|field| field.name() == "dry_run");
    let Some(key) = field.map(|field| (field.number() as u8) << 3) else { return false };
    let mut rest = message;
    while let [tag, value, after @ ..] = rest {
        if *tag == key {
            return *value == 1;
        }
        let bytes = if tag & 7 == 2 { usize::from(*value) } else { 0 };
        rest = &after[bytes..];
    }
    false
}

#[test]
fn a_call_without_a_caller_is_refused() {
    let mut daemon = Daemon::start();
    for method in methods() {
        assert_eq!(daemon.call(&method.name, &[], None), Code::Unauthenticated, "{}", method.name);
    }
}

/// History: the daemon closed the connection, and the reason was unknown to the user.
#[test]
fn every_call_of_a_user_without_a_role_is_denied_and_names_the_groups() {
    let mut daemon = Daemon::start();
    let others = Groups { operators: Some(4_000_001), viewers: None };
    let admission = Admission { admins: 0, others };
    let stranger = Visitor::Stranger(Stranger { uid: 4711, pid: 1, admission });
    for method in methods() {
        let (code, message) = daemon.call_as(&method.name, &[], Some(stranger));
        assert_eq!(code, Code::PermissionDenied, "{}", method.name);
        for words in ["user 4711 has no role", "(role admin)", "4000001 (role operator)"] {
            assert!(message.contains(words), "{message}");
        }
        assert!(!message.contains("viewer"), "{message}");
    }
    let entries = daemon.entries();
    assert_eq!(entries.iter().filter(|entry| entry.uid == Some(4711)).count(), 1, "{entries:?}");
}

#[test]
fn the_groups_with_a_role_are_named_where_the_host_knows_their_names() {
    let others = Groups { operators: Some(7), viewers: Some(8) };
    let stranger = Stranger { uid: 1, pid: 1, admission: Admission { admins: 0, others } };
    let reason = stranger.reason("root:x:0:\nops:x:7:ann\n");
    assert!(
        reason.ends_with(": root (role admin), ops (role operator), 8 (role viewer)"),
        "{reason}"
    );
}

/// An operator keeps arrays healthy, but does not overwrite data.
#[test]
fn consents_need_an_administrator() {
    let mut daemon = Daemon::start();
    let methods = methods();
    let cases = [
        ("ArrayService/AddDrive", "overwrite", ""),
        ("ArrayService/AddDrive", "drive", "/srv/file"),
        ("ArrayService/ReplaceMember", "overwrite", ""),
        ("ArrayService/ReplaceMember", "drive", "/srv/file"),
        ("ArrayService/StartScrub", "mode", "trust_data"),
        ("SpareService/AddSpare", "overwrite", ""),
        ("SpareService/AddSpare", "drive", "/srv/file"),
        ("ArrayService/ReaddMember", "drive", "/srv/file"),
        ("ArrayService/ReplaceMember", "drive", "null:1TiB"),
        ("VolumeService/ResizeVolume", "discard_tail", ""),
    ];
    for (name, field, text) in cases {
        let method = methods.iter().find(|method| method.name == name).expect("it exists");
        let field = method.input.field.iter().find(|known| known.name() == field);
        let field = field.expect("it exists");
        let mut message = vec![(field.number() as u8) << 3, 1];
        if field.r#type() == Type::String {
            message = vec![(field.number() as u8) << 3 | 2, text.len() as u8];
            message.extend(text.as_bytes());
        }
        let as_operator = daemon.call(name, &message, Some(Role::Operator));
        assert_eq!(as_operator, Code::PermissionDenied, "{name}");
        let as_admin = daemon.call(name, &message, Some(Role::Admin));
        assert_ne!(as_admin, Code::PermissionDenied, "{name}");
        let without = daemon.call(name, &[], Some(Role::Operator));
        assert_ne!(without, Code::PermissionDenied, "{name}");
    }
}
