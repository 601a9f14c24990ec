//! The striped lock: one resource cut into segments.

mod cancel;
mod cost;
mod faults;
mod load;
mod segments;
mod unusable;
mod whole;
