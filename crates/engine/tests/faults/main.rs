//! Stories of an array on drives that fail, on one thread.

mod any;
mod badblocks;
mod control;
mod fair;
mod hang;
mod intent;
mod intents;
mod kept;
mod latency;
mod media;
mod queues;
mod readd;
mod rebuild;
mod recovered;
mod redo;
mod replace;
mod scrub;
mod slow;
mod stage;
mod start;
mod survivors;
mod undelete;
mod writes;
