//! Timing rules: faults.
