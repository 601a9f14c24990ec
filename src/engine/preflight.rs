//! What a login may do, found out before it matters.

use super::Engine;
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

static PREFLIGHT: Script = Script::new("common/preflight", include_str!("../../lua/common/preflight.lua"));

/// Tries on a throw-away key whether this login may do all that locks need; what is refused is logged.
pub(crate) async fn probe(engine: &Engine) {
    let probe = LockName::new(&engine.options.name_prefix, &format!("distlock:preflight:{}", engine.id));
    let words = [probe.key.clone(), engine.topology.publish(&probe), probe.channel.clone()].map(Arg::Text).into();
    let reply = engine.topology.run(&probe, Call { script: &PREFLIGHT, keys: 1, words }).await;
    let refused = |reason: &str| {
        tracing::warn!(
            reason,
            "this login may not do all that locks need (probed on a key beginning with the name prefix): see docs/acl.md"
        );
    };
    match reply {
        Ok(Reply::List(parts)) => {
            for part in parts {
                match part {
                    Reply::Text(reason) => refused(&String::from_utf8_lossy(&reason)),
                    Reply::Int(at) if at > 0 => engine.clock.learn(at, engine.now()),
                    _ => {}
                }
            }
        }
        Ok(_) => {}
        Err(fault) => refused(&fault.message),
    }
}
