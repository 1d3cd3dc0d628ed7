//! Searches configurations of the model, and prints the results.

use std::path::Path;

use strake_sim::model::{self, Config};

/// Searches the configurations in the files `paths`, and prints one line of JSON for each.
pub fn run(paths: impl Iterator<Item = String>) -> Result<(), String> {
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let config = Config::parse(&text).map_err(|what| format!("{path}: {what}"))?;
        let found = model::search(&config, &mut |_| ());
        let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy();
        let (states, diameter) = (found.states, found.diameter);
        let violated = found.violation.map(|(name, path)| {
            path.iter().for_each(|action| eprintln!("  {action:?}"));
            format!("{name:?}")
        });
        let violated = violated.unwrap_or_else(|| "null".to_owned());
        println!(
            "{{\"config\":\"{name}\",\"states\":{states},\"diameter\":{diameter},\"violated\":{violated}}}"
        );
    }
    Ok(())
}
