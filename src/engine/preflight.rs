//! Checks a login's permissions before a lock needs them.

use super::Engine;
use crate::error::passing::Passing;
use crate::names::LockName;
use crate::topology::{Answered, ServerClock};
use crate::transport::script::Script;
use crate::transport::{Arg, Call, FaultKind, Reply};

static PREFLIGHT: Script = Script::new("common/preflight", include_str!("../../lua/common/preflight.lua"));

/// Tests on a temporary key of each server, in parallel, whether this login has all permissions that locks need. Logs
/// each refusal.
pub(crate) async fn probe(engine: &Engine) {
    let name = |n: u32| LockName::new(&engine.options.name_prefix, &format!("distlock:preflight:{}:{n}", engine.id));
    let names = engine.topology.one_each(name);
    futures::future::join_all(names.iter().map(|name| probe_at(engine, name))).await;
}

async fn probe_at(engine: &Engine, probe: &LockName) {
    let words = Vec::from([probe.key.clone(), engine.topology.publish(), probe.channel.clone()].map(Arg::Text));
    let call = |_: &ServerClock| Call { script: &PREFLIGHT, keys: 1, words: words.clone() };
    let answered = engine.topology.run_timed(probe, call).await;
    let refused = |reason: &str| {
        if Passing::of(reason).is_some() {
            // A transient refusal says nothing about the login.
            return;
        }
        tracing::warn!(
            reason,
            "this login lacks rights that locks need (probed on a key that starts with the name prefix): see docs/acl.md"
        );
    };
    match answered {
        Ok(Answered { reply: Reply::List(parts), clock, .. }) => {
            for part in parts {
                match part {
                    Reply::Text(reason) => refused(&String::from_utf8_lossy(&reason)),
                    Reply::Int(at) if at > 0 => clock.learn(at, engine.now()),
                    _ => {}
                }
            }
        }
        Ok(_) => {}
        Err(fault) if fault.kind == FaultKind::Refused => refused(&fault.message),
        // A fault of the connection says nothing about the login.
        Err(_) => {}
    }
}
