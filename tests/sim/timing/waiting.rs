//! Timing rules: waiting.
