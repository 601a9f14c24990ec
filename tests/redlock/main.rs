//! RedLock over real, independent servers: what it promises with some of them away, and what it cannot. Rules about its time are in
//! `tests/sim/timing/groups.rs` and `tests/sim/group`.

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
