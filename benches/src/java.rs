//! Redisson, in its own Java processes.

use std::time::Duration;

use distlock_support::agent::{Agent, AgentOptions};
use serde_json::{Value, json};

use crate::drive::{Kind, Plan, Sample, Timed, names};
use crate::latch::{Seen, WAITERS, Work};
use crate::subject::LEASE;

/// One or several Java processes with one Redisson client each. With `full_speed` they run as Redisson would by
/// default; without it they are set up for a short life.
pub struct Java(pub Vec<Agent>);

impl Java {
    pub async fn start(processes: usize, url: &str, heap_mb: u32, full_speed: bool) -> Self {
        let options = || AgentOptions { full_speed, heap_mb, ..AgentOptions::default() };
        let starts = (0..processes).map(|_| Agent::start(url, options()));
        Self(futures::future::join_all(starts).await)
    }

    /// Measures once. The agent has two loops: pairs on separate names (of permits: on one name), and waits for one
    /// name.
    pub async fn run(&self, plan: &Plan) -> Sample {
        let pairs = plan.timed == Timed::Pair;
        assert_eq!(plan.own, pairs && plan.kind.permits() == 0, "the agent cannot do that");
        let calls: Vec<_> = self
            .0
            .iter()
            .enumerate()
            .map(|(number, agent)| {
                let op = if pairs { "bench_uncontended" } else { "bench_contended" };
                let prefix = if plan.own { format!("{}:{number}:", plan.name) } else { String::new() };
                let names = match plan.kind {
                    Kind::Multi(count) => names(&plan.name, count),
                    Kind::Red(servers) => vec![plan.name.clone(); servers],
                    _ => Vec::new(),
                };
                // The members of a multi lock are on the first server. Each member of a RedLock is on its own server.
                let servers = if let Kind::Red(servers) = plan.kind { (0..servers).collect() } else { Vec::new() };
                agent.start_call(json!({
                    "op": op,
                    "flavour": plan.kind.flavour(),
                    "reads": if let Kind::Mix(reads) = plan.kind { reads } else { 0 },
                    "prefix": prefix,
                    "name": plan.name,
                    "names": names,
                    "servers": servers,
                    "turn": matches!(plan.kind, Kind::Multi(_)) && plan.tasks > 1,
                    "tasks": plan.tasks,
                    "seconds": plan.length.as_secs_f64(),
                    "hold_us": plan.hold.as_micros() as u64,
                    "lease_ms": LEASE.as_millis() as u64,
                }))
            })
            .collect();
        let mut parts = Vec::with_capacity(calls.len());
        for call in calls {
            let reply = call.await.unwrap_or_else(|error| panic!("redisson: {error}"));
            parts.push(told(&reply.value));
        }
        Sample::together(parts)
    }

    /// Waits for latches in all processes. `work` tells the work of each process.
    pub async fn watch(&self, work: impl Fn(usize) -> Work) -> Vec<Seen> {
        let start = |(number, agent): (usize, &Agent)| {
            let mut request = json!(work(number));
            request["op"] = "bench_contended".into();
            request["flavour"] = Kind::Latch.flavour().into();
            agent.start_call(request)
        };
        let calls: Vec<_> = self.0.iter().enumerate().map(start).collect();
        let mut parts = Vec::with_capacity(calls.len());
        for call in calls {
            let reply = call.await.unwrap_or_else(|error| panic!("redisson: {error}"));
            let seen = serde_json::from_value(reply.value);
            parts.push(seen.unwrap_or_else(|error| panic!("redisson: {error} in an answer about latches")));
        }
        parts
    }

    pub async fn close(self) {
        futures::future::join_all(self.0.iter().map(Agent::close)).await;
    }
}

/// Returns the plans that make the just-in-time compiler see the code for a kind of lock.
pub fn warm_ups(kind: Kind, length: Duration) -> Vec<Plan> {
    let name = format!("warm-up:{}", kind.flavour());
    let waits = Plan { tasks: 1, kind, name, own: false, timed: Timed::Wait, hold: Duration::ZERO, length };
    match kind {
        Kind::Multi(_) | Kind::Red(_) => return vec![waits],
        Kind::Latch => return vec![Plan { tasks: WAITERS, ..waits }],
        _ => {}
    }
    let alone = if let Kind::Mix(_) = kind { Kind::Read } else { kind };
    let own = kind.permits() == 0;
    let pairs = Plan { tasks: 16, kind: alone, own, timed: Timed::Pair, ..waits.clone() };
    vec![pairs, Plan { tasks: 4, length: length / 2, ..waits }]
}

/// Parses a sample from an agent's answer.
pub fn told(answer: &Value) -> Sample {
    let number = |name: &str| answer[name].as_f64().unwrap_or_else(|| panic!("no {name} in {answer}"));
    let counts = answer["counts"].as_array().map(|counts| counts.iter().filter_map(Value::as_u64).collect());
    Sample {
        seconds: number("seconds"),
        counts: counts.unwrap_or_default(),
        times: Vec::new(),
        told: Some([number("p50_us"), number("p99_us"), number("worst_us")]),
    }
}
