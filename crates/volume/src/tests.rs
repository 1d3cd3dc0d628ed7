//! Tests of pools: formats, layout, the log, the driver on drives in memory, and crashes at any point.

mod below;
mod crashes;
mod direct;
mod faults;
mod layouts;
mod logs;
mod serving;
mod world;
