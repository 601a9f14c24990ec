//! The fair lock: its order, and the progress of its queue.

mod cancel;
mod confirmations;
mod cost;
mod dequeue;
mod faults;
mod fleet;
mod grants;
mod passing;
mod queries;
mod rig;
mod upstream;
