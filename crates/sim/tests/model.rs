//! Compares the counterpart of the TLA+ specification with the results of TLC, and with the code.

use std::collections::HashSet;
use std::path::PathBuf;

use strake_ondisk::{
    Activation, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS, Consistency, Format, Found, GeometryRecord,
    MemberRecord, Policy, RecordedState, Refusal, Returning, Superblock, Verdict, assemble,
    returning,
};
use strake_sim::model::{self, Config, Label, Lacks, Set, Standing, State, bit, members_of};
use strake_units::{MemberIndex, MemberSet, Uuid};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/model")
}

fn config(name: &str) -> Config {
    let path = folder().join(format!("{name}.cfg"));
    let text = std::fs::read_to_string(&path).expect("a configuration");
    Config::parse(&text).unwrap_or_else(|what| panic!("{name}: {what}"))
}

/// The recorded results of the configurations whose names begin with one of `kinds`, if TLC searched them.
fn recorded(kinds: &[&str]) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder().join("states.json")).expect("the record");
    let all: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    let is_one = |entry: &serde_json::Value| {
        let name = entry["config"].as_str().expect("a name");
        kinds.iter().any(|kind| name.starts_with(kind))
    };
    all.into_iter().filter(is_one).collect()
}

/// Compares the results of searches with the recorded ones.
fn check(kinds: &[&str], many: usize) {
    let recorded = recorded(kinds);
    assert_eq!(recorded.len(), many, "{kinds:?}");
    for entry in recorded {
        let found = model::search(&config(entry["config"].as_str().expect("a name")), &mut |_| ());
        let violated = found.violation.map(|(name, _)| name);
        assert_eq!(entry["violated"].as_str(), violated, "{entry}");
        assert_eq!(entry["diameter"].as_u64(), Some(found.diameter.into()), "{entry}");
        if violated.is_none() {
            // After a failed invariant, the number of visited states depends on the order within a level.
            assert_eq!(entry["states"].as_u64(), Some(found.states), "{entry}");
        }
    }
}

#[test]
fn states_and_diameters_are_those_that_tlc_saw_exhaustive() {
    check(&["mirror-", "raid5-", "raid6-"], 7);
}

/// Every rule of the model is needed: without it an invariant fails, the same one as in TLC.
#[test]
fn every_broken_rule_is_found_exhaustive() {
    check(&["broken-"], 11);
}

fn epoch(number: u16) -> Uuid {
    Uuid([number as u8; 16])
}

fn uuid(m: usize) -> Uuid {
    Uuid([0x10 + m as u8; 16])
}

/// A label of the model in the form of the code, on the drive of member `m`.
fn superblock(config: &Config, label: &Label, m: usize) -> Superblock {
    let state = |standing| match standing {
        Standing::In => RecordedState::InSync,
        Standing::Re => RecordedState::Rebuilding,
        Standing::Out => RecordedState::Missing,
    };
    let row = |m: usize| MemberRecord {
        uuid: uuid(m),
        state: state(label.st[m]),
        in_sync_generation: label.since[m].into(),
        recovered_stripes: 0,
        held_generation: label.held[m].into(),
        bytes: 64 << 20,
    };
    let activation = |a: &model::Activation| Activation {
        epoch: epoch(a.epoch),
        first_generation: a.first.into(),
    };
    Superblock {
        array: uuid(0x40),
        name: "model".parse().expect("a name"),
        format: Format::One,
        member: uuid(m),
        slot: MemberIndex(m as u8),
        generation: label.generation.into(),
        epoch: epoch(label.epoch),
        parent_epoch: epoch(label.parent),
        geometry: GeometryRecord {
            level: if config.copies { 1 } else { 6 },
            parity: config.redundancy as u8,
            members: config.members as u8,
            group_width: config.members as u8,
            strip_bytes: 65_536,
            block_bytes: 4096,
            layout: 1,
            member_blocks: 1000,
            region_stripes: 256,
        },
        clean: label.clean,
        destroyed: false,
        members: (0..config.members).map(row).collect(),
        history: label.history().iter().map(activation).collect(),
        replacements: Vec::new(),
        consistency: Consistency::Safe,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS,
        ro_compat: 0,
        incompat: 0,
    }
}

/// Checks that the code and the model evaluate `drives` in the same way.
fn assembles_alike(config: &Config, state: &State, drives: Set) {
    let found = members_of(drives).map(|m| Found {
        drive: m,
        label: superblock(config, &state.head[m], m),
        device_bytes: 64 << 20,
        confirmed: state.tail & bit(m) != 0,
        before: None,
    });
    let verdict = assemble(found.collect(), Policy { allow_degraded: true }).pop();
    let model = state.matched(config, drives);
    let why = || format!("drives {drives:#b} of {:?}", &state.head[..config.members]);
    match verdict {
        Some(Verdict::Refused { reason: Refusal::Fork(_), .. }) => assert!(model.fork, "{}", why()),
        Some(Verdict::Refused { reason: Refusal::Undecided(_), .. }) => {
            assert!(model.undecided && !model.fork, "{}", why());
        }
        Some(Verdict::Assembled(array)) => {
            assert!(!model.fork && !model.undecided, "{}", why());
            let newest = (array.superblock.generation, array.superblock.epoch);
            assert_eq!(newest, (model.new.generation.into(), epoch(model.new.epoch)), "{}", why());
            assert_eq!(array.confirmed, model.confirmed, "{}", why());
            for (m, member) in array.members.iter().enumerate() {
                let (standing, lacks) = (model.st[m], model.lacks[m]);
                let same = match member.state {
                    RecordedState::InSync => standing == Standing::In,
                    RecordedState::Rebuilding => standing == Standing::Re,
                    RecordedState::Faulty | RecordedState::Missing => standing == Standing::Out,
                };
                let lacks = match lacks {
                    Lacks::Nothing => strake_ondisk::Lacks::Nothing,
                    Lacks::Recorded => strake_ondisk::Lacks::Recorded,
                    Lacks::All => strake_ondisk::Lacks::Everything,
                };
                assert!(same && member.lacks == lacks, "member {m}: {member:?}, {}", why());
            }
        }
        other => panic!("{other:?}, {}", why()),
    }
}

/// Checks that the code and the model agree whether a drive may be re-added.
fn returns_alike(config: &Config, new: &Label, own: &Label, m: usize) {
    let code = returning(&superblock(config, new, 0), &superblock(config, own, m));
    let taken = code == Returning::Stale;
    assert_eq!(taken, model::returns(config, new, own, m), "{code:?}: {own:?} to {new:?}");
}

/// All labels of reachable states, with every set of present drives, and every returning drive.
#[test]
fn the_model_and_the_code_assemble_alike_exhaustive() {
    for (name, least) in [("mirror-labels", 400), ("raid5-labels", 200), ("raid6-labels", 700)] {
        let config = config(name);
        let mut known = HashSet::new();
        model::search(&config, &mut |state| {
            if !known.insert((state.head, state.tail)) {
                return;
            }
            let all: Set = (1 << config.members) - 1;
            (1..=all).for_each(|drives| assembles_alike(&config, state, drives));
            for m in 0..config.members {
                for new in &state.head[..config.members] {
                    returns_alike(&config, new, &state.head[m], m);
                }
            }
        });
        assert!(known.len() > least, "{name}: {} pictures of the drives", known.len());
    }
}
