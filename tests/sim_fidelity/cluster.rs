//! The simulated cluster against a real one: the same commands at nodes between which slots are just being moved, and the same
//! clients' calls over clusters to which the same things happen.

mod calls;
mod commands;
mod net;
