//! Runtimes that end, executors of others, guards dropped at once (findings 11, 14, 15).
