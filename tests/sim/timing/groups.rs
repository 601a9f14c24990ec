//! Timing rules: groups.
