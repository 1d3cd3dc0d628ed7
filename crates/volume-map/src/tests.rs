//! Tests of the crate: the orders by enumeration, random histories, codecs, space and limits.

mod codecs;
mod crash;
mod history;
mod oracle;
mod orders;
mod pairs;
mod promises;
mod scenario;
mod sizes;
mod space;
mod world;
