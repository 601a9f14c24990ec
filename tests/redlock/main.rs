//! RedLock over real, independent servers: its guarantees with unreachable servers, and its limits. Rules about its
//! time are in `tests/sim/timing/groups.rs` and `tests/sim/group`.

mod cancel;
mod clock;
mod contention;
mod cost;
mod faults;
mod majority;
mod minority;
mod own_way;
mod refusal;
mod restart;
mod rig;
mod surface;
mod sweep;
mod votes;
