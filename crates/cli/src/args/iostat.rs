//! `strake iostat`.

use clap::Args;

/// The content and the interval of the reports of `strake iostat`.
#[derive(Debug, Args)]
pub struct Iostat {
    /// Names or UUIDs of arrays [default: all running arrays]. As in iostat(1), the first number is the interval in
    /// seconds, and the second number is the number of reports.
    #[arg(value_name = "ARRAY|INTERVAL|COUNT")]
    words: Vec<String>,
    /// Seconds between two reports.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<f64>,
    /// Number of reports [default: reports are printed until the command is interrupted].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Also print the rates of the members of each array.
    #[arg(long, short = 'x')]
    pub members: bool,
}

/// Bounds of an interval in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Seconds between two reports without an option.
const USUAL: f64 = 1.0;

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let wrong = "write a number of seconds from 0.1 to 86400";
    text.parse().ok().filter(|seconds| SECONDS.contains(seconds)).ok_or_else(|| wrong.to_owned())
}

/// The reports that are printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Reports {
    /// The arrays; empty for all running arrays.
    pub arrays: Vec<String>,
    /// Seconds between two reports.
    pub every: f64,
    /// Number of reports; `None` for no limit.
    pub count: Option<u32>,
}

impl Iostat {
    /// Separates arrays, interval and count.
    ///
    /// # Errors
    /// A number is out of bounds or is given twice, or more than two numbers are given.
    pub fn reports(&self) -> Result<Reports, String> {
        let is_number = |word: &&String| word.parse::<f64>().is_ok();
        let numbers: Vec<&String> = self.words.iter().filter(is_number).collect();
        let arrays = self.words.iter().filter(|word| !is_number(word)).cloned().collect();
        let (every, count) = match numbers[..] {
            [] => (None, None),
            [every] => (Some(every), None),
            [every, count] => (Some(every), Some(count)),
            _ => {
                return Err(format!(
                    "{} numbers are given; at most two are allowed: the interval and the number of \
                reports",
                    numbers.len()
                ));
            }
        };
        let every = every.map(|text| seconds(text)).transpose()?;
        let count = count.map(|text| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| {
                format!("{text} is not a valid number of reports; write a whole number from 1")
            })
        });
        let count = count.transpose()?;
        if (every.is_some() && self.every.is_some()) || (count.is_some() && self.count.is_some()) {
            return Err(
                "the interval or the number of reports is given twice; give each only once"
                    .to_owned(),
            );
        }
        let every = every.or(self.every).unwrap_or(USUAL);
        Ok(Reports { arrays, every, count: count.or(self.count) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Iostat, Reports};
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        iostat: Iostat,
    }

    #[test]
    fn numbers_are_the_interval_and_the_count() {
        let parse = |words: &[&str]| {
            let all = ["x"].iter().chain(words);
            Only::try_parse_from(all).map_err(|e| e.to_string())?.iostat.reports()
        };
        let check = |words: &[&str], arrays: &[&str], every, count| {
            let arrays = arrays.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(parse(words), Ok(Reports { arrays, every, count }), "{words:?}");
        };
        check(&[], &[], 1.0, None);
        check(&["2"], &[], 2.0, None);
        check(&["2", "5"], &[], 2.0, Some(5));
        check(&["tank", "0.5", "3", "pool"], &["tank", "pool"], 0.5, Some(3));
        check(&["tank", "--every", "10", "--count", "1"], &["tank"], 10.0, Some(1));
        check(&["2", "--count", "4"], &[], 2.0, Some(4));
        for wrong in [&["0"][..], &["1", "0"], &["1", "2", "3"], &["1", "--every", "2"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["0.01", "1e9", "nan", "inf", "-1"] {
            assert!(parse(&["--every", wrong]).is_err(), "{wrong}");
            assert!(parse(&["--", wrong]).is_err(), "{wrong}");
        }
        assert!(parse(&["1", "1", "--count", "2"]).is_err());
    }
}
