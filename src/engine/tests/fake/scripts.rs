//! Runs scripts in the simulator. Scripts that release, leave or refresh fair locks are not run, and get fixed replies.

use distlock_sim::{SimReply, SimScript};

use super::Fake;
use crate::transport::{Arg, Call, Fault, FaultKind, Reply};

impl Fake {
    pub(super) fn carry_out(&self, call: &Call) -> Result<Reply, Fault> {
        match call.script.name {
            "fair/release" => return Ok(Reply::Int(0)),
            "fair/leave" | "rwlock/leave" => return Ok(Reply::Nil),
            "fair/refresh" => return Ok(self.refreshed(call)),
            _ => {}
        }
        let script = {
            let mut scripts = self.scripts.lock();
            let script = scripts.entry(call.script.sha()).or_insert_with(|| SimScript::new(call.script.source));
            script.clone()
        };
        let words: Vec<Vec<u8>> = (0..call.words.len()).map(|n| super::text(&call.words, n).into_bytes()).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (keys, args) = words.split_at(call.keys);
        let reply = self.sim.run(&script, keys, args);
        for (channel, payload) in self.sim.overhear() {
            self.listener().message(&channel, &payload);
        }
        match reply {
            SimReply::Error(message) => Err(Fault::new(FaultKind::Refused, message)),
            reply => Ok(plain(reply)),
        }
    }

    /// The reply of a refresh or renewal: every queue entry exists, and every lock is held.
    fn refreshed(&self, call: &Call) -> Reply {
        let at = 1_700_000_000_000 + self.begin.elapsed().as_millis() as i64;
        let (mut replies, mut n) = (vec![Reply::Int(at)], call.keys + 6);
        for _ in 0..call.keys / 4 {
            let Some(Arg::Int(places)) = call.words.get(n + 1) else { panic!("no count") };
            replies.extend([0, -1, 0, 1].map(Reply::Int));
            n += 3 + 3 * *places as usize;
        }
        Reply::List(replies)
    }
}

fn plain(reply: SimReply) -> Reply {
    match reply {
        SimReply::Nil => Reply::Nil,
        SimReply::Int(n) => Reply::Int(n),
        SimReply::Text(text) => Reply::Text(text),
        SimReply::Status(text) | SimReply::Error(text) => Reply::Text(text.into()),
        SimReply::List(items) => Reply::List(items.into_iter().map(plain).collect()),
    }
}
