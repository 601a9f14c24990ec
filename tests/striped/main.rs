//! The striped lock: one resource split into segments.

mod cancel;
mod cost;
mod faults;
mod load;
mod segments;
mod unusable;
mod whole;
