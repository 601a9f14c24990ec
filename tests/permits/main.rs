//! Permits: never more than n at a time, whoever dies, and every permit comes back.

mod basics;
mod rig;
