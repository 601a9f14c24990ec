//! Checks that late commands have no effect. The server counts no more holds than there are guards and holds without
//! guards. No queue has an entry without a waiter.
//!
//! The check needs a `strict` trial. In such a trial a copy arrives in time (before the last moment of its command), or
//! so late that the server refuses it. The check runs only while none of these states is set:
//!
//! - `troubled`: a command or its reply was lost, and its undo may still be in flight. Ends after `settled`.
//! - `in_time`: a copy may arrive in time and run, for example take a place in a queue. Ends when no such copy can
//!   arrive, and neither a lock nor a place is left.
//! - `loose`: a lock was released while an acquire's copy could still arrive in time. The copy may take the free lock,
//!   and no task has a guard for this hold. It stays counted as long as the lock is held. Ends together with `in_time`.
//! - `unsure`: a command with a copy was sent when its client may have forgotten the server's clock (`KNOWN`). Its copy
//!   may take a place in a queue. Lasts for the rest of the trial.
//!
//! A RedLock's release by owner is not repeated at a server where its command was lost. One hold more than expected may
//! be counted there (`Stranded`), until the owner holds nothing at that server.
//!
//! `Looks` counts the looks that compared something. A theme with late commands fails if this count is 0.

use super::given::Given;
use super::scene::Scene;
use super::state::Stranded;
use crate::prelude::*;

/// Time for which a client is certain to know a server's clock.
const KNOWN: Duration = Duration::from_secs(50);

fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{}}}", name.trim_matches(['{', '}']))
}

impl Scene {
    /// Time after sending in which a command may still run. The server refuses later copies. After this time no retry
    /// is in flight.
    pub fn in_time_for(&self) -> Duration {
        self.timeout * 2 + ms(100)
    }

    /// Time after which the effects of every fault have been undone.
    fn settled(&self) -> Duration {
        self.timeout * 6 + ms(500)
    }

    /// Records the planned faults that have happened by now.
    pub(super) fn note_trouble(&self) {
        let state = &mut *self.state.lock();
        let now = Instant::now();
        let (copies, troubled, lost) = (&mut state.copies, &mut state.troubled, &mut state.lost);
        state.planned.retain(|planned| {
            let sent = planned.link.sent() > planned.number;
            if sent {
                if planned.lost {
                    *troubled = Some(now);
                    lost.push((planned.at, planned.number));
                }
                state.unsure |= self.start.elapsed() > KNOWN;
                // Most commands are sent at the start of their plan. For other commands the exact time is unknown.
                let at = if now - planned.since < self.in_time_for() { planned.since } else { now };
                if planned.late.is_some_and(|late| late < self.in_time_for()) {
                    state.in_time = state.in_time.max(Some(now + self.in_time_for()));
                }
                copies.extend(planned.late.map(|late| at + late + self.latency()));
                state.quiet = state.quiet.max(planned.late.map(|late| now + late + ms(500)));
            }
            !sent
        });
        copies.retain(|at| *at >= now);
        let counted =
            |left: &Stranded| count(&self.servers[left.server], self.flavour(false), self.names[left.key], &left.owner);
        state.stranded.retain(|left| counted(left) > 0);
        if state.in_time.is_some_and(|until| until < now) && self.is_empty() {
            (state.in_time, state.loose) = (None, false);
        }
    }

    /// True if neither a lock nor a place in a queue is left.
    fn is_empty(&self) -> bool {
        let is_gone = |key: &str| self.servers.iter().all(|server| server.pttl(key.as_bytes()) == -2);
        self.names.iter().all(|name| is_gone(name) && is_gone(&queue(name)))
    }

    /// Arrival time of the next late copy of a command.
    pub fn next_copy(&self) -> Option<Instant> {
        self.note_trouble();
        self.state.lock().copies.iter().min().copied()
    }

    /// Runs only if nothing is in flight and every fault is undone. No owner may have more holds at the server than it
    /// has guards and holds without guards, and no queue may have an entry.
    pub fn look_late(&self) {
        if !self.strict || self.state.lock().loose || !self.is_quiet() {
            return;
        }
        let state = self.state.lock();
        if state.troubled.is_some_and(|at| Instant::now() < at + self.settled()) {
            return;
        }
        // Only owners that were made to be passed to acquires are compared. A copy of another acquire may take a free
        // lock under its own new owner.
        let owners = state.given.iter().filter(|given| given.made_to_be_given).map(Given::text).collect();
        let certain = !state.unsure && state.in_time.is_none();
        drop(state);
        self.compare(&owners, "late");
        if self.kind.has_queues() && certain {
            self.state.lock().looks.queues += 1;
            self.look_at_queues();
        }
    }

    /// Records a release. A copy of the hold's acquire may arrive in time, and acquire the lock again.
    pub fn gives_back(&self) {
        self.note_trouble();
        let state = &mut *self.state.lock();
        state.loose |= state.in_time.is_some_and(|until| Instant::now() < until);
    }

    /// Lets every client learn the server's clock. A client that does not know the clock sends no last moment, so a
    /// late copy of its command may take a place.
    pub async fn begin(&self) {
        if !self.strict || !self.kind.has_queues() {
            return;
        }
        for client in (0..self.clients).map(|n| self.party(n).swap_remove(0).client) {
            take(&client.reentrant("clock"), &client.owner()).await.unlock().await.unwrap();
        }
    }

    /// Checks that the queues are empty. No task waits when this is called.
    fn look_at_queues(&self) {
        for name in &self.names {
            let there = words(&does(&self.servers[0], &format!("lrange {} 0 -1", queue(name))));
            if !there.is_empty() {
                self.wrong(format!("late: nobody waits, and there stand in the queue of {name}: {there:?}"));
            }
        }
    }

    /// True if no step, no command and no clean-up is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        let idle = |party: &Party| party.client.stats().under_way == 0 && party.link.in_flight() == 0;
        self.state.lock().busy == 0 && self.parties.lock().iter().flatten().all(idle)
    }
}
