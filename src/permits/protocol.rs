//! The calls of permits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::id::{ids, ids_of_list};
use super::{HeldPermit, PermitId};
use crate::engine::change::Change;
use crate::engine::protocol::{Ask, Giving, Nature, Protocol, Renewal, Sharing};
use crate::engine::replies::{gone_alone, is_held, is_renewed};
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call, Reply};

/// The text of a script of permits: the shared functions of `ids.lua`, then this file.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!("../../lua/permits/ids.lua"), include_str!(concat!("../../lua/permits/", $file, ".lua")))
    };
}

static ACQUIRE: Script = Script::new("permits/acquire", script!("acquire")).gaining(is_held);
pub(super) static RELEASE: Script = Script::new("permits/release", script!("release")).announcing();
static RENEW: Script = Script::new(
    "permits/renew",
    concat!(
        include_str!("../../lua/common/holds.lua"),
        include_str!("../../lua/common/renew/begin.lua"),
        script!("renew"),
    ),
)
.gaining(is_renewed)
.telling(gone_alone);
static EXTEND: Script = Script::new("permits/extend", script!("extend"));
pub(super) static SET: Script = Script::new("permits/set", script!("set")).announcing();
pub(super) static COUNT: Script = Script::new("permits/count", script!("count")).reading();
pub(super) static HOLDERS: Script = Script::new("permits/holders", script!("holders")).reading();
pub(super) static DELETE: Script = Script::new("permits/delete", script!("delete"));

/// Score that Redisson writes for a permit that never expires.
const NO_END: f64 = 922_337_203_685_477.0;

static RENEWAL: Renewal = Renewal {
    script: &RENEW,
    about: |hold, about| {
        about.keys.push(Arg::Text(hold.name.leases()));
        about.words.push(Arg::Text(ids_of_list(hold.owner, &hold.holds, hold.permits)));
    },
    notes_cuts: false,
};

static NATURE: Nature = Nature { sharing: Sharing::Counted, reentrant: false, ..Nature::simple("permits", &RENEWAL) };

/// The call that releases these permits, all or none.
pub(super) fn release(keys: Vec<Bytes>, ids: Bytes) -> Change {
    Change { script: &RELEASE, keys, args: vec![Arg::Text(ids), Arg::Int(1)], publishes: true }
}

/// The call that sets the lease of these permits, all or none.
pub(super) fn extend(keys: Vec<Bytes>, ids: Bytes, lease_ms: i64) -> Change {
    Change { script: &EXTEND, keys, args: vec![Arg::Text(ids), Arg::Int(lease_ms)], publishes: false }
}

/// Reads the reply to [`HOLDERS`]. Returns the permits, each with the end of its lease in ms of the server's time.
pub(super) fn held(reply: &Reply) -> Option<Vec<(HeldPermit, f64)>> {
    let Reply::List(parts) = reply else { return None };
    let [Reply::Int(now), entries @ ..] = parts.as_slice() else { return None };
    let one = |entry: &[Reply]| {
        let [Reply::Text(id), Reply::Text(end)] = entry else { return None };
        let id = PermitId::from_bytes(id.as_ref().try_into().ok()?);
        // Redis may write a score with an exponent.
        let end = std::str::from_utf8(end).ok()?.parse::<f64>().ok()?;
        let remaining = (end < NO_END).then(|| Duration::from_secs_f64(((end - *now as f64) / 1000.0).max(0.0)));
        Some((HeldPermit { id, remaining }, end))
    };
    entries.chunks(2).map(one).collect()
}

/// An acquire of `permits` permits.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) name: Arc<LockName>,
    pub(super) leases: Bytes,
    pub(super) permits: u32,
}

impl Taking {
    fn call<const N: usize>(&self, script: &'static Script, args: [Arg; N]) -> Call {
        let mut words = Vec::with_capacity(N + 2);
        words.extend([self.name.key.clone(), self.leases.clone()].map(Arg::Text));
        words.extend(args);
        Call { script, keys: 2, words }
    }
}

impl Protocol for Taking {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        &NATURE
    }

    fn permits(&self) -> u32 {
        self.permits
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let ids = Arg::Text(ids(ask.owner, ask.hold, self.permits));
        let [publish, channel] = [ask.publish.clone(), self.name.channel.clone()].map(Arg::Text);
        self.call(&ACQUIRE, [ids, Arg::Int(ask.lease_ms), Arg::Int(ask.last_ms), publish, channel])
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let ids = Arg::Text(ids(giving.owner, giving.hold, self.permits));
        let [publish, channel] = [giving.publish.clone(), self.name.channel.clone()].map(Arg::Text);
        self.call(&RELEASE, [ids, Arg::Int(0), Arg::Int(0), publish, channel])
    }

    fn force(&self, last_ms: i64, _publish: Bytes) -> Call {
        self.call(&DELETE, [Arg::Int(last_ms)])
    }

    fn state(&self) -> Call {
        self.call(&COUNT, [])
    }
}
