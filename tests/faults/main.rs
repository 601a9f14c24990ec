//! Faults of servers and networks, and other programs at the same server. The tests check the effect on the caller.
//! `docs/faults.md` lists the faults.

mod clock;
mod demoted;
mod ears;
mod errors;
mod extends;
mod fake;
mod half_done;
mod hostile;
mod kills;
mod late_copies;
mod login;
mod lost;
mod messages;
mod passing;
mod pause;
mod proxy;
mod refusal;
mod replies;
mod restart;
mod rig;
mod secrets;
mod silent_subscription;
