//! The server, the clients and the faults of a random run.

use super::history::Idle;
use super::plan::{Harm, Plan};
use crate::prelude::*;
use crate::trial::Break;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::watch;

pub struct Scene {
    pub server: SimServer,
    pub plan: Plan,
    pub start: Instant,
    /// The key of the number of permits, or of the count.
    name: &'static str,
    parties: Mutex<Vec<Party>>,
    /// Clients whose tasks were killed.
    dead: Mutex<Vec<Party>>,
    /// Counts the clients that were killed, by place.
    kills: Vec<watch::Sender<u32>>,
    waiting: AtomicUsize,
    idle: Mutex<Idle>,
    /// True while faults may still happen.
    rough: AtomicBool,
    watched: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

impl Scene {
    pub fn new(seed: u64, plan: Plan, name: &'static str) -> Self {
        let server = SimServer::new(seed);
        let parties = Mutex::new((0..plan.clients).map(|_| plan.party(&server)).collect());
        let kills = (0..plan.clients).map(|_| watch::channel(0).0).collect();
        let (start, rough, watched) = (Instant::now(), AtomicBool::new(true), AtomicBool::new(true));
        let (dead, waiting, idle, wrong) = Default::default();
        Self { server, plan, start, name, parties, dead, kills, waiting, idle, rough, watched, wrong }
    }

    pub fn wrong(&self, what: String) {
        crate::trace::say(|| format!("{:>12?} WRONG {what}", self.start.elapsed()));
        self.wrong.lock().push(format!("at {:?}: {what}", self.start.elapsed()));
    }

    /// Sets the number or count, directly at the server.
    pub fn set(&self, n: u32) {
        does(&self.server, &format!("set {} {n}", self.name));
    }

    /// The number or count on the server. None: there is none.
    pub fn stored(&self) -> Option<i64> {
        match does(&self.server, &format!("get {}", self.name)) {
            SimReply::Text(text) => std::str::from_utf8(&text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The client that is at this place now.
    pub fn party(&self, place: usize) -> Party {
        self.parties.lock()[place].clone()
    }

    /// Notified when the client at this place is killed.
    pub fn killed(&self, place: usize) -> watch::Receiver<u32> {
        self.kills[place].subscribe()
    }

    fn everyone(&self) -> Vec<Party> {
        let mut all = self.parties.lock().clone();
        all.extend(self.dead.lock().iter().cloned());
        all
    }

    /// Kills the tasks of a client, and starts a new client. `cut`: the dead client cannot release anything.
    fn kill(&self, place: usize, cut: bool) {
        let next = self.plan.party(&self.server);
        let old = std::mem::replace(&mut self.parties.lock()[place], next);
        old.link.partition(cut);
        self.dead.lock().push(old);
        self.kills[place].send_modify(|kills| *kills += 1);
    }

    /// Counts a waiting task until the result is dropped.
    pub fn waits(&self) -> impl Drop {
        struct Mark<'a>(&'a AtomicUsize);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Mark(&self.waiting)
    }

    /// W1: nobody waits while there is `enough` for every request.
    pub fn check_waiters(&self, enough: bool) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let waits = self.idle.lock().look(enough && waiting > 0, self.plan.wake_bound());
        if let Some(waits) = waits {
            self.wrong(format!("W1: {waiting} tasks wait for {waits:?} for permits that are free: {}", self.left()));
        }
    }

    /// A task was served, so the time of [`Self::check_waiters`] begins again.
    pub fn served(&self) {
        self.idle.lock().reset();
    }

    /// W3: without faults, a wait that ran out lasted as long as requested, and not much longer.
    pub fn check_wait(&self, wait: Duration, took: Duration) {
        if !self.plan.is_rough() && (took < wait || took > self.plan.longest_wait(wait)) {
            self.wrong(format!("W3: a wait of {wait:?} ran out after {took:?}"));
        }
    }

    /// Calls `look` every few ms until [`Self::stop_watching`].
    pub async fn watch(&self, seed: u64, look: impl Fn()) {
        let mut dice = Numbers::lane(seed, 77);
        while self.watched.load(Ordering::Relaxed) {
            sleep(dice.between(2, 18)).await;
            look();
        }
    }

    pub fn stop_watching(&self) {
        self.watched.store(false, Ordering::Relaxed);
    }

    /// Causes faults until [`Self::calm_down`].
    pub async fn harm(&self, dice: &mut Numbers) {
        while self.rough.load(Ordering::Relaxed) {
            sleep(dice.between(10, 250)).await;
            let (place, span) = (dice.below(self.plan.clients as u64) as usize, dice.between(5, 300));
            let choice = match self.plan.harm {
                Harm::None | Harm::Messages | Harm::Commands => continue,
                Harm::Breaks => dice.below(5),
                Harm::Jumps => 5,
                Harm::Storm => dice.below(6),
                Harm::Kills => dice.below(8),
                Harm::DataLoss => 8,
            };
            crate::trace::say(|| format!("{:>12?} harm {choice} at {place} for {span:?}", self.start.elapsed()));
            let link = self.party(place).link;
            match choice {
                0..5 => Break::of(choice, span).happen(&self.server, &link).await,
                5 => advance(span).await,
                6 | 7 => self.kill(place, choice == 6),
                _ => {
                    self.server.restart(false);
                    self.set(self.plan.n);
                }
            }
        }
        for party in self.everyone() {
            party.link.chaos(Chaos::default());
        }
    }

    /// Ends the faults. The task of [`Self::harm`] ends when the last fault is over.
    pub fn calm_down(&self) {
        self.rough.store(false, Ordering::Relaxed);
    }

    /// W1: waits for these tasks, which must end, and returns their outputs.
    pub async fn ended<T>(&self, tasks: Vec<JoinHandle<T>>) -> Vec<T> {
        let limit = Instant::now() + ms(120_000);
        let mut outputs = Vec::new();
        for mut task in tasks {
            match timeout_at(limit, &mut task).await {
                Ok(Ok(output)) => outputs.push(output),
                Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {
                    task.abort();
                    self.wrong(format!("W1: a task waits for ever: {}", self.left()));
                }
            }
        }
        outputs
    }

    fn left(&self) -> String {
        let all = self.everyone();
        left_over(&self.server, &all.iter().collect::<Vec<_>>())
    }

    /// Connects dead clients again, and waits until no command is in flight and no copy can arrive any more.
    pub async fn quiet(&self) {
        let all = self.everyone();
        for party in &all {
            party.link.partition(false);
        }
        let busy = || {
            let of = |party: &Party| party.client.stats().under_way + party.link.in_flight();
            let count: usize = all.iter().map(of).sum();
            if count == 0 { String::new() } else { format!("{count} commands and clean-ups are in flight") }
        };
        if let Err(left) = gone(busy, ms(20_000)).await {
            self.wrong(format!("K2: {left}"));
        }
        sleep(self.plan.way()).await;
    }

    /// K1, K2: deletes the number and the tokens, which have an end. Then nothing is left, and the clients shut down.
    pub async fn close(&self) {
        let own = [self.name.to_owned(), format!("{{{}}}:timeout", self.name)];
        for key in self.server.keys() {
            let (text, left) = (String::from_utf8_lossy(&key).into_owned(), self.server.pttl(&key));
            let is_token = text.starts_with("distlock_once:");
            if is_token && left == -1 {
                self.wrong(format!("L2: the token {text} never ends"));
            }
            if is_token || own.contains(&text) {
                self.server.command(&[b"del", &key]);
            }
        }
        let all = self.everyone();
        let parties: Vec<&Party> = all.iter().collect();
        if let Err(left) = settled(&self.server, &parties, ms(20_000)).await {
            self.wrong(format!("K1, K2: {left}"));
        }
        for party in parties {
            shut(&party.client).await.unwrap_or_else(|odd| self.wrong(odd));
        }
    }

    /// The broken rules so far.
    pub fn broken(&self) -> Vec<String> {
        self.wrong.lock().clone()
    }
}

/// The outcome of a run.
pub struct Run {
    pub wrong: Vec<String>,
    /// Number of spans, or of waits.
    pub count: usize,
    /// True if the tasks competed.
    pub full: bool,
}

impl Run {
    /// K2: no task is left of the run. `before`: number of tasks before the run.
    pub async fn without_tasks(mut self, before: usize) -> Self {
        let left = no_task_is_left(before, ms(500)).await;
        self.wrong.extend(left.err().map(|left| format!("K2: {left}")));
        self
    }
}

/// With fewer seeds, it is possible that no tasks compete.
const ENOUGH: u64 = 6;

/// Runs these seeds. Fails at the first run that breaks a rule.
pub fn run_seeds(what: &str, harm: Harm, seeds: Range<u64>, run: impl Fn(u64) -> Run) {
    let (mut count, mut full, number) = (0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let run = run(seed);
        let (n, first) = (run.wrong.len(), run.wrong[..run.wrong.len().min(8)].join("\n"));
        assert!(n == 0, "SEED={seed} of {what}, {harm:?}: {n} wrong:\n{first}");
        count += run.count;
        full += u64::from(run.full);
    }
    println!("{what}, {harm:?}: {number} seeds, {count} spans, {full} runs with competition");
    assert!(number < ENOUGH || full > 0, "{what}, {harm:?}: in no run did the tasks compete");
}

/// Polls this call so many times, at least once, and drops it. None: the call has not ended.
pub async fn cut<F: Future>(call: F, polls: u64) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = polls.max(1);
    std::future::poll_fn(|context| {
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Makes this call, and in some cases drops it at a random await point or at a random time. None: it was dropped.
pub async fn perhaps<F: Future>(dice: &mut Numbers, call: F) -> Option<F::Output> {
    match dice.below(8) {
        0 => cut(call, 1 + dice.below(8)).await,
        1 => timeout(dice.between(0, 80), call).await.ok(),
        _ => Some(call.await),
    }
}
