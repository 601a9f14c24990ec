//! Permits: the calls of both sides, and the look into Redis.

use std::collections::BTreeMap;

use distlock::{Acquire, Client, Error, PermitGuard, PermitId, Permits};
use distlock_support::Numbers;
use serde_json::{Value, json};

use super::model::{Model, Seen};
use super::number::expire;
use super::steps::{Answer, Step, choose};
use super::story::{NAME, Object, Side, as_number, java};
use crate::rig::{Rig, ms};

/// The set of leases.
const LEASES: &str = "{model}:timeout";

/// The server's time, the free count, the TTLs of both keys, and the leases.
const LOOK: &str = "local now = redis.call('time') \
                    return {now[1] * 1000 + math.floor(now[2] / 1000), redis.call('get', KEYS[1]), \
                    redis.call('pttl', KEYS[1]), redis.call('pttl', KEYS[2]), \
                    redis.call('zrange', KEYS[2], 0, -1, 'WITHSCORES')}";

pub struct Gate {
    permits: Permits,
    /// Guards that have not been released, each with the ids of its permits.
    guards: Vec<(PermitGuard, Vec<PermitId>)>,
    model: Model,
    /// The server's time at the last look.
    seen_at: i64,
}

impl Gate {
    async fn ours(&mut self, step: &Step) -> distlock::Result<Answer> {
        let permits = self.permits.clone();
        let done = match step {
            Step::New(n) => permits.try_set_permits(*n).await?,
            Step::Total(n) => permits.set_permits(*n).await.map(|()| true)?,
            Step::Add(n) => permits.add_permits(*n).await.map(|()| true)?,
            Step::Give(ids) => permits.release_ids(ids).await?,
            Step::Extend(ids, lease) => permits.extend_ids(ids, ms(*lease)).await?,
            Step::Delete => permits.delete().await?,
            Step::Take(k, lease) => return self.take(*k, *lease).await,
            Step::GiveGuard(ids) => self.give_guard(ids).await?,
            Step::Counts => {
                let counts = permits.counts().await?;
                return Ok(Answer::Counts(counts.available, counts.acquired));
            }
            Step::Holders => {
                let held = permits.holders().await?;
                return Ok(Answer::Holders(held.iter().map(|held| (held.id, held.remaining.is_some())).collect()));
            }
            _ => unreachable!("{step:?} is not a step of ours"),
        };
        Ok(Answer::Number(i64::from(done)))
    }

    async fn take(&mut self, k: u32, lease: Option<u64>) -> distlock::Result<Answer> {
        let how = Acquire::new().wait(ms(0));
        let how = if let Some(lease) = lease { how.lease(ms(lease)) } else { how };
        let Some(guard) = self.permits.acquire_with(k, how).await? else { return Ok(Answer::Ids(Vec::new())) };
        let ids = guard.ids();
        self.guards.push((guard, ids.clone()));
        Ok(Answer::Ids(ids))
    }

    /// Returns false if none of the guard's permits was held.
    async fn give_guard(&mut self, ids: &[PermitId]) -> distlock::Result<bool> {
        let place = self.guards.iter().position(|(_, of_guard)| of_guard == ids).expect("a guard with these ids");
        let (guard, _) = self.guards.remove(place);
        match guard.release().await {
            Ok(()) => Ok(true),
            Err(Error::NotHeld { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

async fn theirs(rig: &Rig, step: &Step) -> Answer {
    let (op, fields) = match step {
        Step::New(n) => ("permit_set", json!({"permits": n})),
        Step::Total(n) => ("permit_set_total", json!({"permits": n})),
        Step::Add(n) => ("permit_add", json!({"permits": n})),
        Step::Take(k, lease) => ("permit_try", json!({"permits": k, "lease_ms": lease})),
        Step::Give(ids) => {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            ("permit_release", json!({"ids": ids}))
        }
        Step::GiveOne(id) => ("permit_release", json!({"permit": id.to_string()})),
        Step::Extend(ids, lease) => ("permit_renew", json!({"permit": ids[0].to_string(), "lease_ms": lease})),
        Step::Delete => ("permit_delete", json!({})),
        Step::Available => ("permit_available", json!({})),
        Step::Acquired => ("permit_acquired", json!({})),
        Step::Sum => ("permit_total", json!({})),
        Step::LeaseOf(id) => ("permit_lease", json!({"permit": id.to_string()})),
        _ => unreachable!("{step:?} is not a step of Redisson"),
    };
    match (step, java(rig, op, fields).await) {
        (Step::LeaseOf(_), Err(error)) if error.contains("doesn't exist") => Answer::Number(0),
        (_, Err(error)) => Answer::Failed(error),
        (_, Ok(value)) => read(step, &value),
    }
}

fn read(step: &Step, value: &Value) -> Answer {
    let answer = match (step, as_number(value)) {
        (Step::Take(..), _) => ids(value).map(Answer::Ids),
        (Step::LeaseOf(_), Some(left)) => Some(Answer::Number(left.signum())),
        (_, number) => number.map(Answer::Number),
    };
    answer.unwrap_or_else(|| Answer::Failed(value.to_string()))
}

/// Reads a list of ids. Null counts as an empty list.
fn ids(value: &Value) -> Option<Vec<PermitId>> {
    let texts: Option<Vec<String>> = serde_json::from_value(value.clone()).ok()?;
    texts.unwrap_or_default().iter().map(|text| text.parse().ok()).collect()
}

async fn server(rig: &Rig, step: &Step) -> Answer {
    Answer::Number(match step {
        Step::Lapse(permits) => {
            let mut words: Vec<Vec<u8>> = ["ZADD", LEASES, "XX", "CH"].map(|word| word.as_bytes().to_vec()).into();
            for (id, end) in permits {
                words.extend([end.to_string().into_bytes(), id.as_bytes().to_vec()]);
            }
            rig.admin.cmd_bytes(&words).await
        }
        Step::Expire => expire(rig).await,
        Step::Vanish(true) => rig.admin.cmd(&["DEL", NAME, LEASES]).await,
        Step::Vanish(false) => rig.admin.cmd(&["DEL", NAME]).await,
        _ => unreachable!("{step:?} is not a step of the server"),
    })
}

async fn look(rig: &Rig) -> Result<Seen, String> {
    let args = ["EVAL", LOOK, "2", NAME, LEASES];
    let (now, free, life, leases_life, leases): (i64, Option<String>, i64, i64, Vec<Vec<u8>>) =
        rig.admin.cmd(&args).await;
    let lease = |entry: &[Vec<u8>]| {
        let [id, end] = entry else { return None };
        // Redis may write a score with an exponent.
        let end: f64 = std::str::from_utf8(end).ok()?.parse().ok()?;
        Some((PermitId::from_bytes(id.as_slice().try_into().ok()?), end as i64))
    };
    let ends: Option<BTreeMap<_, _>> = leases.chunks(2).map(lease).collect();
    let ends = ends.ok_or_else(|| format!("odd leases in Redis: {leases:?}"))?;
    Ok(Seen { now, free, life, leases_life, ends })
}

impl Object for Gate {
    type Step = Step;
    type Answer = Answer;

    fn open(client: &Client, _version: &str) -> Self {
        Self { permits: client.permits(NAME), guards: Vec::new(), model: Model::default(), seen_at: 0 }
    }

    fn choose(&mut self, dice: &mut Numbers, side: Side) -> Step {
        let guards: Vec<_> = self.guards.iter().map(|(_, ids)| ids.clone()).collect();
        choose(&self.model, &guards, dice, side)
    }

    async fn ask(&mut self, rig: &Rig, side: Side, step: &Step) -> Answer {
        match side {
            Side::Ours => self.ours(step).await.unwrap_or_else(|error| Answer::Failed(error.to_string())),
            Side::Java => theirs(rig, step).await,
            Side::Server => server(rig, step).await,
        }
    }

    fn expect(&mut self, side: Side, step: &Step, answer: &Answer) -> Answer {
        self.model.expect(side, step, answer)
    }

    async fn compare(&mut self, rig: &Rig) -> Result<(), String> {
        let seen = look(rig).await?;
        self.model.check(self.seen_at, &seen)?;
        self.seen_at = seen.now;
        Ok(())
    }

    fn state(&self) -> String {
        let Model { free, held, leases_expire, .. } = &self.model;
        format!("{free:?}, leases expire: {leases_expire}, {held:?}")
    }

    async fn clean(&mut self, rig: &Rig) {
        for (guard, _) in self.guards.drain(..) {
            // Others may have released its permits.
            let _ = guard.release().await;
        }
        rig.admin.cmd::<()>(&["DEL", NAME, LEASES]).await;
    }
}
