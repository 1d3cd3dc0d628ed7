//! Values with numbers that are used again. The memory grows to the largest number of values at a time.

/// A table of values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    empty: Vec<u32>,
}

impl<T> Slab<T> {
    /// Returns an empty table with memory for `capacity` values.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { values: Vec::with_capacity(capacity), empty: Vec::with_capacity(capacity) }
    }

    /// Adds a value, and returns its number.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.empty.pop() {
            self.values[at as usize] = Some(value);
            return at;
        }
        self.values.push(Some(value));
        (self.values.len() - 1) as u32
    }

    /// Returns a value.
    ///
    /// # Panics
    /// If no value has this number.
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut T {
        self.values[at as usize].as_mut().expect("a number belongs to a value")
    }

    /// Removes and returns a value.
    ///
    /// # Panics
    /// If no value has this number.
    pub(crate) fn remove(&mut self, at: u32) -> T {
        let value = self.values[at as usize].take().expect("a number belongs to a value");
        self.empty.push(at);
        value
    }

    /// Removes and returns all values.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.empty.clear();
        std::mem::take(&mut self.values).into_iter().flatten()
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.empty.len()
    }
}
