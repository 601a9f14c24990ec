//! The simulated cluster against a real one: the same commands at nodes while slots move, and the same client calls
//! during the same events.

mod calls;
mod commands;
mod net;
