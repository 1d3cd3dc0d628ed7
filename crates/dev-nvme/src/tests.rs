//! Tests of the driver with the model of a controller.

mod faults;
mod io;
mod maintenance;
mod prp;
mod pulled;
mod refusals;
mod search;
mod sessions;
mod world;
