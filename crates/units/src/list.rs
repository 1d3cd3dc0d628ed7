//! A list of fixed capacity: what a plan is made of, because a plan must not allocate.

/// Up to `N` values in order, stored in place.
///
/// Values are `Copy + Default` so that the list needs neither `unsafe` nor a heap. Pushing past `N` is a
/// broken invariant of the caller (capacities follow from the limits of a geometry) and panics.
#[derive(Clone, Copy, Debug)]
pub struct FixedList<T, const N: usize> {
    items: [T; N],
    len: usize,
}

impl<T: Copy + Default, const N: usize> FixedList<T, N> {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { items: [T::default(); N], len: 0 }
    }

    /// Appends `item`.
    ///
    /// # Panics
    /// When the list is full.
    pub fn push(&mut self, item: T) {
        assert!(self.len < N, "a list of fixed capacity {N} overflowed");
        self.items[self.len] = item;
        self.len += 1;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The items as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T: Copy + Default, const N: usize> Default for FixedList<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy + Default, const N: usize> std::ops::Deref for FixedList<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Copy + Default, const N: usize> std::ops::DerefMut for FixedList<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}

impl<T: Copy + Default + PartialEq, const N: usize> PartialEq for FixedList<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Eq, const N: usize> Eq for FixedList<T, N> {}

impl<T: Copy + Default, const N: usize> FromIterator<T> for FixedList<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        let mut list = Self::new();
        for item in iter {
            list.push(item);
        }
        list
    }
}
