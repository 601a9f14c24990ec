//! Commands that come in late, watched: when they come, what they were to do is over. So the server counts no more holds
//! than there are guards, or holds whose guards were given up, and nobody stands in a queue who does not wait.
//!
//! That can be said of a trial that is `strict`, whose copies come in either in time, before the last moment of their
//! command, or so late that they are refused; and there only while none of these is in the way:
//!
//! - `troubled`: a command or its reply was lost. What is in doubt is undone behind it; over when there was time for that
//!   (`settled`).
//! - `in_time`: a copy may come in that is in time, and is carried out: it may take a place in a queue. Over when none can
//!   come in any more, and neither a lock nor a place is left since: whatever it took is gone.
//! - `loose`: something was given back while such a copy might come in: that of an acquire takes the free lock for nobody,
//!   and stays counted for as long as the lock is held. Over together with `in_time`.
//! - `unsure`: a copy is of a command that was sent late in the trial, when its client may have forgotten the server's
//!   clock (`KNOWN`): it may take a place in a queue. For the rest of the trial.
//!
//! A RedLock's release by owner is not repeated at a server where a command of it was lost: one hold more may be counted
//! there (`Stranded`), until its owner holds nothing there any more.
//!
//! The looks that compared something all the same are counted (`Looks`): a theme of late commands that has none fails.

use super::given::Given;
use super::scene::Scene;
use super::state::Stranded;
use crate::prelude::*;

/// For how long a server's clock is known for certain.
const KNOWN: Duration = Duration::from_secs(50);

fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{}}}", name.trim_matches(['{', '}']))
}

impl Scene {
    /// For how long after it was sent a command may come in and be in time. Later it must be refused, and no repeat of it is under way
    /// any more.
    pub fn in_time_for(&self) -> Duration {
        self.timeout * 2 + ms(100)
    }

    /// From when on all that went wrong has been made good.
    fn settled(&self) -> Duration {
        self.timeout * 6 + ms(500)
    }

    /// Takes note of what has gone wrong by now.
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
                // Most are sent at once; of one that was not, nobody knows just when.
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
        let stays = |left: &Stranded| {
            count(&self.servers[left.server], self.flavour(false), self.names[left.key], &left.owner) > 0
        };
        state.stranded.retain(stays);
        if state.in_time.is_some_and(|until| until < now) && self.is_empty() {
            (state.in_time, state.loose) = (None, false);
        }
    }

    /// Neither a lock nor a place in a queue is left.
    fn is_empty(&self) -> bool {
        let is_gone = |key: &str| self.servers.iter().all(|server| server.pttl(key.as_bytes()) == -2);
        self.names.iter().all(|name| is_gone(name) && is_gone(&queue(name)))
    }

    /// When the next late copy will have come in.
    pub fn next_copy(&self) -> Option<Instant> {
        self.note_trouble();
        self.state.lock().copies.iter().min().copied()
    }

    /// Where nothing is under way, and all is over that went wrong: no owner has more in the server than guards, or holds
    /// that were given up, and nobody stands in a queue.
    pub fn look_late(&self) {
        if !self.strict || self.state.lock().loose || !self.is_quiet() {
            return;
        }
        let state = self.state.lock();
        if state.troubled.is_some_and(|at| Instant::now() < at + self.settled()) {
            return;
        }
        // A copy of what an owner has sent that was made for one acquire may take a free lock for nobody.
        let owners = state.given.iter().filter(|given| given.made_to_be_given).map(Given::text).collect();
        let certain = !state.unsure && state.in_time.is_none();
        drop(state);
        self.compare(&owners, "late");
        if self.kind.has_queues() && certain {
            self.state.lock().looks.queues += 1;
            self.look_at_queues();
        }
    }

    /// Something is given back, whose acquire may come in once more: a copy that is not late finds nothing of it.
    pub fn gives_back(&self) {
        self.note_trouble();
        let state = &mut *self.state.lock();
        state.loose |= state.in_time.is_some_and(|until| Instant::now() < until);
    }

    /// Has every client know the server's clock: before that, a copy of what a fresh waiter has sent takes a place for a while.
    pub async fn begin(&self) {
        if !self.strict || !self.kind.has_queues() {
            return;
        }
        for client in (0..self.clients).map(|n| self.party(n).swap_remove(0).client) {
            let lock = client.reentrant("clock");
            let guard = lock.acquire(Acquire::new().owner(&client.owner())).await.unwrap().unwrap();
            guard.unlock().await.unwrap();
        }
    }

    /// Nobody waits: nobody stands in a queue.
    fn look_at_queues(&self) {
        for name in &self.names {
            let there = words(&does(&self.servers[0], &format!("lrange {} 0 -1", queue(name))));
            if !there.is_empty() {
                self.wrong(format!("late: nobody waits, and there stand in the queue of {name}: {there:?}"));
            }
        }
    }

    /// True when no step, no command and no clean-up is under way.
    pub(super) fn is_quiet(&self) -> bool {
        let idle = |party: &Party| party.client.stats().under_way == 0 && party.link.in_flight() == 0;
        self.state.lock().busy == 0 && self.parties.lock().iter().flatten().all(idle)
    }
}
