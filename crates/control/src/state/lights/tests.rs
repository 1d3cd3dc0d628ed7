use super::{Depth, Known, Lights, Spot, Survey, Wanted, changes};
use crate::policy::lights::{ArrayState, Fact, Facts};
use std::collections::BTreeMap;
use std::time::Duration;
use strake_dev_uring::{Light, Machine, Pattern};
use strake_testkit::Folder;

const USED: Fact = Fact::Member(ArrayState::Sound);

/// Returns the LEDs of two slots with attention indicators.
fn lights(root: &Folder) -> [Light; 2] {
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        let folder = path.parent().expect("it is in a folder");
        std::fs::create_dir_all(folder).expect("a folder can be made");
        std::fs::write(path, text).expect("a file can be written");
    };
    ["0000:3b:00.0", "0000:3c:00.0"].map(|address| {
        put(&format!("sys/bus/pci/devices/{address}/class"), "0x010802");
        put(&format!("sys/bus/pci/slots/{address}/address"), address.trim_end_matches(".0"));
        put(&format!("sys/bus/pci/slots/{address}/attention"), "0");
        let slot = Machine::at(root).slot_at(address).expect("there is a function");
        slot.light.expect("it has an indicator")
    })
}

fn spot(light: &Light, drive: &str) -> Spot {
    Spot { slot: "bay".into(), light: light.clone(), drive: drive.into() }
}

fn survey(drives: &[(&str, &Light, &str)]) -> Survey {
    drives.iter().map(|(path, light, drive)| ((*path).to_owned(), spot(light, drive))).collect()
}

fn facts(of: &[(&str, Fact)]) -> Facts {
    let mut facts = Facts::new();
    for (path, fact) in of {
        facts.entry((*path).to_owned()).or_default().insert(*fact);
    }
    facts
}

/// Returns the patterns of both LEDs.
fn patterns(wanted: &Wanted, lights: &[Light; 2]) -> [Pattern; 2] {
    [0, 1].map(|at| wanted.get(&lights[at].name()).map(|(_, p)| *p).unwrap_or_default())
}

/// The history of the bug: a failed drive lost its LED pattern when a spare replaced it in the array, so the operator
/// saw a backplane without a failure.
#[test]
fn a_drive_that_failed_keeps_its_light_until_another_is_there_or_it_serves_again() {
    let root = Folder::new("strake-lights");
    let lights = lights(&root);
    let [a, b] = &lights;
    let both = survey(&[("a", a, "A"), ("b", b, "B")]);
    let decide = |known: &Known, of: &[(&str, Fact)], survey: &Survey| {
        let (wanted, known) = known.decide(&facts(of), survey);
        (patterns(&wanted, &lights), known)
    };
    let (seen, known) = decide(&Known::default(), &[("a", USED), ("b", Fact::Spare)], &both);
    assert_eq!(seen, [Pattern::Ok, Pattern::Hotspare]);
    let (seen, known) = decide(&known, &[("a", Fact::Failed), ("b", Fact::Filled)], &both);
    assert_eq!(seen, [Pattern::Fail, Pattern::Rebuild]);
    let (seen, known) = decide(&known, &[("b", USED)], &both);
    assert_eq!(seen, [Pattern::Fail, Pattern::Ok], "it is still in its slot");
    let (seen, known) = decide(&known, &[("b", USED)], &survey(&[("b", b, "B")]));
    assert_eq!(seen, [Pattern::Fail, Pattern::Ok], "its slot is empty, and waits for another");
    let another = survey(&[("a", a, "C"), ("b", b, "B")]);
    assert_eq!(decide(&known, &[("b", USED)], &another).0, [Pattern::Off, Pattern::Ok]);
    assert_eq!(decide(&known, &[("a", USED)], &both).0, [Pattern::Ok, Pattern::Off]);
    let (_, sick) = decide(&Known::default(), &[("a", USED), ("a", Fact::Sick)], &both);
    assert_eq!(decide(&sick, &[], &both).0, [Pattern::Pfa, Pattern::Off], "it was replaced");
    assert_eq!(decide(&sick, &[("a", USED)], &both).0, [Pattern::Ok, Pattern::Off]);
}

/// A healthy drive may have the path and the slot of a failed member now.
#[test]
fn the_light_of_a_failed_drive_is_not_given_to_another() {
    let root = Folder::new("strake-lights");
    let lights = lights(&root);
    let [a, b] = &lights;
    let before = survey(&[("a", a, "A"), ("b", b, "B")]);
    let (_, known) = Known::default().decide(&facts(&[("a", USED), ("b", USED)]), &before);
    let failed = facts(&[("a", Fact::Failed), ("b", USED)]);
    let decide = |survey: &Survey| patterns(&known.decide(&failed, survey).0, &lights);
    assert_eq!(decide(&before), [Pattern::Fail, Pattern::Ok]);
    assert_eq!(decide(&survey(&[("b", b, "B")])), [Pattern::Fail, Pattern::Ok], "pulled");
    assert_eq!(decide(&survey(&[("a", a, "C"), ("b", b, "B")])), [Pattern::Off, Pattern::Ok]);
    let renamed = survey(&[("b", b, "B"), ("c", a, "C")]);
    assert_eq!(decide(&renamed), [Pattern::Off, Pattern::Ok], "under another path");
    let moved = survey(&[("b", a, "B"), ("a", b, "C")]);
    assert_eq!(decide(&moved), [Pattern::Ok, Pattern::Off], "the member is in its slot");
    let restarted = patterns(&Known::default().decide(&failed, &before).0, &lights);
    assert_eq!(restarted, [Pattern::Fail, Pattern::Ok], "where it was is not known");
}

#[test]
fn only_differences_are_switched() {
    let root = Folder::new("strake-lights");
    let lights = lights(&root);
    let of = |patterns: [Option<Pattern>; 2]| -> Wanted {
        let both = lights.iter().zip(patterns);
        both.filter_map(|(light, p)| Some((light.name(), (light.clone(), p?)))).collect()
    };
    let none = BTreeMap::new();
    let check = |shown: Wanted, wanted: Wanted, want: Wanted| {
        assert_eq!(changes(&shown, &wanted, &none, Depth::Changed), want);
    };
    let (ok, fail, off) = (Some(Pattern::Ok), Some(Pattern::Fail), Some(Pattern::Off));
    check(of([None, None]), of([ok, ok]), of([ok, ok]));
    check(of([ok, ok]), of([ok, ok]), of([None, None]));
    check(of([ok, ok]), of([ok, fail]), of([None, fail]));
    check(of([ok, fail]), of([ok, None]), of([None, off]));
    let cleared = BTreeMap::from([(lights[0].name(), lights[0].clone())]);
    let cleared = |wanted| changes(&of([None, ok]), &wanted, &cleared, Depth::Changed);
    assert_eq!(cleared(of([None, ok])), of([off, None]));
    assert_eq!(cleared(of([ok, ok])), of([ok, None]));
    let all = changes(&of([ok, ok]), &of([ok, ok]), &none, Depth::All);
    assert_eq!(all, of([ok, ok]), "each is compared with what it shows");
}

#[test]
fn a_failure_is_reported_once_until_the_light_can_be_switched() {
    let root = Folder::new("strake-lights");
    let [light, _] = lights(&root);
    let mut state = Lights::default();
    let mut turn = |result: Result<Pattern, String>| {
        let look = state.begin(Facts::new(), Duration::MAX);
        let switched = vec![(light.name(), light.clone(), result)];
        let new = state.end(&look, Known::default(), switched).len();
        let shown = state.shown();
        let (pattern, why) = shown.of(&light);
        (new, pattern, why.to_owned())
    };
    let bad = || Err("no".to_owned());
    assert_eq!(turn(Ok(Pattern::Ok)), (0, Pattern::Ok, String::new()));
    assert_eq!(turn(bad()), (1, Pattern::Off, "no".into()));
    assert_eq!(turn(bad()), (0, Pattern::Off, "no".into()));
    assert_eq!(turn(Ok(Pattern::Fail)), (0, Pattern::Fail, String::new()));
    assert_eq!(turn(bad()).0, 1);
}

/// The history of the bug: two drives shared an LED, and only the last one was recorded in the slot. The other drive
/// counted as replaced, and its failure was not shown.
#[test]
fn the_failure_of_one_of_two_drives_of_a_light_is_shown() {
    let root = Folder::new("strake-lights");
    let lights = lights(&root);
    let [a, _] = &lights;
    let both = survey(&[("first", a, "A"), ("second", a, "B")]);
    for (failed, well) in [("first", "second"), ("second", "first")] {
        let of = |known: &Known, of: &[(&str, Fact)], survey: &Survey| {
            let (wanted, known) = known.decide(&facts(of), survey);
            (patterns(&wanted, &lights)[0], known)
        };
        let (seen, known) = of(&Known::default(), &[(failed, USED), (well, USED)], &both);
        assert_eq!(seen, Pattern::Ok);
        let (seen, known) = of(&known, &[(failed, Fact::Failed), (well, USED)], &both);
        assert_eq!(seen, Pattern::Fail, "{failed}");
        let (seen, known) = of(&known, &[(well, USED)], &both);
        assert_eq!(seen, Pattern::Fail, "{failed} is still in its slot");
        let drive = if well == "first" { "A" } else { "B" };
        let another = survey(&[(well, a, drive), ("third", a, "C")]);
        assert_eq!(of(&known, &[(well, USED)], &another).0, Pattern::Ok, "{failed} was replaced");
    }
}

/// The history of the bug: an LED that could not be switched off was forgotten, and stayed on.
#[test]
fn a_light_that_could_not_go_dark_is_tried_again() {
    let root = Folder::new("strake-lights");
    let [light, _] = lights(&root);
    let mut state = Lights::default();
    let mut turn = |wanted: Option<Pattern>, result: Result<Pattern, String>| {
        let look = state.begin(Facts::new(), Duration::MAX);
        let wanted = wanted.map(|pattern| (light.name(), (light.clone(), pattern)));
        let changes =
            changes(&look.shown, &wanted.into_iter().collect(), &look.cleared, look.depth);
        let is_shown = look.is_shown(&light.name(), Pattern::Fail);
        let switched = changes.iter();
        let switched =
            switched.map(|(name, (light, _))| (name.clone(), light.clone(), result.clone()));
        state.end(&look, Known::default(), switched.collect());
        let pattern = changes.get(&light.name()).map(|(_, pattern)| *pattern);
        (pattern, is_shown, state.trouble.len())
    };
    let (fail, off) = (Some(Pattern::Fail), Some(Pattern::Off));
    assert_eq!(turn(fail, Ok(Pattern::Fail)), (fail, false, 0));
    assert_eq!(turn(None, Err("no".into())), (off, true, 1));
    assert_eq!(turn(None, Err("no".into())), (off, false, 1), "it is not known what it shows");
    assert_eq!(turn(fail, Err("no".into())), (fail, false, 1));
    assert_eq!(turn(None, Ok(Pattern::Off)), (off, false, 0));
    assert_eq!(turn(None, Ok(Pattern::Off)), (None, false, 0));
}

/// The end of a check does not undo changes of commands during the check.
#[test]
fn a_command_beside_a_look_is_not_forgotten() {
    let root = Folder::new("strake-lights");
    let lights = lights(&root);
    let [a, _] = &lights;
    let mut state = Lights::default();
    let failed = facts(&[("a", Fact::Failed)]);
    let here = survey(&[("a", a, "A")]);
    let look = state.begin(failed, Duration::MAX);
    let (_, next) = look.known.decide(&look.facts, &here);
    state.clear(a);
    state.end(&look, next, Vec::new());
    assert_eq!(state.known, Known::default(), "it was cleared");
    assert!(state.is_due(&Facts::new(), Duration::MAX));
    let look = state.begin(Facts::new(), Duration::MAX);
    assert!(look.cleared.contains_key(&a.name()));
    let (_, next) = look.known.decide(&look.facts, &here);
    state.locate(a, true);
    state.end(&look, next, Vec::new());
    let (wanted, _) = state.known.decide(&Facts::new(), &here);
    assert_eq!(patterns(&wanted, &lights), [Pattern::Locate, Pattern::Off]);
}
