//! Follows the label traces of worlds in the model.

use strake_sim::model;
use strake_sim::stage::observe;

/// Checks a number of worlds from a seed on; the last line is JSON. Returns true if the model could follow all.
pub fn run(words: &[String]) -> Result<bool, String> {
    let number = |word: Option<&String>| word.and_then(|word| word.parse::<u64>().ok());
    let count = number(words.get(1)).ok_or("--traces needs a number")?;
    let seed = match words.get(2).map(String::as_str) {
        None => 1,
        Some("--seed") => number(words.get(3)).ok_or("--seed needs a number")?,
        Some(other) => return Err(format!("{other} is not known here")),
    };
    let (mut events, mut widest, mut refused) = (0, 0, 0);
    for seed in seed..seed + count {
        let (config, trace) = observe(seed).map_err(|what| format!("world {seed}: {what}"))?;
        events += trace.len();
        match model::follow(&config, &trace) {
            Ok(states) => widest = widest.max(states),
            Err(at) => {
                refused += 1;
                eprintln!("seed {seed}: {at:?}");
                trace[..=at.at].iter().for_each(|event| eprintln!("  {event:?}"));
            }
        }
    }
    let accepted = count - refused;
    println!(
        "{{\"runs\":{count},\"accepted\":{accepted},\"violations\":{refused},\"events\":{events},\
         \"states_max\":{widest}}}"
    );
    Ok(refused == 0)
}
