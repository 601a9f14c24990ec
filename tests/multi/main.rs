//! The multi lock: several locks as one (`reference/lessons.md` §1.4; lesson 24 of part 6; threads 84, 85 and 87 of §2.9;
//! protocol §8).

mod batch;
mod cancel;
mod cost;
mod faults;
mod leases;
mod lists;
mod lost;
mod members;
mod mixed;
mod order;
mod owners;
mod release;
mod rig;
mod together;
mod upstream;
