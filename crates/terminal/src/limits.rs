//! Bounds of what is printed.

/// Width of tables in columns where no terminal says otherwise.
pub const WIDTH: usize = 80;

/// Rows of a screen where no terminal says otherwise.
pub const HEIGHT: usize = 24;

/// Narrowest screen that tables are made for, in columns; on a narrower one, lines wrap.
pub const WIDTH_MIN: usize = 40;

/// Widest screen that tables make use of: longer lines are not read, but followed with a finger.
pub const WIDTH_MAX: usize = 160;

/// Fewest characters that a path is shortened to.
pub const PATH_MIN: usize = 16;
