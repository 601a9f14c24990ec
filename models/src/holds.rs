//! How holds of an owner that several clients act as are counted: every order in which their commands can reach the
//! server, late, twice, or never.
//!
//! Two clients, A and B, act as one owner, and a third one, P, as another. Each has a short program and does one thing at
//! a time. A command that was sent may reach the server whenever it likes from then on, up to two times; its reply comes
//! in at once or is lost; whoever waits for a reply may give up. Time goes by in ticks, for all of them alike. The search
//! goes through all states that can be reached that way, breadth first, so that what it finds is as short as can be.
//!
//! | who | what | meaning |
//! |---|---|---|
//! | server | `now` | the tick |
//! | | `key` | the lock: owner, `count`, `ids` of its holds, `until`: its lease, `cuts`: the last extend of each; or none |
//! | client | `at`, `waits` | the next step of its program; the command whose reply it waits for |
//! | | `guards` | for each of its acquires: none, or held until a tick of its own clock |
//! | wire | `wire` | the commands that may still come in: what, how often, their last moment |
//! | book | `given_back` | holds that were given back after the last moment of their acquire had passed |
//!
//! The rules, each of which can be taken out by a [`Switch`]; the search must find that out:
//!
//! | command | the server does |
//! |---|---|
//! | acquire(id, earlier, last) | nothing after `last`; nothing where `id` is listed; "gone" where `earlier` is not; else it counts one up and lists `id` |
//! | release(id) | takes away `id` and nothing else; the last one frees the lock. What is left never has a shorter lease by it |
//! | extend(id, mine, number, last) | nothing after `last`, nor where `id` is not listed; else it makes the lease longer; with a `number` it sets it where all that is listed is in `mine`, and does nothing where an extend of this hold with this number or a later one came before |
//! | force(last) | nothing after `last`; else it frees the lock |
//!
//! And the client: it counts on a lease from when it sent the command; after an extend without a reply it sends neither
//! another one nor an acquire before the last moment has passed; what it gave up it gives back.
//!
//! What must be true in every state: who holds a guard is listed in the server for at least as long as the guard counts on
//! it, but for what was forced open; no two owners hold guards at the same time; the count is that of the ids; what was
//! given back after its acquire's last moment is never there again.

mod rules;
mod search;
mod world;

mod tests;
