//! Group locks over several simulated servers: RedLock (X2) and multi locks (X1). `enumeration` drops unfinished calls,
//! `sequences` has random runs.

mod special;
