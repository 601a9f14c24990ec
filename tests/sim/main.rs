//! The whole client over the simulator: cancellation at every await, random runs against the invariants, wake-ups.
//! Time is virtual. A failure prints its seed or its case.

mod actor;
mod answers;
mod batch;
mod cases;
mod cluster;
mod company;
mod copies;
mod crowd;
mod enumeration;
mod fleet;
mod flood;
mod found;
mod given_away;
mod group;
mod history;
mod made;
mod order;
mod pair;
mod prelude;
mod random;
mod readers;
mod rig;
mod rwlock;
mod sequences;
mod smoke;
mod stage;
mod states;
mod timing;
mod trace;
mod trial;
mod weather;
