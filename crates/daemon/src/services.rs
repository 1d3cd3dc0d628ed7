//! The gRPC calls. Each call checks the size of its request and passes the request to the control plane. Each service
//! has one file.

mod arrays;
mod audit;
mod config;
mod daemon;
mod drives;
mod events;
mod exports;
mod jobs;
mod pools;
mod qos;
mod spares;
mod volumes;
