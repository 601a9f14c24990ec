//! Group locks over several simulated servers: RedLock (X2) and multi locks (X1). `enumeration` drops their calls
//! part-way, `sequences` has random runs.

mod special;
