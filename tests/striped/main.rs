//! The striped lock: one resource cut into segments.

mod load;
mod segments;
mod whole;
