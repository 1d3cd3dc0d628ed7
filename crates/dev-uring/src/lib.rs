//! dev-uring
