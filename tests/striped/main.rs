//! The striped lock: one resource cut into segments.

mod bad;
mod cancel;
mod cost;
mod faults;
mod load;
mod segments;
mod whole;
