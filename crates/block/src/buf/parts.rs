//! The pieces of a scatter list in two words. Nearly every list has one piece, and lists are moved several times per
//! I/O, so lists with more pieces store them elsewhere.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::arena::{Buf, BufMut};
use super::list::SEGMENTS_MAX;
use arrayvec::ArrayVec;

/// Maximum number of spare longer lists of a thread. A list returns to the thread that created it, so this is about the
/// number of such lists that a core uses at a time.
const SPARE_MAX: usize = 1024;

type Long<T> = Box<ArrayVec<T, SEGMENTS_MAX>>;
type Spare<T> = RefCell<Vec<Long<T>>>;

/// A piece of a list.
pub(super) trait Piece: Sized + 'static {
    /// Returns the length in bytes.
    fn len(&self) -> usize;

    /// Returns the unused longer lists of this thread.
    fn spare() -> &'static LocalKey<Spare<Self>>;
}

impl Piece for Buf {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    fn spare() -> &'static LocalKey<Spare<Self>> {
        thread_local!(static SPARE: Spare<Buf> = const { RefCell::new(Vec::new()) });
        &SPARE
    }
}

impl Piece for BufMut {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    fn spare() -> &'static LocalKey<Spare<Self>> {
        thread_local!(static SPARE: Spare<BufMut> = const { RefCell::new(Vec::new()) });
        &SPARE
    }
}

/// Up to [`SEGMENTS_MAX`] pieces in order.
#[derive(Debug)]
pub(super) enum Parts<T: Piece> {
    /// One piece.
    One(T),
    /// No piece, or several pieces.
    More(More<T>),
}

/// Pieces in memory that returns to the spare lists of the thread.
#[derive(Debug)]
pub(super) struct More<T: Piece>(Option<Long<T>>);

impl<T: Piece> Default for Parts<T> {
    fn default() -> Self {
        Self::More(More(None))
    }
}

impl<T: Piece> Parts<T> {
    #[inline]
    pub(super) const fn one(piece: T) -> Self {
        Self::One(piece)
    }

    #[inline]
    pub(super) fn two([first, second]: [T; 2]) -> Self {
        let mut pieces = take_spare();
        pieces.push(first);
        pieces.push(second);
        Self::More(More(Some(pieces)))
    }

    /// Bytes of all pieces.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(piece) => piece.len(),
            Self::More(_) => self.as_slice().iter().map(T::len).sum(),
        }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::More(More(Some(pieces))) => pieces,
            Self::More(More(None)) => &[],
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::One(piece) => std::slice::from_mut(piece),
            Self::More(More(Some(pieces))) => pieces,
            Self::More(More(None)) => &mut [],
        }
    }

    /// Appends a piece. Returns the piece if there are already [`SEGMENTS_MAX`] pieces.
    pub(super) fn push(&mut self, piece: T) -> Result<(), T> {
        match self {
            Self::More(More(None)) => *self = Self::One(piece),
            Self::More(More(Some(pieces))) => {
                return pieces.try_push(piece).map_err(|full| full.element());
            }
            Self::One(_) => {
                let Self::One(first) = std::mem::take(self) else { unreachable!("it was one") };
                let mut pieces = take_spare();
                pieces.push(first);
                pieces.push(piece);
                *self = Self::More(More(Some(pieces)));
            }
        }
        Ok(())
    }

    /// Returns the only piece, if there is exactly one.
    #[inline(always)]
    pub(super) fn into_one(self) -> Option<T> {
        match self {
            Self::One(piece) => Some(piece),
            Self::More(more) => more.into_one(),
        }
    }

    /// Removes and returns the first piece.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        if let Self::More(More(pieces)) = self {
            let first = pieces.as_mut()?.remove(0);
            if pieces.as_ref().is_some_and(|pieces| pieces.is_empty()) {
                *self = Self::default();
            }
            return Some(first);
        }
        let Self::One(piece) = std::mem::take(self) else { unreachable!("it was one") };
        Some(piece)
    }
}

impl<T: Piece> More<T> {
    #[cold]
    fn into_one(mut self) -> Option<T> {
        let pieces = self.0.as_mut()?;
        if pieces.len() == 1 { pieces.pop() } else { None }
    }
}

fn take_spare<T: Piece>() -> Long<T> {
    // A thread that is ending has no spare lists.
    let spare = T::spare().try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_default()
}

impl<T: Piece + Clone> Clone for Parts<T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::One(piece) => Self::One(piece.clone()),
            Self::More(more) => Self::More(more.clone()),
        }
    }
}

impl<T: Piece + Clone> Clone for More<T> {
    #[cold]
    fn clone(&self) -> Self {
        Self(self.0.as_ref().map(|pieces| {
            let mut copy = take_spare();
            copy.extend(pieces.iter().cloned());
            copy
        }))
    }
}

impl<T: Piece> Drop for More<T> {
    // Nearly every dropped list is empty, because its pieces were taken.
    #[inline]
    fn drop(&mut self) {
        if let Some(pieces) = self.0.take() {
            spare(pieces);
        }
    }
}

/// Stores a longer list for later use.
#[cold]
fn spare<T: Piece>(mut pieces: Long<T>) {
    pieces.clear();
    let keep = |spare: &Spare<T>| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(pieces);
        }
    };
    // A thread that is ending stores no lists.
    let _ = T::spare().try_with(keep);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completion, Io, Op, Sg, SgMut};

    /// Values that are moved several times per I/O fit in a cache line.
    #[test]
    fn what_travels_is_small() {
        let word = size_of::<usize>();
        assert_eq!((size_of::<Sg>(), size_of::<SgMut>()), (2 * word, 2 * word));
        assert_eq!((size_of::<Op>(), size_of::<Io>()), (4 * word, 5 * word));
        assert!(size_of::<Completion>() <= 6 * word);
    }

    #[test]
    fn longer_lists_are_used_again() {
        let spare = |count: usize| {
            let mut list = SgMut::default();
            for _ in 0..count {
                list.push(BufMut::alone(8)).expect("there is room");
            }
            assert_eq!(list.parts().len(), count);
            drop(list);
            BufMut::spare().with(|spare| spare.borrow().len())
        };
        assert_eq!((spare(1), spare(4), spare(2), spare(3)), (0, 1, 1, 1));
    }
}
