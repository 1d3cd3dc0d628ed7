//! What each call does: check the size of what came, and hand it to the control plane. One file per service.

mod arrays;
mod config;
mod daemon;
mod drives;
mod events;
mod exports;
mod jobs;
mod spares;
