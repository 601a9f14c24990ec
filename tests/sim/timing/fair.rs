//! Timing rules: fair.
