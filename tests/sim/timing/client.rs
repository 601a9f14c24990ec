//! Timing rules: client.
