//! The queue of the reservation thread. Hosts take turns: a host waits for at most one request of each other host.

use crate::limits::RESERVATIONS_WAITING_MAX;
use std::collections::VecDeque;

/// The origin of a request. Hosts are distinguished by their authenticated NQN, because they can choose their
/// identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The host of this NQN.
    Host(String),
    /// The operator.
    Operator,
}

/// The requests of one asker, in order.
struct Lane<J> {
    asker: Asker,
    jobs: VecDeque<J>,
}

/// All requests. The first lane is next; no lane is empty.
pub(super) struct Line<J>(VecDeque<Lane<J>>);

impl<J> Line<J> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    fn lane(&mut self, asker: &Asker) -> &mut VecDeque<J> {
        let at = self.0.iter().position(|lane| lane.asker == *asker).unwrap_or_else(|| {
            self.0.push_back(Lane { asker: asker.clone(), jobs: VecDeque::new() });
            self.0.len() - 1
        });
        &mut self.0[at].jobs
    }

    /// Adds a job. Returns the job if its asker has reached the limit.
    pub(super) fn push(&mut self, asker: &Asker, job: J) -> Result<(), J> {
        let jobs = self.lane(asker);
        if jobs.len() >= RESERVATIONS_WAITING_MAX {
            return Err(job);
        }
        jobs.push_back(job);
        Ok(())
    }

    /// Returns a partially executed job, which continues in the next turn of its asker.
    pub(super) fn put_back(&mut self, asker: &Asker, job: J) {
        self.lane(asker).push_front(job);
    }

    /// Removes the next job. Its asker then has its next turn after all others.
    pub(super) fn next(&mut self) -> Option<(Asker, J)> {
        let mut lane = self.0.pop_front()?;
        let job = lane.jobs.pop_front()?;
        let asker = lane.asker.clone();
        if !lane.jobs.is_empty() {
            self.0.push_back(lane);
        }
        Some((asker, job))
    }

    /// Removes all jobs.
    pub(super) fn into_jobs(self) -> impl Iterator<Item = J> {
        self.0.into_iter().flat_map(|lane| lane.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, Line};
    use crate::limits::RESERVATIONS_WAITING_MAX;

    fn host(name: &str) -> Asker {
        Asker::Host(name.to_owned())
    }

    fn order(line: &mut Line<u32>) -> Vec<u32> {
        std::iter::from_fn(|| line.next()).map(|(_, job)| job).collect()
    }

    #[test]
    fn hosts_take_turns() {
        let mut line = Line::new();
        for (asker, job) in [
            (host("a"), 1),
            (host("a"), 2),
            (host("a"), 3),
            (host("b"), 11),
            (host("b"), 12),
            (Asker::Operator, 21),
        ] {
            line.push(&asker, job).expect("there is room");
        }
        assert_eq!(order(&mut line), [1, 11, 21, 2, 12, 3]);
    }

    #[test]
    fn what_is_put_back_is_next_of_its_host_and_behind_the_others() {
        let mut line = Line::new();
        for (asker, job) in [(host("a"), 1), (host("a"), 2), (host("b"), 11)] {
            line.push(&asker, job).expect("there is room");
        }
        let (asker, job) = line.next().expect("there is something");
        line.put_back(&asker, job);
        assert_eq!(order(&mut line), [11, 1, 2]);
        line.put_back(&asker, job);
        assert_eq!(order(&mut line), [1], "also when nothing else is there");
    }

    #[test]
    fn one_host_that_asks_for_too_much_leaves_room_for_another() {
        let mut line = Line::new();
        for job in 0..RESERVATIONS_WAITING_MAX as u32 {
            line.push(&host("a"), job).expect("there is room");
        }
        assert_eq!(line.push(&host("a"), 1000), Err(1000));
        line.push(&host("b"), 2000).expect("there is room for others");
        assert_eq!(line.into_jobs().count(), RESERVATIONS_WAITING_MAX + 1);
    }
}
