//! Redisson, in its own Java processes.

use std::time::Duration;

use distlock_support::agent::{Agent, AgentOptions};
use serde_json::{Value, json};

use crate::drive::{Kind, Plan, Sample, Timed, names};

/// One or several Java processes with one Redisson client each. With `full_speed` they run as Redisson would by
/// default; without it they are set up for a short life.
pub struct Java(pub Vec<Agent>);

impl Java {
    pub async fn start(processes: usize, url: &str, heap_mb: u32, full_speed: bool) -> Self {
        let options = || AgentOptions { full_speed, heap_mb, ..AgentOptions::default() };
        let starts = (0..processes).map(|_| Agent::start(url, options()));
        Self(futures::future::join_all(starts).await)
    }

    /// Runs the code until the just-in-time compiler has seen it.
    pub async fn warm_up(&self, kind: Kind, length: Duration) {
        let name = format!("warm-up:{}", kind.flavour());
        if let Kind::Multi(_) | Kind::Red(_) = kind {
            let timed = Timed::Wait;
            self.run(&Plan { tasks: 1, kind, name, own: false, timed, hold: Duration::ZERO, length }).await;
            return;
        }
        let alone = if let Kind::Mix(_) = kind { Kind::Read } else { kind };
        let own = Plan { tasks: 16, kind: alone, name, own: true, timed: Timed::Pair, hold: Duration::ZERO, length };
        self.run(&own).await;
        self.run(&Plan { kind, own: false, timed: Timed::Wait, tasks: 4, length: length / 2, ..own }).await;
    }

    /// Measures once. The agent has two loops: pairs on separate names, and waits for one name.
    pub async fn run(&self, plan: &Plan) -> Sample {
        assert_eq!(plan.own, plan.timed == Timed::Pair, "the agent cannot do that");
        let calls: Vec<_> = self
            .0
            .iter()
            .enumerate()
            .map(|(number, agent)| {
                let (op, prefix) = if plan.own {
                    ("bench_uncontended", format!("{}:{number}:", plan.name))
                } else {
                    ("bench_contended", String::new())
                };
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

    pub async fn close(self) {
        futures::future::join_all(self.0.iter().map(Agent::close)).await;
    }
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
