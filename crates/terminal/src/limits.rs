//! Bounds of what is printed.

/// Width of the progress of a command in columns if its terminal has no size.
pub const WIDTH: usize = 80;

/// Width of answers that go to a file or a pipe: lines are not broken, and names are not shortened.
pub const WIDTH_UNLIMITED: usize = usize::MAX;

/// Rows of a screen where no terminal says otherwise.
pub const HEIGHT: usize = 24;

/// Narrowest screen that tables are made for, in columns; on a narrower one, lines wrap.
pub const WIDTH_MIN: usize = 40;

/// Widest screen that tables make use of: longer lines are not read, but followed with a finger.
pub const WIDTH_MAX: usize = 160;

/// Fewest characters that a path is shortened to.
pub const PATH_MIN: usize = 16;
