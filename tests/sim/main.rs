//! The whole client over the simulator: cancellation at every await, random runs against the invariants, wake-ups. Time
//! is virtual. A failure prints its seed or its case.
//!
//! Ids such as `M1` are the invariants in `tests/README.md`, and `docs/architecture.md` has a glossary. In addition: a
//! *copy* is a duplicate of a command, made by the network. A command in doubt is *undone*, and a *second look* follows
//! when none of its copies can arrive any more. A *place* is a waiter's entry in the queue of a fair lock. *Trouble* is
//! a fault that the test causes.

mod actor;
mod answers;
mod cases;
mod cluster;
mod company;
mod copies;
mod counters;
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
