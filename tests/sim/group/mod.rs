//! Locks that are made of others, over several simulated servers: RedLock (X2) and multi locks (X1). `enumeration` drops their calls
//! half-way, `sequences` has random runs.

mod special;
