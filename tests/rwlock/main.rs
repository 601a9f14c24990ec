//! The read-write lock: both halves together (`reference/lessons.md` §1.3; lessons 19 and 20 of part 6; RW1 to RW4 of
//! `reference/reliability.md` §2). Each half by itself is in the conformance suite.

mod cancel;
mod cost;
mod crowd;
mod dead;
mod downgrade;
mod extend;
mod faults;
mod force;
mod growth;
mod kills;
mod leases;
mod many;
mod marks;
mod owners;
mod peer;
mod policy;
mod promises;
mod queries;
mod refusal;
mod renewal;
mod rig;
mod state;
mod stream;
mod thousands;
mod together;
mod upgrade;
mod upstream;
