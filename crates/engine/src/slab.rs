//! A table of values with stable indices.

/// Values at fixed indices. Only [`reserve`](Self::reserve) allocates; the data path never calls it.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut slab = Self { places: Vec::new(), free: Vec::new() };
        slab.reserve(capacity);
        slab
    }

    /// Increases the capacity by `more` values.
    pub(crate) fn reserve(&mut self, more: usize) {
        let start = self.places.len();
        self.places.resize_with(start + more, || None);
        self.free.reserve(self.places.len());
        self.free.extend((start..start + more).rev().map(|i| i as u32));
    }

    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Stores `value` and returns its index.
    ///
    /// # Panics
    /// If the table is full. Callers check [`room`](Self::room) before they accept work.
    // Values are constructed in place, see decision 13.
    #[inline(always)]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = self.free.pop().expect("a slab overflowed: its user did not ask for room");
        self.places[at as usize] = Some(value);
        at
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    /// Removes and returns the value at `at`.
    ///
    /// # Panics
    /// If there is no value, because the index was used after the removal of its value.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32) -> T {
        let value = self.places[at as usize].take().expect("a slab number was used twice");
        self.free.push(at);
        value
    }

    /// Drops the value at `at` in place.
    ///
    /// # Panics
    /// If there is no value, because the index was used after the removal of its value.
    #[inline]
    pub(crate) fn release(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        assert!(place.is_some(), "a slab number was used twice");
        *place = None;
        self.free.push(at);
    }

    /// Returns the index of any value, to empty the slab.
    pub(crate) fn any(&self) -> Option<u32> {
        self.places.iter().position(Option::is_some).map(|at| at as u32)
    }

    /// Iterates over all values with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(i, p)| p.as_ref().map(|v| (i as u32, v)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.places.iter_mut().enumerate().filter_map(|(i, p)| p.as_mut().map(|v| (i as u32, v)))
    }
}
