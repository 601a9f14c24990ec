//! One run of one fleet: start, warm-up, measurement with faults, end.

use std::time::Duration;

use distlock_support::agent::monotonic_ns;
use distlock_support::reaper::Folder;
use distlock_support::{Admin, Numbers, RedisServer};
use futures::future::join_all;

use crate::args::{Args, Fleet, Language};
use crate::faults::{self, FREEZE, Fault};
use crate::figures::{Life, Observed, Row};
use crate::locks::Job;
use crate::process::Member;

const WARM_UP: Duration = Duration::from_secs(3);
/// Time limit of the last turns of the warm-up.
const WARM_UP_ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Time between the request and the common start of a loop.
const LEAD: Duration = Duration::from_millis(300);
/// Time limit of the last turns, in addition to two leases. A worker that waits longer counts as unfinished.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit of the search for a victim that holds the lock.
const SEARCH: Duration = Duration::from_secs(5);
const SEARCH_PAUSE: Duration = Duration::from_micros(200);

struct Run<'a> {
    args: &'a Args,
    members: Vec<Member>,
    spares: Vec<Member>,
    dead: Vec<Member>,
    /// Number and end of each freeze that has not ended.
    frozen: Vec<(usize, u64)>,
    numbers: Numbers,
    job: Job,
}

/// Runs one fleet on its own server, and returns its figures.
pub async fn run(args: &Args, fleet: Fleet, seed: u64) -> Row {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let folder = Folder::new();
    let faults = faults::plan(args, fleet, seed);
    let mut run = Run::start(args, fleet, seed, &faults, &server.url(), &folder).await;
    run.warm_up().await;

    let from = monotonic_ns() + nanos(LEAD);
    let to = from + nanos(args.length());
    let names = Job::names_of(args.flavour, "measured");
    run.job = Job { name: "measured".to_owned(), names, hold_us: args.hold_ms * 1000, from, to, ..run.job };
    for member in &mut run.members {
        member.begin(&run.job, true).await;
    }
    sleep_until(from).await;
    admin.reset_stats().await;
    run.disturb(&faults).await;
    sleep_until(to).await;
    let stats = admin.commandstats().await;
    let scripts = ["evalsha", "eval"].iter().filter_map(|name| stats.get(*name)).sum();
    let (members, seen_until) = run.end().await;

    let freezes = members.iter().map(|member| member.fate.freezes.len()).sum();
    let lives = members.into_iter().map(|member| {
        let (turns, failures) = member.trace.finish();
        Life { language: member.language, fate: member.fate, turns, failures }
    });
    let observed = Observed { fleet, seed, from, to, seen_until, scripts, freezes, lives: lives.collect() };
    observed.print_some_failures();
    observed.row(args)
}

impl<'a> Run<'a> {
    /// Starts all processes, and a spare for each process that will be killed.
    async fn start(args: &'a Args, fleet: Fleet, seed: u64, faults: &[Fault], url: &str, folder: &Folder) -> Self {
        let java = fleet.java_of(args.processes);
        let mut languages = vec![Language::Java; java];
        languages.resize(args.processes, Language::Ours);
        if !args.freeze {
            languages.extend(faults.iter().map(|fault| fault.victim));
        }
        let starts = languages.iter().enumerate();
        let starts = starts.map(|(number, language)| Member::start(number, *language, args, url, folder.path()));
        let mut members = join_all(starts).await;
        let spares = members.split_off(args.processes);
        let name = "warm-up".to_owned();
        let job = Job {
            op: "fleet_loop".to_owned(),
            flavour: args.flavour,
            names: Job::names_of(args.flavour, &name),
            name,
            threads: args.threads,
            reads: args.reads,
            seed,
            hold_us: 0,
            from: 0,
            to: 0,
            file: String::new(),
        };
        let numbers = Numbers::lane(seed, 2);
        Self { args, members, spares, dead: Vec::new(), frozen: Vec::new(), numbers, job }
    }

    /// Lets all processes contend for another name, so that Java's just-in-time compiler sees the code.
    async fn warm_up(&mut self) {
        self.job.from = monotonic_ns() + nanos(LEAD);
        self.job.to = self.job.from + nanos(WARM_UP);
        for member in self.members.iter_mut().chain(&mut self.spares) {
            member.begin(&self.job, false).await;
        }
        let deadline = self.job.to + nanos(WARM_UP_ENDS_WITHIN);
        for member in self.members.iter_mut().chain(&mut self.spares) {
            assert!(member.ended(deadline).await, "a {} process does not end its warm-up", member.language.name());
        }
    }

    /// Carries out the faults at their moments, and ends the freezes.
    async fn disturb(&mut self, faults: &[Fault]) {
        for fault in faults {
            let at = self.job.from + nanos(fault.after);
            self.thaw_until(at).await;
            sleep_until(at).await;
            self.strike(fault.victim).await;
        }
        self.thaw_until(self.job.to).await;
    }

    async fn strike(&mut self, language: Language) {
        let Some(index) = self.stopped_victim(language).await else {
            eprintln!("{}: no process is left to strike", language.name());
            return;
        };
        // All threads of the victim are stopped, so none of its events is later.
        let now = monotonic_ns();
        if self.args.freeze {
            self.frozen.push((self.members[index].number, now + nanos(FREEZE)));
            self.members[index].fate.freezes.push((now, u64::MAX));
            return;
        }
        let mut victim = self.members.swap_remove(index);
        victim.fate.killed = Some(now);
        let spare = self.spares.iter().position(|spare| spare.language == language);
        let Some(spare) = spare else { unreachable!("each kill has its spare") };
        let mut spare = self.spares.swap_remove(spare);
        // Both at once, because the end of the stopped victim may take some time.
        futures::join!(victim.kill(), spare.begin(&self.job, true));
        self.dead.push(victim);
        self.members.push(spare);
    }

    /// Chooses a process that is not frozen, and stops it. Returns its index.
    async fn stopped_victim(&mut self, language: Language) -> Option<usize> {
        let awake = |member: &Member| self.frozen.iter().all(|(number, _)| *number != member.number);
        let fit = |member: &Member| member.language == language && awake(member);
        let fit: Vec<usize> = (0..self.members.len()).filter(|index| fit(&self.members[*index])).collect();
        if fit.is_empty() {
            return None;
        }
        let deadline = monotonic_ns() + nanos(SEARCH);
        while self.args.holders && monotonic_ns() < deadline {
            for index in &fit {
                self.members[*index].trace.read();
            }
            let inside = fit.iter().copied().filter(|index| self.members[*index].trace.is_inside());
            let inside: Vec<usize> = inside.collect();
            if !inside.is_empty() {
                let index = self.numbers.of(&inside);
                let member = &mut self.members[index];
                member.stop();
                // The process may have released the lock before it stopped.
                member.trace.read();
                if member.trace.is_inside() {
                    return Some(index);
                }
                member.resume();
            }
            self.thaw_until(monotonic_ns()).await;
            tokio::time::sleep(SEARCH_PAUSE).await;
        }
        if self.args.holders {
            eprintln!("{}: no process holds the lock, a waiter is struck", language.name());
        }
        let index = self.numbers.of(&fit);
        self.members[index].stop();
        Some(index)
    }

    /// Waits for all freezes that end before `time`, and ends each of them on time.
    async fn thaw_until(&mut self, time: u64) {
        // Freezes are equally long, so the first to start is the first to end.
        while let Some(&(number, end)) = self.frozen.first().filter(|(_, end)| *end <= time) {
            sleep_until(end).await;
            self.thaw(number);
        }
    }

    fn thaw(&mut self, number: usize) {
        self.frozen.retain(|(frozen, _)| *frozen != number);
        let member = self.members.iter_mut().find(|member| member.number == number);
        let member = member.unwrap_or_else(|| unreachable!("a frozen process stays in the fleet"));
        if let Some((_, thaw)) = member.fate.freezes.last_mut() {
            *thaw = monotonic_ns();
        }
        member.resume();
    }

    /// Waits for the last turns, and ends all processes. Returns all processes that took part, and the time of the end.
    async fn end(mut self) -> (Vec<Member>, u64) {
        while let Some(&(number, _)) = self.frozen.first() {
            self.thaw(number);
        }
        let deadline = self.job.to + nanos(self.args.watchdog() * 2 + GRACE);
        for member in &mut self.members {
            member.ended(deadline).await;
        }
        let seen_until = monotonic_ns();
        for member in self.members.iter_mut().chain(&mut self.spares) {
            member.kill().await;
        }
        self.members.append(&mut self.dead);
        (self.members, seen_until)
    }
}

async fn sleep_until(time: u64) {
    tokio::time::sleep(Duration::from_nanos(time.saturating_sub(monotonic_ns()))).await;
}

const fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}
