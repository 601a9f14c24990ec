//! Timing rules: rwlock.
