//! The fair lock: its order, and what keeps its queue going (`reference/lessons.md` §1.2; lessons 8, 9 and 10 of part 6).

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
