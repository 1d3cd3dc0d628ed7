//! Shows possible errors in the contents of an array.

use strake_api::v1::{self as api, Problem};
use strake_units::ByteSize;

use crate::limits::BAD_RANGES_MAX;
use crate::policy::advice::{suspect_next, unverified_next};
use crate::policy::doubt::total;
use crate::remedy::{problem, split};

/// Adds to `view`, the message of a running array, the ranges of bytes that are suspect, and the time since which its
/// redundancy is not verified. `unverified_us` is in microseconds since 1970, and 0 if the redundancy is verified.
pub(crate) fn show_doubts(suspect: &[(u64, u64)], unverified_us: u64, view: &mut api::Array) {
    view.suspect_bytes = total(suspect);
    view.suspect_ranges = (suspect.iter().take(BAD_RANGES_MAX))
        .map(|&(offset_bytes, length_bytes)| api::ByteRange { offset_bytes, length_bytes })
        .collect();
    view.unverified_us = Some(unverified_us).filter(|us| *us > 0);
    let is_degraded = is_degraded(view);
    let states = [
        (view.suspect_bytes > 0, "suspect", suspect_next(&view.name, is_degraded)),
        (view.unverified_us.is_some(), "unverified", unverified_next(&view.name, is_degraded)),
    ];
    for (_, word, next) in states.into_iter().filter(|(is, ..)| *is) {
        view.states.push(word.to_owned());
        if view.next_action.is_empty() {
            (view.next_action, view.remedy) = split(next);
        }
    }
}

fn is_degraded(array: &api::Array) -> bool {
    array.members.iter().any(|member| member.state != "in_sync")
}

/// The problems for the status, each with the state that it explains.
pub(crate) fn problems(array: &api::Array) -> Vec<(&'static str, Problem)> {
    let (name, is_degraded) = (&array.name, is_degraded(array));
    let of_it = |what: String, next| problem(format!("array/{name}"), "degraded", what, next);
    let suspect = (array.suspect_bytes > 0).then(|| {
        let what = format!(
            "{} may be wrong, because they were or may have been reconstructed from inconsistent stripes",
            ByteSize(array.suspect_bytes)
        );
        ("suspect", of_it(what, suspect_next(name, is_degraded)))
    });
    let unverified = array.unverified_us.map(|_| {
        let what = "parity or copies were not verified since a crash in mode none".to_owned();
        ("unverified", of_it(what, unverified_next(name, is_degraded)))
    });
    suspect.into_iter().chain(unverified).collect()
}
