use super::check;
use super::fixtures::*;
use crate::tables::clock::Clock;
use crate::tables::{
    config, daemon, doctor, drive, errors, event, export, health, hook, job, spare, stats,
};
use strake_api::v1::{
    ArrayStats, ConfigChange, ConfigDocument, DiscoverDrivesResponse, DoctorCheck, DoctorReport,
    Drive, DriveChange, DriveHealth, DriveLogEntry, DrivePath, Event, Export, ExportChange,
    HealthSensor, Hook, HookChange, Job, JobChange, LatencyStats, ListDrivesResponse,
    ListEventsResponse, ListExportsResponse, ListHooksResponse, ListJobsResponse,
    ListReferralsResponse, ListSparesResponse, MemberStats, OcpHealth, Offer, Referral,
    ReferralChange, Registrant, Reservation, SlotLight, Spare, SpareChange,
};

fn drives() -> Vec<Drive> {
    vec![
        drive("/dev/nvme0n1", "free", ""),
        sick(),
        Drive {
            model: String::new(),
            serial: String::new(),
            kind: "file".into(),
            ..drive(PATH, "occupied", "an ext4 file system, label \"home\"")
        },
        Drive { spare_of: "pool".into(), ..drive("/dev/nvme8n1", "free", "") },
        Drive {
            spare_of: LONG.into(),
            ..drive("/dev/nvme9n1", "failed", "cannot be opened: I/O error")
        },
        Drive {
            kind: "ram".into(),
            model: String::new(),
            serial: String::new(),
            ..drive("ram:1GiB", "busy", "")
        },
    ]
}

#[test]
fn all_drives_and_one() {
    let answer = ListDrivesResponse { drives: drives() };
    check("drive-list", |width| drive::list(&answer, width));
    check("drive-list-empty", |width| drive::list(&ListDrivesResponse::default(), width));
    check("drive-show", |width| drive::show(&sick(), width));
    check("drive-show-free", |width| drive::show(&drive("/dev/nvme0n1", "free", ""), width));
    let lit = |pattern: &str, seen: &str, note: &str| Drive {
        slot: "PCI slot 12".into(),
        light: Some(SlotLight {
            pattern: pattern.into(),
            seen: seen.into(),
            backend: "attention".into(),
            note: note.into(),
        }),
        ..drive("/dev/nvme0n1", "free", "")
    };
    let dark = lit("rebuild", "off", "its firmware has not answered for 5 s");
    check("drive-show-light", |width| drive::show(&dark, width));
    let answer_lit =
        ListDrivesResponse { drives: vec![lit("fail", "fail", ""), lit("ok", "off", "")] };
    check("drive-list-lights", |width| drive::list(&answer_lit, width));
    let way = |address: &str, state: &str| DrivePath {
        address: format!("nvme-tcp://{address}:4420/nqn.2014-08.com.example:tank"),
        state: state.into(),
        seconds: 4711,
        ..DrivePath::default()
    };
    let live = DrivePath {
        used: true,
        access: "non_optimized".into(),
        reconnects: 1,
        last_loss: "no answer in time".into(),
        ..way("10.0.0.7", "live")
    };
    let lost = DrivePath {
        reconnects: 12,
        note: "the target closed the connection".into(),
        last_loss: "the target closed the connection".into(),
        ..way("10.1.0.7", "lost")
    };
    let remote = Drive {
        kind: "nvme-tcp".into(),
        paths: vec![live.clone(), lost],
        association: 3,
        reconnects: 1,
        queues: drive_queues(),
        reservation: "reserved".into(),
        ..drive(&live.address, "free", "paths lost: 1 of 2")
    };
    check("drive-show-paths", |width| drive::show(&remote, width));
    check("drive-errors", |width| errors::list(&answer, width));
    check("drive-errors-none", |width| errors::list(&ListDrivesResponse::default(), width));
    check("drive-errors-one", |width| errors::show(&sick(), width));
    check("drive-errors-unused", |width| errors::show(&drives()[0], width));
    let cleaned = DriveChange {
        result: "planned".into(),
        drive: Some(drives()[0].clone()),
        plan: vec!["remove the label of member 3 of array tank from both of its places".into()],
        warnings: Vec::new(),
    };
    check("drive-clean-planned", |width| drive::change(&cleaned, width));
    let located = DriveChange { result: "changed".into(), plan: Vec::new(), ..cleaned };
    check("drive-located", |width| drive::change(&located, width));
    let warned = DriveChange {
        warnings: vec!["its target could not be told that the drive is free".into()],
        ..located
    };
    check("drive-warned", |width| drive::change(&warned, width));
}

#[test]
fn what_a_drive_says_of_itself() {
    let well = DriveHealth {
        path: "/dev/nvme3n1".into(),
        model: "Fast Drive 9000".into(),
        serial: "S1234".into(),
        temperature_c: Some(38),
        spare_percent: 100,
        spare_threshold_percent: 10,
        wear_percent: 3,
        read_bytes: 91 << 40,
        written_bytes: 12 << 40,
        reads: 1_234_567_890,
        writes: 1,
        busy_minutes: 4711,
        power_cycles: 12,
        power_on_hours: 20_000,
        log_entries: 2,
        ..DriveHealth::default()
    };
    check("drive-smart", |width| health::show(&well, width));
    let entry = |number, status| DriveLogEntry {
        number,
        queue: 3,
        command: 41,
        status,
        block: 1 << 33,
        namespace: 1,
    };
    let ocp = OcpHealth {
        physical_written_bytes: 30 << 40,
        bad_user_blocks: 17,
        uncorrectable_reads: 2,
        end_to_end_detected: 1,
        throttlings: 1,
        capacitor_percent: Some(98),
        ..OcpHealth::default()
    };
    let sick = DriveHealth {
        warnings: vec!["temperature".into(), "read_only".into()],
        prediction: "the drive has become read-only to protect its data".into(),
        hot_minutes: 5,
        sensors: vec![HealthSensor { number: 2, temperature_c: 71 }],
        errors: vec![entry(2, 0x281), entry(1, 0x20)],
        ocp: Some(ocp),
        ..well
    };
    check("drive-smart-failing", |width| health::show(&sick, width));
}

fn offer(kind: &str, address: &str) -> Offer {
    let (nqn, transport) = ("nqn.2014-08.com.example:tank".into(), "tcp".into());
    Offer { kind: kind.into(), address: address.into(), nqn, transport, ..Offer::default() }
}

#[test]
fn what_another_machine_offers() {
    let tank = "nvme-tcp://10.0.0.7:4420/nqn.2014-08.com.example:tank";
    let by_name = "nvme-tcp://store:4420/nqn.2014-08.com.example:tank?nsid=2";
    let encrypted = "it requires TLS; connect with its key";
    let offers = vec![
        Offer {
            drives: vec![tank.into(), by_name.into()],
            connected: vec![tank.into()],
            ..offer("subsystem", tank)
        },
        Offer { drives: vec![tank.into()], ..offer("subsystem", tank) },
        Offer {
            note: encrypted.into(),
            secure_channel: "required".into(),
            ..offer("subsystem", "nvme-tcp://10.0.0.7:4420/nqn.a:b")
        },
        offer("referral", "nvme-tcp://[fe80::1]:8009"),
        Offer { note: "it does not use TCP".into(), ..offer("subsystem", "") },
        Offer {
            note: "cannot be used: its name is none: an NQN starts with \"nqn.\" and continues"
                .into(),
            kind: "unknown".into(),
            ..Offer::default()
        },
    ];
    let host_nqn = "nqn.2014-08.com.example:db1".to_owned();
    let none = DiscoverDrivesResponse { host_nqn: host_nqn.clone(), ..Default::default() };
    check("drive-discover-empty", |width| drive::offers(&none, width));
    let answer = DiscoverDrivesResponse { host_nqn, offers };
    check("drive-discover", |width| drive::offers(&answer, width));
}

#[test]
fn spares_in_every_state() {
    let spares = vec![
        spare("/dev/nvme8n1", "ready", ""),
        Spare { array: "tank".into(), ..spare(PATH, "missing", "last seen 3 h ago") },
        spare("/dev/nvme10n1", "busy", "mounted at /srv"),
        Spare {
            array: LONG.into(),
            ..spare("/dev/nvme11n1", "failed", "cannot be opened: I/O error")
        },
    ];
    let change = |result: &str| SpareChange {
        result: result.into(),
        spare: Some(spares[0].clone()),
        plan: vec!["label /dev/nvme8n1 as a spare of any array".into()],
        warnings: Vec::new(),
    };
    check("spare-planned", |width| spare::change(&change("planned"), width));
    check("spare-created", |width| spare::change(&change("created"), width));
    check("spare-list", |width| spare::list(&ListSparesResponse { spares: spares.clone() }, width));
    check("spare-list-empty", |width| spare::list(&ListSparesResponse::default(), width));
}

#[test]
fn jobs_in_every_state() {
    let halted = Job {
        reason: "blocks of member 1 cannot be read, and the list of bad blocks is full".into(),
        next_action: "copy the data off, then strake job resume tank/rebuild".into(),
        ..job("rebuild", "halted")
    };
    let long = Job { id: format!("{LONG}/initialize"), ..job("initialize", "paused") };
    let jobs = vec![job("replace", "running"), halted.clone(), long, job("resync", "running")];
    check("job-list", |width| job::list(&ListJobsResponse { jobs: jobs.clone() }, width));
    check("job-list-empty", |width| job::list(&ListJobsResponse::default(), width));
    let change = |job: Job| JobChange { result: "changed".into(), job: Some(job) };
    check("job-paused", |width| job::change(&change(job("rebuild", "paused")), width));
    check("job-halted", |width| job::change(&change(halted.clone()), width));
    check("job-cancelled", |width| {
        job::change(&JobChange { result: "changed".into(), job: None }, width)
    });
}

fn events() -> Vec<Event> {
    let by = |event: Event| Event { actor: "uid 0 pid 4711".into(), ..event };
    vec![
        Event { object: "daemon".into(), ..event(1, "info", "straked 0.1.0 started") },
        by(event(2, "info", "strake array set tank --rebuild-priority 80")),
        Event {
            member: Some(3),
            cause: "4 medium errors in 60 s, the last at LBA 1234567".into(),
            next_action: "strake array replace tank --member 3 --with DRIVE".into(),
            ..event(99, "warning", "failed and is out of use")
        },
        Event { object: format!("drive/{PATH}"), ..event(1_000_000, "critical", "vanished") },
    ]
}

#[test]
fn events_with_cause_and_next_action() {
    let clock = Clock::new(true);
    let answer = ListEventsResponse { events: events() };
    check("event-list", |width| event::list(&answer, &clock, width));
    check("event-list-empty", |width| event::list(&ListEventsResponse::default(), &clock, width));
    check("event-follow", |width| {
        events().iter().map(|e| event::one(e, &clock, width) + "\n").collect()
    });
    assert_eq!(clock.show(0), "1970-01-01 00:00:00Z");
    assert_eq!(clock.show(u64::MAX), "at an unknown time");
}

#[test]
fn hooks_and_how_they_went() {
    let mail = Hook {
        server: "smtp://mail.example.com:25".into(),
        from: "strake@example.com".into(),
        failed: 3,
        held_back: 17,
        last_error: "mail.example.com:25: connection refused".into(),
        ..hook("ops", "email", "ops@example.com")
    };
    let hooks = vec![
        hook("pager", "webhook", "https://alerts.example.com/v2/services/strake/production/events"),
        mail.clone(),
        hook(LONG, "exec", "/usr/local/lib/strake/hooks/tell-somebody"),
    ];
    check("hook-list", |width| hook::list(&ListHooksResponse { hooks: hooks.clone() }, width));
    check("hook-list-empty", |width| hook::list(&ListHooksResponse::default(), width));
    let change = |result: &str, what: &str| HookChange {
        result: result.into(),
        hook: Some(mail.clone()),
        what: what.into(),
    };
    check("hook-created", |width| hook::change(&change("created", ""), width));
    check("hook-test-failed", |width| {
        hook::change(
            &change("failed", "the test event was not delivered: connection refused"),
            width,
        )
    });
}

#[test]
fn doctor_ok_with_warnings_and_failed() {
    let check_of = |name: &str, state: &str, what: &str, next: &str| DoctorCheck {
        name: name.into(),
        state: state.into(),
        what: what.into(),
        next_action: next.into(),
        ..DoctorCheck::default()
    };
    let fine = vec![
        check_of("daemon state directory", "ok", "/var/lib/strake is writable, 12 GiB free", ""),
        check_of("array/tank redundancy", "ok", "2 more members may be lost", ""),
    ];
    let warning = check_of(
        "machine clock",
        "warning",
        "not synchronized, so times of events may be wrong; nothing else depends on it",
        "timedatectl set-ntp true",
    );
    let failed = check_of(
        "array/cold",
        "failed",
        "offline: 3 of 8 members are missing and level 6 works without 2 of them at most",
        "strake array import cold --drives DRIVE,DRIVE,DRIVE",
    );
    let report =
        |health: &str, checks: Vec<DoctorCheck>| DoctorReport { health: health.into(), checks };
    let ok = report("ok", fine.clone());
    check("doctor-ok", |width| doctor::show(&ok, width));
    let warned = report("degraded", [fine.clone(), vec![warning.clone()]].concat());
    check("doctor-warnings", |width| doctor::show(&warned, width));
    let bad = report("failed", [fine, vec![warning, failed]].concat());
    check("doctor-failed", |width| doctor::show(&bad, width));
}

#[test]
fn what_is_recorded() {
    let json = r#"{"version":1,"arrays":[{"name":"tank","uuid":"3f7420d0-d70f-46db-8f1d-75ebb959df7e",
        "drives":["/dev/nvme0n1","/dev/disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_S64HNE0T123456-part1"],
        "settings":{"auto_replace":true,"rebuild_priority":50}}],"exports":[],"hooks":null}"#;
    let document = ConfigDocument { json: json.into() };
    check("config-show", |width| config::show(&document, width));
    let change = |result: &str, plan: &[&str]| ConfigChange {
        result: result.into(),
        plan: plan.iter().map(|s| (*s).to_owned()).collect(),
        warnings: Vec::new(),
    };
    let plan =
        change("planned", &["import array tank", "offer it as export tank at 127.0.0.1:10809"]);
    check("config-planned", |width| config::change(&plan, width));
    check("config-planned-nothing", |width| config::change(&change("planned", &[]), width));
    check("config-restored", |width| {
        config::change(&change("changed", &["import array tank"]), width)
    });
}

#[test]
fn exports_and_the_daemon() {
    let offline = Export {
        name: "cold".into(),
        state: "offline".into(),
        reason: "array cold is offline".into(),
        ..export()
    };
    let answer = ListExportsResponse { exports: vec![export(), offline.clone()] };
    check("export-list", |width| export::list(&answer, width));
    let referral = |address: &str| Referral { address: address.into() };
    let referrals =
        vec![referral("nvme-tcp://192.0.2.8:8009"), referral("nvme-tcp://[2001:db8::1]:4420")];
    let changed = ReferralChange { result: "created".into(), referral: Some(referrals[0].clone()) };
    check("referral-created", |width| export::referral_change(&changed, width));
    let answer = ListReferralsResponse { referrals };
    check("referral-list", |width| export::referrals(&answer, width));
    check("referral-list-empty", |width| {
        export::referrals(&ListReferralsResponse::default(), width)
    });
    check("export-list-empty", |width| export::list(&ListExportsResponse::default(), width));
    let change = ExportChange { result: "created".into(), export: Some(offline), plan: Vec::new() };
    check("export-created", |width| export::change(&change, width));
    let registrant = |nqn: &str, holds| Registrant {
        nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{nqn}"),
        host_id: "11111111-2222-4333-8444-555555555555".into(),
        key: "0x1f".into(),
        holds,
    };
    let reservation = Reservation {
        r#type: "write-exclusive-registrants".into(),
        persistent: true,
        generation: 3,
        registrants: vec![registrant("db1", true), registrant("db2", false)],
    };
    let uri = "nvme-tcp://192.0.2.1:4420/nqn.2014-08.org.nvmexpress:uuid:tank".into();
    let allow_hosts = vec!["nqn.2014-08.org.nvmexpress:uuid:db1".into()];
    let (reservation, secure) = (Some(reservation), true);
    let reserved = Export { reservation, uri, allow_hosts, secure, ..export() };
    check("export-show", |width| export::show(&reserved, width));
    let connected = Export { controllers: vec![controller()], ..reserved };
    check("export-show-queues", |width| export::show(&connected, width));
    check("daemon", |width| daemon::show(&daemon(), width));
}

fn latency(operation: &str, p50_ns: u64) -> LatencyStats {
    LatencyStats {
        operation: operation.into(),
        count: 1_234_567,
        mean_ns: p50_ns + 17,
        p50_ns,
        p90_ns: p50_ns * 2,
        p99_ns: p50_ns * 5,
        p999_ns: p50_ns * 40,
        max_ns: p50_ns * 3000,
        sum_ns: 1_234_567 * (p50_ns + 17),
    }
}

#[test]
fn latencies_of_an_array_and_its_members() {
    let member = |position, path: &str| MemberStats {
        position,
        path: path.into(),
        ios: vec![latency("read", 61_234), latency("write", 9_876), LatencyStats::default()],
    };
    let all = ArrayStats {
        name: "tank".into(),
        counters: array(&["online"]).counters,
        requests: vec![latency("read", 64_000), latency("write", 88_000), latency("flush", 540)],
        members: vec![member(0, "/dev/nvme0n1"), member(1, PATH), member(2, "")],
        ..ArrayStats::default()
    };
    check("array-stats", |w| stats::array(&all, w));
    let none = ArrayStats { name: "tank".into(), ..ArrayStats::default() };
    check("array-stats-none", |w| stats::array(&none, w));
}
