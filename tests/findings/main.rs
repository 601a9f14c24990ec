//! What was found in use and by adversaries, each a regression test by its number.

/// Guards dropped at once.
mod dropped;
/// Several locks as one.
mod groups;
/// Two holders: shared owners, late copies, forged and misread grants.
mod holders;
/// Durations, names, certificates.
mod inputs;
/// Fair queues shared with Java.
mod queues;
/// By running things.
mod running;
/// Runtimes that end, executors of others.
mod runtimes;
/// Waiters left behind.
mod waiters;
/// Waits that last as long as they were asked to.
mod waits;
