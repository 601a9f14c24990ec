//! Checks exhaustively how the holds of a shared owner are counted, for every order in which commands can reach the
//! server: late, twice or never.
//!
//! Clients A and B act as one owner, client P as another owner. Each client runs a short program, one step at a time. A
//! sent command may reach the server at any later time, up to twice (P's commands once). The reply arrives at once or
//! is lost. A client that waits for a reply may give up. Time passes in ticks, which all clocks count alike. The search
//! is breadth first, so it finds a shortest path to a violation.
//!
//! The state:
//!
//! - `now`: the tick of the server.
//! - `key`: the lock, if it is held: its owner, the `count` of holds, their `ids`, `until` (the end of the lease) and
//!   `cuts` (for each hold, the number of its last extend that could shorten the lease).
//! - `clients`: for each client the next step of its program, whether it waits for a reply, and the guards of its
//!   acquires. A guard counts as held until a tick.
//! - `wire`: the commands in flight, with their remaining copies and the tick of sending.
//! - `given_back`: the holds that were released after the last moment of their acquire, which is the last tick at which
//!   the acquire has an effect.
//!
//! The rules of the server. Each can be switched off by a [`Switch`], and the search must then find a violation:
//!
//! - acquire(id, earlier, last): does nothing after tick `last`. Replies "gone" if the hold `earlier` is not listed. If
//!   `id` is listed, the acquire only prolongs the lease. Otherwise it increments the count and lists `id`.
//! - release(id): removes `id` and no other id. The release of the only hold frees the lock. Any other release never
//!   shortens the lease.
//! - extend(id, mine, number, last): does nothing after `last`, or if `id` is not listed. Otherwise it prolongs the
//!   lease. With a `number` it may also shorten the lease, if all listed ids are in `mine`. It does nothing if this
//!   hold has seen this number or a higher one.
//! - force(last): does nothing after `last`. Otherwise it frees the lock.
//!
//! The rules of a client. It counts its lease from the time when it sent the command. If an extend that may shorten the
//! lease gets no reply, the client sends no extend and no acquire until this extend's last moment. It releases the hold
//! of an acquire that it gave up.
//!
//! Invariants of every state:
//!
//! - While a guard counts as held, its hold is listed at the server, unless the lock was forced open.
//! - Two owners never hold guards at the same time.
//! - The count is the number of ids.
//! - A hold that was released after its acquire's last moment is not listed again.

mod rules;
mod search;
mod world;

mod tests;
