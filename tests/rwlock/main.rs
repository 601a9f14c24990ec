//! The read-write lock: both halves together (RW1 to RW4), on real servers. Each half by itself is in the conformance
//! suite; random steps of several owners beside a model and Redisson are in `rw_model`; what depends on time or on the
//! order of commands is in `sim`.

mod cancel;
mod cost;
mod crowd;
mod dead;
mod downgrade;
mod faults;
mod force;
mod growth;
mod kills;
mod many;
mod marks;
mod peer;
mod policy;
mod refusal;
mod renewal;
mod rig;
mod state;
mod thousands;
mod together;
mod upgrade;
mod upstream;
