//! Durations, names, certificates (findings 13, 14, 21).
