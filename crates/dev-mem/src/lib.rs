//! dev-mem
