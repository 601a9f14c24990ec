//! Semaphores: every acquire and release counts once, whatever happens to its command.

mod basics;
mod lost_replies;
mod rig;
