//! Runs that failed once: files in `seeds/`, `seeds-operators/`, `seeds-crash/` and `seeds-corrupt/`, with one run per
//! line, after a description whose lines begin with `#`.

/// The lines of every file in `folder` of this crate, in the order of the file names.
///
/// Returns an error if the files cannot be read, for example because the program runs without its sources.
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

/// As [`lines`], with each line parsed as a seed.
///
/// Returns the errors of [`lines`], and an error if a line is not a seed.
pub fn seeds(folder: &str) -> Result<Vec<u64>, String> {
    let seed = |line: &String| line.parse().map_err(|_| format!("{folder}: {line} is no seed"));
    lines(folder)?.iter().map(seed).collect()
}
