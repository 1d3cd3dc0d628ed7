//! Tests of the crate: the orders by enumeration, random histories, codecs, space and limits.

mod codecs;
mod crash;
mod direct;
mod failures;
mod history;
mod oracle;
mod orders;
mod pairs;
mod promises;
mod reservations;
mod scenario;
mod sizes;
mod space;
mod wakeups;
mod world;
