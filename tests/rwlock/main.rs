//! The read-write lock: both halves together (RW1 to RW4), on real servers. The conformance suite tests each half by
//! itself, `rw_model` runs random steps against a model and Redisson, and `sim` covers everything that depends on time
//! or on the order of commands.

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
mod policy;
mod refusal;
mod rig;
mod state;
mod thousands;
mod together;
mod upgrade;
mod upstream;
