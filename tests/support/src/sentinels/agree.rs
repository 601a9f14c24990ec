//! Waits until the sentinels agree.

use std::collections::HashMap;

use super::Sentinels;
use crate::replicas::Member;
use crate::until::until;

/// A sentinel's report about one server.
type Said = HashMap<String, String>;

impl Sentinels {
    /// The primary in the view of the sentinel with the highest config epoch.
    pub async fn primary(&self) -> usize {
        until("a sentinel that knows the primary", async || {
            let mut best: Option<(u64, usize)> = None;
            for sentinel in self.running() {
                let said = self.said(&sentinel).await?;
                let known = (epoch(&said), self.position(&said)?);
                best = best.max(Some(known));
            }
            best.map(|(_, primary)| primary).ok_or_else(|| "none runs".to_owned())
        })
        .await
    }

    /// Waits until the running sentinels agree: one primary with one epoch, a quorum, and no suspicion of each other,
    /// the primary or a replica. All running servers must be up to date with the primary.
    pub async fn whole(&self) {
        until("sentinels at one", async || {
            let mut first = None;
            for sentinel in self.running() {
                let said = self.said(&sentinel).await?;
                let primary = self.position(&said)?;
                let view = *first.get_or_insert((epoch(&said), primary));
                let others = (self.sentinels().len() - 1).to_string();
                if view != (epoch(&said), primary) || said["flags"] != "master" || said["num-other-sentinels"] != others
                {
                    return Err(format!("{} says {said:?}, the first {view:?}", sentinel.addr()));
                }
                self.sees_all(&sentinel, primary).await?;
            }
            let Some((_, primary)) = first else { return Err("no sentinel runs".to_owned()) };
            self.servers().in_step(primary).await
        })
        .await;
    }

    /// Checks that a sentinel sees all running members, without suspicion. The error says what is missing.
    async fn sees_all(&self, sentinel: &Member, primary: usize) -> Result<(), String> {
        let list = async |what: &str| {
            let answer = sentinel.admin().raw(&["SENTINEL", what, self.name()]).await.map_err(|e| e.to_string())?;
            redis::from_redis_value::<Vec<Said>>(answer).map_err(|e| e.to_string())
        };
        let find = |list: &[Said], member: &Member| {
            let addr = member.addr().to_string();
            list.iter().find(|said| addr_of(said) == addr).cloned().unwrap_or_default()
        };
        let is = |said: &Said, field: &str, value: &str| said.get(field).is_some_and(|is| is == value);
        // Other flags, such as `master_down`, may be out of date.
        let is_up = |said: &Said| {
            said.get("flags").is_some_and(|flags| !flags.contains("s_down") && !flags.contains("disconnected"))
        };
        let replicas = list("REPLICAS").await?;
        for (_, server) in self.servers().running().filter(|(n, _)| *n != primary) {
            let said = find(&replicas, server);
            // A sentinel that still sees this replica as a primary would revert the promotion.
            if !is(&said, "flags", "slave") || !is(&said, "role-reported", "slave") {
                return Err(format!("{} sees not {} in {replicas:?}", sentinel.addr(), server.addr()));
            }
        }
        let others = list("SENTINELS").await?;
        for other in self.running().iter().filter(|other| other.addr() != sentinel.addr()) {
            if !is_up(&find(&others, other)) {
                return Err(format!("{} sees not {} in {others:?}", sentinel.addr(), other.addr()));
            }
        }
        let quorum = sentinel.admin().raw(&["SENTINEL", "CKQUORUM", self.name()]).await;
        quorum.map(drop).map_err(|e| e.to_string())
    }

    async fn said(&self, sentinel: &Member) -> Result<Said, String> {
        let answer = sentinel.admin().raw(&["SENTINEL", "MASTER", self.name()]).await.map_err(|e| e.to_string())?;
        redis::from_redis_value(answer).map_err(|e| e.to_string())
    }

    fn position(&self, said: &Said) -> Result<usize, String> {
        let addr = addr_of(said);
        self.servers().position(&addr).ok_or_else(|| format!("{addr} is none of the servers"))
    }
}

fn addr_of(said: &Said) -> String {
    format!("{}:{}", said["ip"], said["port"])
}

fn epoch(said: &Said) -> u64 {
    said["config-epoch"].parse().unwrap_or_default()
}
