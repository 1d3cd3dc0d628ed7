use crate::{
    Aspect, Counts, Direction, Limit, LimitError, LimitSet, Measure, Request, RequestRate,
};

fn rate(text: &str) -> Result<u64, LimitError> {
    text.parse().map(|RequestRate(rate)| rate)
}

#[test]
fn rates_of_requests_have_decimal_units() {
    assert_eq!(rate("7"), Ok(7));
    assert_eq!(rate("10k"), Ok(10_000));
    assert_eq!(rate("10K"), Ok(10_000));
    assert_eq!(rate("2M"), Ok(2_000_000));
    assert_eq!(rate("0"), Err(LimitError::Zero));
    assert_eq!(rate("0k"), Err(LimitError::Zero));
    for text in ["", "k", "1.5k", "-1", "+1", "10 k", "10kk", "ten", "1Ki"] {
        assert_eq!(rate(text), Err(LimitError::NotARate), "{text}");
    }
    for text in ["18446744073709551615G", "99999999999999999999", "9000000G"] {
        assert_eq!(rate(text), Err(LimitError::TooHigh), "{text}");
    }
}

#[test]
fn limits_have_bounds_and_are_not_rounded() {
    for rate in [1, 7, 9_999, 10_001, 1 << 50] {
        assert_eq!(Limit::new(rate, 0).map(Limit::rate), Ok(rate));
    }
    assert_eq!(Limit::new(0, 100), Err(LimitError::Zero));
    assert_eq!(Limit::new((1 << 50) + 1, 100), Err(LimitError::TooHigh));
    assert_eq!(Limit::new(1, 9), Err(LimitError::Burst));
    assert_eq!(Limit::new(1, 60_001), Err(LimitError::Burst));
    assert_eq!(Limit::new(1000, 0).map(Limit::depth), Ok(100));
    assert_eq!(Limit::new(1, 10).map(Limit::depth), Ok(1));
    assert_eq!(Limit::new(1 << 50, 60_000).map(Limit::depth), Ok(60 << 50));
}

#[test]
fn a_set_keeps_each_aspect_apart() {
    let mut set = LimitSet::default();
    assert!(set.is_empty());
    for (at, aspect) in Aspect::ALL.into_iter().enumerate() {
        set.set(aspect, Limit::new(at as u64 + 1, 0).ok());
    }
    let rates: Vec<u64> = set.iter().map(|(_, limit)| limit.rate()).collect();
    assert_eq!(rates, [1, 2, 3, 4, 5, 6]);
    let aspect = Aspect::new(Measure::Bytes, Counts::Reads);
    set.set(aspect, None);
    assert_eq!((set.get(aspect), set.iter().count()), (None, 5));
}

/// The cost in I/Os of a request that is divided at these offsets.
fn ios(bytes: u64, cuts: &[u64]) -> u64 {
    let mut sum = 0;
    let mut before = 0;
    for end in cuts.iter().copied().chain([bytes]) {
        let part = Request { direction: Direction::Read, before, bytes: end - before };
        sum += part.cost().ios;
        before = end;
    }
    sum
}

/// SPDK 2691: requests that are merged or divided on their way must not escape a limit, nor cost more.
#[test]
fn the_parts_of_a_request_cost_what_the_request_costs() {
    const KIB: u64 = 1024;
    assert_eq!(ios(4 * KIB, &[]), 1);
    assert_eq!(ios(256 * KIB, &[]), 1);
    assert_eq!(ios(256 * KIB + 1, &[]), 2);
    for cuts in [&[192 * KIB, 384 * KIB][..], &[4 * KIB], &[256 * KIB, 512 * KIB], &[1, 2, 3]] {
        assert_eq!(ios(1024 * KIB, cuts), 4, "{cuts:?}");
    }
    let trim = Request { direction: Direction::Write, before: 0, bytes: 0 };
    assert_eq!((trim.cost().ios, trim.cost().bytes), (1, 0));
}
