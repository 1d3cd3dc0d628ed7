use super::{Given, Refused, entries_of, example, in_effect, read};
use crate::args::Args;
use clap::CommandFactory;
use std::ffi::OsString;
use std::path::PathBuf;
use strake_testkit::Folder;

/// A folder with a configuration file.
struct Place {
    folder: Folder,
}

impl Place {
    fn new(text: &str) -> Self {
        let folder = Folder::new("straked-config");
        std::fs::write(folder.join("straked.toml"), text).expect("it can be written");
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("straked.toml")
    }

    fn read(&self, more: &[&str]) -> Result<Given, Refused> {
        let mut arguments: Vec<OsString> = vec!["straked".into(), "--config".into()];
        arguments.push(self.path().into());
        arguments.extend(more.iter().map(Into::into));
        read(&arguments)
    }

    fn given(&self, more: &[&str]) -> Given {
        self.read(more).unwrap_or_else(|why| panic!("{why:?}"))
    }
}

/// Returns the error of a file with `text`, without the path of the file.
fn refused(text: &str) -> String {
    let place = Place::new(text);
    let why = entries_of(&place.path()).expect_err("it is wrong");
    let path = format!("{}: ", place.path().display());
    why.strip_prefix(&path).unwrap_or_else(|| panic!("the file is named first: {why}")).to_owned()
}

#[test]
fn a_file_sets_every_option() {
    let place = Place::new(
        "# A comment.\nstate-dir = \"/srv/state\"\nsocket = '/srv/sock'\ncores = \"0,1\"\nlog = \"json\"\n\
         assemble-timeout = 45\nio-timeout = \"block=9,file=16,remote=31\"\nmetrics = \"unix:/srv/m\"\n\
         parity-kernel = \"portable\"\noperator-group = 990\nviewer-group = \"strake-viewer\"\n\
         core-dumps = \"permit\"\nwrite-dirs = \"/srv,/mnt\"\nhook-dirs = \"/srv/hooks\"\n",
    );
    let given = place.given(&[]);
    let args = &given.args;
    assert_eq!(args.state_dir(), Ok("/srv/state".into()));
    assert_eq!(args.socket(), Ok("/srv/sock".into()));
    assert_eq!(args.assemble_timeout.0.map(|time| time.as_secs()), Some(45));
    assert_eq!(args.parity_kernel.map(strake_parity::Kernel::name), Some("portable"));
    assert_eq!(args.log, crate::args::LogFormat::Json);
    assert!(args.metrics.is_some());
    assert_eq!(args.operator_group.as_deref(), Some("990"));
    assert_eq!(args.viewer_group.as_deref(), Some("strake-viewer"));
    assert_eq!(args.core_dumps, crate::contain::CoreDumps::Permit);
    assert_eq!((args.write_dirs().to_string(), args.hook_dirs.0.len()), ("/srv,/mnt".into(), 1));
    let shown = in_effect(&given);
    assert!(shown.contains("io-timeout = \"block=9,file=16,remote=31\"  # "), "{shown}");
    assert!(shown.contains("straked.toml, line 7\n"), "{shown}");
    assert!(!shown.contains("default"), "{shown}");
}

#[test]
fn the_command_line_is_over_the_file_and_the_file_over_the_default() {
    let place = Place::new("cores = \"0,1\"\nassemble-timeout = 45\n");
    let given = place.given(&["--assemble-timeout", "never"]);
    assert_eq!(given.args.assemble_timeout.0, None);
    assert_eq!(given.args.log, crate::args::LogFormat::Text);
    let shown = in_effect(&given);
    for line in [
        "assemble-timeout = \"never\"  # command line\n",
        "straked.toml, line 1\n",
        "log = \"text\"  # default\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// The printed text is itself a valid configuration file.
#[test]
fn what_is_in_effect_can_be_used_as_a_file() {
    let first = Place::new("metrics = \"unix:/srv/a \\\"b\\\\\"\nassemble-timeout = \"never\"\n");
    let shown = in_effect(&first.given(&["--state-dir", "/a", "--socket", "/b"]));
    let second = Place::new(&shown).given(&[]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or(line).to_owned()).collect()
    };
    assert_eq!(values(&in_effect(&second)), values(&shown));
    assert!(shown.contains(r#"metrics = "unix:/srv/a \"b\\""#), "{shown}");
}

#[test]
fn unknown_keys_are_refused_with_the_known_ones() {
    let said = refused("\n\ncore = \"0\"\n");
    assert!(
        said.starts_with(
            "line 3: unknown key core; the keys are state-dir, socket, operator-group,"
        ),
        "{said}"
    );
    for key in [
        "config",
        "check-config",
        "example-config",
        "manual",
        "help",
        "version",
        "\"\"",
        "state_dir",
    ] {
        let said = refused(&format!("{key} = \"x\"\n"));
        assert!(said.starts_with("line 1: unknown key "), "{key}: {said}");
    }
    assert!(refused("[daemon]\ncores = \"0\"\n").starts_with("line 1: daemon: a text in quotes"));
}

#[test]
fn wrong_values_are_refused_with_what_is_permitted() {
    let check = |line: &str, words: &[&str]| {
        let said = refused(&format!("# first\n{line}\n"));
        assert!(said.starts_with("line 2: "), "{line}: {said}");
        for word in words {
            assert!(said.contains(word), "{line}: {said}");
        }
        assert!(!said.contains("--"), "no words about the command line: {said}");
    };
    check("cores = \"x\"", &["cores = \"x\"", "such as 0,2,4-7"]);
    check("log = \"xml\"", &["write text or json"]);
    check("assemble-timeout = -1", &["whole number of seconds, or never"]);
    check("assemble-timeout = \"\"", &["assemble-timeout"]);
    check("io-timeout = \"block=1\"", &["6 to 300"]);
    check("metrics = \"0.0.0.0:9464\"", &["loopback"]);
    check("parity-kernel = \"gpu\"", &["portable"]);
    check("state-dir = \"state\"", &["absolute path"]);
    check("socket = \"\"", &["absolute path"]);
}

#[test]
fn wrong_types_and_wrong_toml_are_refused() {
    let check = |line: &str, want: &str| {
        let said = refused(&format!("log = \"text\"\n{line}\n"));
        assert!(said.starts_with("line 2: ") && said.contains(want), "{line}: {said}");
    };
    check("cores = [0, 1]", "cores: a text in quotes");
    check("cores = 1.5", "floating-point");
    check("cores = true", "truth value");
    check("cores = 0x1", "number of another base");
    check("cores = 2026-11-27", "date");
    check("cores = { a = 1 }", "a table");
    check("cores.a = 1", "a table");
    check("socket = \"/a\\nb\"", "one line");
    check("cores = 0,1", "write KEY = \"VALUE\"");
    check("cores", "write KEY = \"VALUE\"");
    check("cores = \"0", "write KEY = \"VALUE\"");
    check("log = \"json\"", "duplicate key");
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let place = Place::new("");
    assert!(place.read(&[]).is_ok(), "an empty file sets nothing");
    let check = |path: PathBuf| {
        let why = entries_of(&path).expect_err("it cannot be read");
        assert!(why.starts_with(&format!("cannot read {}: ", path.display())), "{why}");
    };
    check(place.folder.join("absent.toml"));
    check(place.folder.to_path_buf());
    std::fs::write(place.path(), [0xff, 0xfe]).expect("it can be written");
    check(place.path());
    std::fs::write(place.path(), "#".repeat(70_000)).expect("it can be written");
    check(place.path());
    assert!(matches!(place.read(&[]), Err(Refused::File(_))));
}

/// The example cannot differ from the table of options of the program.
#[test]
fn the_example_has_every_option_and_is_a_file_once_its_lines_are_uncommented() {
    let text = example();
    assert!(Place::new(&text).read(&[]).is_ok_and(|given| given.entries.is_empty()));
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        _ => line,
    });
    let file: Vec<&str> = lines.collect();
    let entries =
        entries_of(&Place::new(&file.join("\n")).path()).expect("every value is possible");
    let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let command = Args::command();
    let options: Vec<&str> = super::options(&command).map(|(name, _)| name).collect();
    assert_eq!(keys, options);
    assert!(keys.contains(&"cores") && keys.len() >= 8, "{keys:?}");
    assert!(text.lines().all(|line| line.len() <= 120));
}
