//! The calls of a plain lock.

use std::sync::Arc;

use bytes::Bytes;

use super::value::{PlainValue, all_of, holder};
use crate::config::Backoff;
use crate::engine::protocol::{Ask, Giving, HoldId, Nature, Protocol, Renewal, Renewed};
use crate::engine::replies::{gone_alone, is_renewed, is_set};
use crate::names::LockName;
use crate::transport::script::Script;
use crate::transport::{Arg, Call};

/// The text of a script of this flavour: the parts that its scripts share, then these files.
macro_rules! script {
    ($($file:literal),+) => {
        concat!(
            include_str!("../../lua/common/holds.lua"),
            include_str!("../../lua/plain/values.lua"),
            $(include_str!(concat!("../../lua/", $file, ".lua"))),+
        )
    };
}

static MANY: Script = Script::new(
    "plain/many",
    script!(
        "common/many/begin",
        "plain/set",
        "common/many/next",
        "plain/acquire",
        "common/many/next",
        "plain/release",
        "common/many/run"
    ),
);
static SET: Script =
    Script::command("plain/set", include_str!("../../lua/plain/set.lua"), "SET", &MANY, 1).gaining(is_set);
static ACQUIRE: Script = Script::step("plain/acquire", script!("plain/acquire"), &MANY, 2).gaining(is_set);
static RELEASE: Script = Script::step("plain/release", script!("plain/release"), &MANY, 3).announcing();
static FORCE: Script = Script::new("plain/force", script!("plain/force")).announcing();
static RENEW: Script =
    Script::new("plain/renew", script!("common/renew/begin", "plain/renew")).gaining(is_renewed).telling(gone_alone);
static STATE: Script = Script::new("plain/state", include_str!("../../lua/plain/state.lua")).reading();

/// The [`Nature`] of locks with values of this form. A renewal names holds by their values, so one command can renew
/// only locks of one form.
macro_rules! nature {
    ($value:ident) => {{
        static RENEWAL: Renewal = Renewal {
            script: &RENEW,
            about: |hold, about| about.words.push(relied_on(PlainValue::$value, hold)),
            notes_cuts: false,
        };
        static NATURE: Nature = Nature { reentrant: false, by_set: true, holder, ..Nature::simple("plain", &RENEWAL) };
        &NATURE
    }};
}

/// The value of the hold that a renewal names. A plain lock has one hold at most, so the list of holds is empty or
/// `,<id>`. A `~` and the number of the command may follow, which is ignored, because a value has no room for it.
fn relied_on(value: PlainValue, hold: &Renewed<'_>) -> Arg {
    let list = hold.holds.split(|byte| *byte == b'~').next().unwrap_or_default();
    let id = list.split(|byte| *byte == b',').nth(1).unwrap_or_default();
    Arg::Text(value.of(hold.owner, named(id)))
}

/// The id of a hold in a list of holds; empty for `-`, which stands for the hold without an id.
fn named(id: &[u8]) -> &[u8] {
    if id == b"-" { b"" } else { id }
}

#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub(super) name: Arc<LockName>,
    pub(super) value: PlainValue,
    pub(super) poll: Backoff,
}

impl Plain {
    fn call<const N: usize>(&self, script: &'static Script, args: [Arg; N]) -> Call {
        let mut words = Vec::with_capacity(N + 1);
        words.push(Arg::Text(self.name.key.clone()));
        words.extend(args);
        Call { script, keys: 1, words }
    }

    /// The values of the holds that a release names.
    fn meant(&self, giving: &Giving<'_>) -> Vec<Arg> {
        let value = |id: &[u8]| Arg::Text(self.value.of(giving.owner, named(id)));
        match giving.hold {
            HoldId::Only | HoldId::Unlisted => vec![value(b"")],
            // The server returned this id: a `+` and the value itself.
            HoldId::Listed(id) if id.starts_with(b"+") => vec![Arg::Text(id.slice(1..))],
            HoldId::Listed(ids) => ids.split(|byte| *byte == b',').filter(|id| !id.is_empty()).map(value).collect(),
            HoldId::Any => std::iter::once(Bytes::new()).chain(all_of(giving.owner)).map(Arg::Text).collect(),
        }
    }
}

impl Protocol for Plain {
    fn name(&self) -> &Arc<LockName> {
        &self.name
    }

    fn nature(&self) -> &'static Nature {
        match self.value {
            PlainValue::Owner => nature!(Owner),
            PlainValue::Hex => nature!(Hex),
            PlainValue::Base64 => nature!(Base64),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(self.poll)
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let lease = Arg::Int(ask.lease_ms);
        let word = |word: &'static str| Arg::Text(Bytes::from_static(word.as_bytes()));
        let value = match ask.hold {
            HoldId::Listed(id) => self.value.of(ask.owner, id),
            // Without an id, the owner was created for this acquire.
            HoldId::Only | HoldId::Unlisted | HoldId::Any => self.value.of(ask.owner, b""),
        };
        match ask.hold {
            HoldId::Only if !ask.looks => self.call(&SET, [Arg::Text(value), word("NX"), word("PX"), lease]),
            HoldId::Only => self.call(&ACQUIRE, [Arg::Text(value), lease]),
            _ => {
                let mut call = self.call(&ACQUIRE, [Arg::Text(value), lease, Arg::Int(ask.last_ms)]);
                call.words.extend(all_of(ask.owner).map(Arg::Text));
                call
            }
        }
    }

    fn release(&self, giving: &Giving<'_>) -> Call {
        let mut call = self.call(&RELEASE, [Arg::Text(giving.publish.clone()), Arg::Text(self.name.channel.clone())]);
        call.words.extend(self.meant(giving));
        call
    }

    fn force(&self, last_ms: i64, publish: Bytes) -> Call {
        self.call(&FORCE, [Arg::Int(last_ms), Arg::Text(publish), Arg::Text(self.name.channel.clone())])
    }

    fn state(&self) -> Call {
        self.call(&STATE, [])
    }
}
