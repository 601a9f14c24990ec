//! Rules about time, under the simulator's clock: how long a wait lasts, how soon a waiter is woken, when a lost lock
//! is signalled. Tests on real servers assert no time; their timing rules are here, one file for each feature.

mod backoff;
mod client;
mod counters;
mod delay;
mod ends;
mod fair;
mod faults;
mod groups;
mod late;
mod leases;
mod revoke;
mod rwlock;
mod votes;
mod waiting;
