//! RedLock over real, independent servers: what it promises with some of them away, and what it cannot.

mod cancel;
mod clock;
mod closing;
mod contention;
mod cost;
mod faults;
mod majority;
mod minority;
mod own_way;
mod refusal;
mod renewal;
mod restart;
mod rig;
mod surface;
mod sweep;
mod validity;
