//! Group locks over several simulated servers: RedLock (X2) and multi locks (X1). `enumeration.rs` drops their
//! unfinished calls, and `sequences.rs` has random runs.

mod special;
