//! What a controller is to tell its host about reservations (Base, section 8.19.1).

use crate::limits::NOTICES_MAX;
use std::collections::VecDeque;
use strake_nvme_wire::reservation::{Notice, NoticeKind};

/// What waits to be read.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Oldest first.
    waiting: VecDeque<Notice>,
    /// How many there were.
    pub(crate) count: u64,
}

impl Notices {
    /// Adds one. When there is no room the oldest goes: the numbers tell.
    pub(crate) fn note(&mut self, kind: NoticeKind, namespace: u32) {
        self.count += 1;
        if self.waiting.len() >= NOTICES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Notice { number: self.count, kind, left: 0, namespace });
    }

    /// The oldest, and how many are behind it.
    pub(crate) fn first(&self) -> Option<Notice> {
        let left = self.waiting.len().saturating_sub(1) as u8;
        self.waiting.front().map(|notice| Notice { left, ..*notice })
    }

    /// Takes the oldest away.
    pub(crate) fn drop_first(&mut self) {
        self.waiting.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::Notices;
    use crate::limits::NOTICES_MAX;
    use strake_nvme_wire::reservation::NoticeKind;

    #[test]
    fn the_oldest_comes_first_and_goes_first() {
        let mut notices = Notices::default();
        assert_eq!(notices.first(), None);
        for namespace in 1..=NOTICES_MAX as u32 + 2 {
            notices.note(NoticeKind::ReservationReleased, namespace);
        }
        let first = notices.first().expect("there are some");
        assert_eq!((first.number, first.namespace), (3, 3), "two were lost, and the numbers tell");
        assert_eq!(usize::from(first.left), NOTICES_MAX - 1);
        notices.drop_first();
        let second = notices.first().expect("there are more");
        assert_eq!((second.number, usize::from(second.left)), (4, NOTICES_MAX - 2));
    }
}
