//! Stories of an array on drives that fail, on one thread.

mod media;
mod stage;
mod writes;
