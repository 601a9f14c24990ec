//! Checks exhaustively how the holds of a shared owner are counted, for every order in which commands can reach the
//! server: late, twice or never.
//!
//! Clients A and B act as one owner, client P as another owner. Each client runs a short program, one step at a time.
//! A sent command may reach the server at any later time, up to twice (P's commands once). Its reply arrives at once
//! or is lost. A client that waits for a reply may give up. Time passes in ticks, equal for all. The search is
//! breadth first, so it finds a shortest path to a violation.
//!
//! The state:
//!
//! - `now`: the tick of the server.
//! - `key`: the lock, if it is held. Owner, `count`, the `ids` of its holds, `until` (the end of the lease) and `cuts`
//!   (the last shortening extend of each hold).
//! - `clients`: for each client the next step of its program, whether it waits for a reply, and the guard of each of
//!   its acquires, which counts as held until a tick.
//! - `wire`: the commands in flight, with their remaining copies and the tick of sending.
//! - `given_back`: the holds that were released after the last moment of their acquire.
//!
//! The rules of the server. Each can be switched off by a [`Switch`], and the search must then find a violation:
//!
//! - acquire(id, earlier, last): does nothing after `last`. Replies "gone" if `earlier` is not listed. If `id` is
//!   listed, it only prolongs the lease; otherwise it counts up and lists `id`.
//! - release(id): removes `id` and nothing else. The last release frees the lock. Other releases never shorten the
//!   lease.
//! - extend(id, mine, number, last): does nothing after `last`, or if `id` is not listed. Otherwise it prolongs the
//!   lease. With a `number` it may also shorten the lease, if all listed ids are in `mine`. It does nothing if this
//!   hold has seen this number or a later one.
//! - force(last): does nothing after `last`. Otherwise it frees the lock.
//!
//! The rules of a client: it counts its lease from the time when it sent the command. After a shortening extend
//! without a reply, it sends no extend and no acquire before the last moment of that extend. It releases an acquire
//! that it gave up.
//!
//! Invariants of every state:
//!
//! - A guard's hold is listed at the server for as long as the guard counts on it, unless it was forced open.
//! - Two owners never hold guards at the same time.
//! - The count is the number of ids.
//! - A hold that was released after its acquire's last moment never reappears.

mod rules;
mod search;
mod world;

mod tests;
