//! The fair lock: its order, and what keeps its queue going.

mod alive;
mod cancel;
mod cost;
mod dead;
mod drift;
mod faults;
mod monitor;
mod order;
mod passing;
mod peer;
mod queries;
mod rig;
mod upstream;
