//! export-nbd
