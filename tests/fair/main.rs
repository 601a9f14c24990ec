//! The fair lock: its order, and the progress of its queue.

mod cancel;
mod confirmations;
mod cost;
mod dead;
mod faults;
mod fleet;
mod grants;
mod monitor;
mod order;
mod passing;
mod peer;
mod queries;
mod rig;
mod upstream;
