//! Exports over NVMe/TCP: who may be let in, what is refused, and what is remembered.

use super::{Folder, check_refused, exports, raid6, stop};
use crate::control::Control;
use crate::error::ControlErrorKind;
use crate::store::Config;
use strake_api::v1::{
    CreateExportRequest, DestroyArrayRequest, Export, RestoreConfigRequest, UndeleteArrayRequest,
};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";

fn request() -> CreateExportRequest {
    CreateExportRequest {
        array: "tank".into(),
        via: "nvme-tcp".into(),
        listen: "127.0.0.1:0".into(),
        allow_hosts: vec![HOST.into()],
        ..Default::default()
    }
}

fn only_export(control: &Control) -> Export {
    let [export] = exports(control).try_into().expect("one export");
    export
}

#[test]
fn what_nobody_may_reach_or_what_would_clash_is_refused() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    let usage = ControlErrorKind::Usage;
    let other = |change: fn(&mut CreateExportRequest)| {
        let mut request = request();
        change(&mut request);
        control.run(|m| m.create_export(&request))
    };
    check_refused(other(|r| r.allow_hosts.clear()), usage, "--allow-host");
    check_refused(other(|r| r.allow_hosts.push("somebody".into())), usage, "is no NQN");
    check_refused(other(|r| r.nqn = "nqn.".into()), usage, "is no NQN");
    check_refused(other(|r| r.listen = "unix:/x".into()), usage, "an address and a port");
    check_refused(other(|r| r.via = "nbd".into()), usage, "NBD knows neither");
    check_refused(other(|r| r.via = "iscsi".into()), usage, "nbd and nvme-tcp");

    let made = other(|_| ()).expect("it is offered").export.expect("it is told");
    assert_eq!(
        (made.via.as_str(), made.allow_hosts.as_slice()),
        ("nvme-tcp", &[HOST.to_owned()][..])
    );
    assert!(made.nqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{}", made.nqn);
    assert_eq!(made.uri, format!("nvme-tcp://{}/{}", made.listen, made.nqn));
    let exists = ControlErrorKind::Exists;
    check_refused(other(|r| r.name = "second".into()), exists, "export tank offers this array");
    let taken = CreateExportRequest {
        array: "tank".into(),
        name: "beside".into(),
        listen: made.listen,
        ..Default::default()
    };
    let beside = control.run(|m| m.create_export(&taken));
    check_refused(beside, ControlErrorKind::State, "another protocol");
    stop(&control);
}

/// F32, F36: hosts find the same subsystem after a restart, after the array was destroyed and brought back, and from
/// what its members or a backup remember.
#[test]
fn f32_names_and_hosts_outlast_everything_that_the_array_does() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    control.run(|m| m.create_export(&request())).expect("it is offered");
    let before = only_export(&control);
    let json = control.run(|m| m.config_document()).expect("it answers").json;
    stop(&control);
    drop(control);

    let control = folder.control();
    assert_eq!(only_export(&control), before, "after a restart");
    let destroy = DestroyArrayRequest { name: "tank".into(), force: true, ..Default::default() };
    control.destroy_array(&destroy).expect("it is destroyed");
    let undelete = UndeleteArrayRequest { name: "tank".into(), ..Default::default() };
    let back = control.undelete_array(&undelete).expect("it comes back");
    assert_eq!(back.warnings, Vec::<String>::new());
    assert_eq!(only_export(&control), before, "after it was destroyed");
    stop(&control);
    drop(control);

    let config: Config = serde_json::from_str(&json).expect("a configuration");
    assert_eq!(config.exports[0].nvme.as_ref().map(|nvme| nvme.hosts.len()), Some(1));
    std::fs::remove_dir_all(folder.path("state")).expect("it can be removed");
    let control = folder.control();
    let restore = RestoreConfigRequest { json, ..Default::default() };
    control.restore_config(&restore).expect("it is restored");
    assert_eq!(only_export(&control), before, "from a backup, and what the members remember");
    stop(&control);
}
