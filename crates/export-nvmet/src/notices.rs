//! Reservation notices of a controller for its host (Base, section 8.19.1).

use crate::limits::NOTICES_MAX;
use std::collections::VecDeque;
use strake_nvme_wire::reservation::{Notice, NoticeKind};

/// The unread notices.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Oldest first.
    waiting: VecDeque<Notice>,
    /// The number of notices so far.
    pub(crate) count: u64,
}

impl Notices {
    /// Adds a notice. If the list is full, the oldest is dropped; the gap in the numbers shows this.
    pub(crate) fn note(&mut self, kind: NoticeKind, namespace: u32) {
        self.count += 1;
        if self.waiting.len() >= NOTICES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Notice { number: self.count, kind, left: 0, namespace });
    }

    /// The oldest notice, with the number of notices behind it.
    pub(crate) fn first(&self) -> Option<Notice> {
        let left = self.waiting.len().saturating_sub(1) as u8;
        self.waiting.front().map(|notice| Notice { left, ..*notice })
    }

    /// Removes the oldest notice.
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
