//! Runs that failed once: files in `seeds/`, `seeds-operators/`, `seeds-crash/` and `seeds-corrupt/`, a run a line,
//! after the story, whose lines begin with `#`.

/// The lines of every file in `folder` of this crate, in order of the files' names.
///
/// # Errors
/// When they cannot be read: the program was taken away from the sources it was built from.
pub fn lines(folder: &str) -> Result<Vec<String>, String> {
    let folder = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(|error| format!("{folder}: {error}"))?.path());
    }
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        let runs = text.lines().map(str::trim);
        let runs = runs.filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.extend(runs.map(str::to_owned));
    }
    Ok(lines)
}

/// The same, each line a seed.
///
/// # Errors
/// As [`lines`], or when a line is none.
pub fn seeds(folder: &str) -> Result<Vec<u64>, String> {
    let seed = |line: &String| line.parse().map_err(|_| format!("{folder}: {line} is no seed"));
    lines(folder)?.iter().map(seed).collect()
}
