//! The processes of a mixed fleet: start, kill, and reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use distlock_support::agent::{Agent, AgentOptions, monotonic_ns};
use distlock_support::child::Child;
use futures::future::join_all;
use tokio::task::JoinHandle;

use crate::fleet::{AT, FLAVOUR, SEED, THREADS, WATCHDOG};
use crate::fleet_parts::{End, Span, in_java};
use crate::rig::{Rig, patient};

struct Theirs {
    agent: Agent,
    end: Arc<End>,
    threads: Vec<JoinHandle<Vec<Span>>>,
}

/// The running processes, and the spans of processes that have ended.
pub struct Fleet {
    url: String,
    flavour: &'static str,
    version: String,
    theirs: Vec<Theirs>,
    ours: Vec<Child>,
    started: u64,
    spans: Vec<Span>,
}

impl Fleet {
    pub async fn start(rig: &Rig, flavour: &'static str, version: &str, each: usize) -> Self {
        let (url, version) = (rig.server.url(), version.to_owned());
        let mut fleet =
            Self { url, flavour, version, theirs: Vec::new(), ours: Vec::new(), started: 0, spans: Vec::new() };
        for _ in 0..each {
            fleet.one_of_java().await;
            fleet.one_of_ours();
        }
        fleet
    }

    fn seed(&mut self) -> u64 {
        self.started += 1;
        1000 * self.started
    }

    fn one_of_ours(&mut self) {
        let seed = self.seed().to_string();
        let env = [(AT, self.url.as_str()), (FLAVOUR, self.flavour), (SEED, &seed)];
        self.ours.push(Child::spawn("fleet::fleet_member", &env));
    }

    async fn one_of_java(&mut self) {
        let (seed, end) = (self.seed(), Arc::new(End::default()));
        let options =
            AgentOptions { watchdog: Some(WATCHDOG), ..AgentOptions::version(&self.version).in_own_process() };
        let agent = Agent::start(&self.url, patient(options)).await;
        let threads = (1..=THREADS).map(|thread| {
            tokio::spawn(in_java(
                agent.clone(),
                self.url.clone(),
                self.flavour,
                thread,
                seed + thread as u64,
                Arc::clone(&end),
            ))
        });
        let threads = threads.collect();
        self.theirs.push(Theirs { agent, end, threads });
    }

    /// Kills the oldest process of one side, and starts another.
    pub async fn kill_one(&mut self, java: bool) {
        if java {
            let theirs = self.theirs.remove(0);
            theirs.end.killed.store(monotonic_ns(), Ordering::SeqCst);
            theirs.agent.kill9().await;
            self.told_by_java(theirs).await;
            self.one_of_java().await;
        } else {
            let mut child = self.ours.remove(0);
            let killed = monotonic_ns();
            child.kill9();
            self.told_by(child, Some(killed)).await;
            self.one_of_ours();
        }
    }

    async fn told_by_java(&mut self, theirs: Theirs) {
        for ended in join_all(theirs.threads).await {
            self.spans.extend(ended.expect("the rounds of one"));
        }
    }

    /// Reads all reports of a process of ours. `killed`: the time of its kill. Spans that are open then end at the
    /// kill, or at the end of their lease if that is earlier.
    async fn told_by(&mut self, mut child: Child, killed: Option<u64>) {
        let (mut inside, mut done) = (HashMap::new(), false);
        while let Some(line) = child.line().await {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "in" => {
                    let (locks, alone, token, from, to) = (number(2), number(3) == 1, number(4), number(5), number(6));
                    inside.insert(number(1), Span { locks, alone, token, from, to });
                }
                "out" => {
                    let span = inside.remove(&number(1)).expect("in before out");
                    self.spans.push(Span { to: number(2), ..span });
                }
                // The lease had ended before the release, because the machine was busy.
                "late" => drop(inside.remove(&number(1))),
                "done" => done = true,
                _ => panic!("{}: {line}", self.flavour),
            }
        }
        match killed {
            Some(killed) => {
                self.spans.extend(inside.into_values().map(|span| Span { to: span.to.min(killed), ..span }));
            }
            None => assert!(done, "a process of ours has failed: {}", child.output()),
        }
    }

    pub async fn end(mut self) -> Vec<Span> {
        for theirs in &self.theirs {
            theirs.end.over.store(true, Ordering::Relaxed);
        }
        self.ours.iter_mut().for_each(|child| child.tell("enough"));
        for theirs in std::mem::take(&mut self.theirs) {
            let agent = theirs.agent.clone();
            self.told_by_java(theirs).await;
            agent.kill9().await;
        }
        for child in std::mem::take(&mut self.ours) {
            self.told_by(child, None).await;
        }
        self.spans
    }
}
