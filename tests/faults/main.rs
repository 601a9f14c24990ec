//! Faults of servers, networks and neighbours, and what the caller sees of each: `docs/faults.md` lists them.

mod ears;
mod fake;
mod half_done;
mod hostile;
mod kills;
mod login;
mod lost;
mod messages;
mod pause;
mod proxy;
mod refusal;
mod replies;
mod restart;
mod secrets;
mod standstill;
