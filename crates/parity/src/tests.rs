//! Tests of the crate, each on every kernel the machine has.

mod textbook;

mod recovering;
