//! Timing rules: cluster.
