//! `strake bench` needs no daemon: numbers are saved, pages are written from them again, and nonsense is refused.

use crate::common::Folder;
use crate::fake::{Ran, strake};

/// Runs `line` in `folder` and holds the exit code.
fn check(folder: &Folder, line: &str, code: i32) -> Ran {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ran = strake(folder, &arguments);
    assert_eq!(ran.code, code, "{line}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    ran
}

const RUN: &str = "bench run G2 --repeats 1 --milliseconds 10 --save .";

#[test]
fn pages_are_written_from_saved_numbers_again() {
    let folder = Folder::new("bench-report");
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect(name);
    check(&folder, RUN, 0);
    let (numbers, page) = (read("g2.json"), read("report.md"));
    assert!(page.contains("Not found out yet: `docs/benchmarks/floors/G2.md`"), "{page}");
    std::fs::remove_file(folder.0.join("g2.svg")).expect("there was a plot");
    std::fs::create_dir(folder.0.join("floors")).expect("a folder");
    std::fs::write(folder.0.join("floors/G2.md"), "It takes time.").expect("a text");
    let ran = check(&folder, "bench report .", 0);
    assert!(ran.stdout.contains("G2"), "{}", ran.stdout);
    assert_eq!(read("g2.json"), numbers, "numbers stay as they were measured");
    assert!(read("report.md").contains("It takes time."));
    assert!(read("g2.svg").starts_with("<svg") && read("report.svg").starts_with("<svg"));
}

#[test]
fn what_is_no_saved_number_is_refused_with_a_remedy() {
    for (name, text, said) in [
        ("nothing.json", "", "has no numbers"),
        ("g9.json", r#"{"benchmark": "G9"}"#, "bench run G9 --save"),
    ] {
        let folder = Folder::new("bench-refused");
        std::fs::write(folder.0.join(name), text).expect("a file");
        let ran = check(&folder, "bench report .", 3);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
        assert!(!folder.0.join("report.md").exists());
    }
    let folder = Folder::new("bench-renamed");
    check(&folder, RUN, 0);
    std::fs::rename(folder.0.join("g2.json"), folder.0.join("g1.json")).expect("renamed");
    let ran = check(&folder, "bench report .", 3);
    assert!(ran.stderr.contains("has the numbers of G2"), "{}", ran.stderr);
}

#[test]
fn what_changes_nothing_is_refused() {
    let folder = Folder::new("bench-nonsense");
    for (line, said) in [
        ("bench run G1 --compare fio", "--compare is about G14"),
        ("bench run latency --compare nothing", "--compare is about G14"),
        ("bench run G14 --compare md", "possible values: fio, nothing"),
        ("bench run contentions", "contention"),
        ("bench run observed --filter nobody-is-called-this", "no case has"),
    ] {
        let ran = check(&folder, line, 3);
        assert!(ran.stderr.contains(said), "{line}: {}", ran.stderr);
    }
}
