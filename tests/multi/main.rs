//! The multi lock: several locks as one. Rules about its time are in `tests/sim/timing/groups.rs`.

mod batch;
mod cancel;
mod cost;
mod faults;
mod leases;
mod lists;
mod members;
mod mixed;
mod order;
mod owners;
mod release;
mod rig;
mod together;
