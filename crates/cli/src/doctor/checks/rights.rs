//! Checks of what the login may do: scripts, messages, commands and keys.

use std::collections::BTreeSet;

use clap::ValueEnum as _;

use super::Severity::{Breaks, Note, Risk};
use super::{Found, Rule};
use crate::doctor::facts::{Facts, Refusal, Rights, Server};
use crate::doctor::needs::{Kind, NAME};

/// The default lease, in ms. While a script runs for longer, all leases end.
const LEASE_MS: u64 = 30_000;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "scripts-refused",
        why: "Every lock is acquired and released by a script.",
        fix: "Give the login the rights +eval and +evalsha.",
        page: "docs/acl.md",
        find: scripts_refused,
    },
    Rule {
        id: "script-cache-refused",
        why: "The client sends scripts by their hash (EVALSHA). If the server refuses that, every call fails.",
        fix: "Give the login the right +evalsha, or set Options::script_cache to false.",
        page: "docs/acl.md",
        find: script_cache_refused,
    },
    Rule {
        id: "script-time-limit",
        why: "If any client runs an endless script, nobody can end it before this limit. Meanwhile all locks end with \
              their leases. With 0, only a restart ends the script.",
        fix: "CONFIG SET busy-reply-threshold 5000 (before Redis 7: lua-time-limit 5000).",
        page: "docs/faults.md",
        find: script_time_limit,
    },
    Rule {
        id: "messages-refused",
        why: "Releases wake no waiter of another process. Waiters notice a free lock only by their poll, every 5 s \
              (Options::poll_cap).",
        fix: "Give the login the rights to publish and subscribe, and the channels of locks.",
        page: "docs/acl.md#what-can-i-leave-out",
        find: messages_refused,
    },
    Rule {
        id: "sharded-messages-missing",
        why: "Without sharded channels, every release message reaches every server of the cluster, so more servers do \
              not carry more locks.",
        fix: "Upgrade to Redis 7 or newer, or to Valkey. If the server is new enough, give the login the right \
              +pubsub|shardnumsub.",
        page: "docs/clusters.md",
        find: sharded_messages_missing,
    },
    Rule {
        id: "right-missing",
        why: "A script of these locks is refused in its middle: acquires fail, or a fair queue does not advance.",
        fix: "Give the login the rights of the page.",
        page: "docs/acl.md",
        find: right_missing,
    },
    Rule {
        id: "command-disabled",
        why: "Scripts of these locks use a command that the server does not have.",
        fix: "Remove the line rename-command from the configuration file, and restart the server. On an old server, \
              upgrade.",
        page: "docs/servers.md",
        find: command_disabled,
    },
];

/// The addresses of all primaries.
fn primaries(facts: &Facts) -> String {
    facts.primaries().map(|server| server.address.as_str()).collect::<Vec<_>>().join(", ")
}

fn user(server: &Server) -> &str {
    server.user.as_deref().unwrap_or("<user>")
}

fn titles(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.title()).collect::<Vec<_>>().join(", ")
}

fn scripts_refused(facts: &Facts) -> Vec<Found> {
    let is_refused = facts.capabilities.as_ref().is_some_and(|found| found.scripts == Some(false));
    is_refused.then(|| Found::new(Breaks, &primaries(facts), "EVAL is refused")).into_iter().collect()
}

fn script_cache_refused(facts: &Facts) -> Vec<Found> {
    let is_refused = |found: &distlock::Capabilities| found.script_cache == Some(false) && found.scripts != Some(false);
    let is_refused = facts.capabilities.as_ref().is_some_and(is_refused);
    is_refused.then(|| Found::new(Breaks, &primaries(facts), "EVALSHA is refused")).into_iter().collect()
}

fn script_time_limit(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in &facts.servers {
        let setting = |name: &'static str| Some((name, server.settings.number(name)?));
        if let Some((name, limit)) = setting("busy-reply-threshold").or_else(|| setting("lua-time-limit"))
            && (limit == 0 || limit >= LEASE_MS)
        {
            found.push(Found::at(Risk, server, format!("{name} {limit}")));
        }
    }
    found
}

fn messages_refused(facts: &Facts) -> Vec<Found> {
    let all = facts.capabilities.as_ref().is_some_and(|found| found.messages == Some(false));
    let is_sharded = facts.is_sharded();
    let mut found = Vec::new();
    for server in facts.primaries() {
        let channels = server.rights.as_ref().map(|rights| &rights.channels);
        let is_refused = |kind: &Kind| {
            kind.channel().is_some_and(|channel| all || channels.is_some_and(|refused| refused.contains(&channel)))
        };
        let kinds: Vec<Kind> = Kind::value_variants().iter().copied().filter(is_refused).collect();
        if kinds.is_empty() {
            continue;
        }
        let severity = if kinds.iter().any(|kind| facts.is_wanted(*kind)) { Risk } else { Note };
        let rules: BTreeSet<String> =
            kinds.iter().filter_map(|kind| Some(kind.channel()?.rule(&facts.wanted.prefix))).collect();
        let rules = rules.into_iter().collect::<Vec<_>>().join(" ");
        let commands =
            if is_sharded { "+ssubscribe +sunsubscribe +spublish" } else { "+subscribe +unsubscribe +publish" };
        let what = format!("user {} gets no messages of {}", user(server), titles(&kinds));
        found.push(Found::at(severity, server, what).fix(format!("ACL SETUSER {} {commands} {rules}", user(server))));
    }
    found
}

fn sharded_messages_missing(facts: &Facts) -> Vec<Found> {
    let Some(found) = facts.capabilities.as_ref() else { return Vec::new() };
    let version = found.version.as_deref().unwrap_or("unknown");
    let is_missing = found.cluster && found.sharded_channels == Some(false);
    let what = format!("version {version}, PUBSUB SHARDNUMSUB is refused");
    is_missing.then(|| Found::new(Note, &primaries(facts), what)).into_iter().collect()
}

/// The rights that this kind of lock lacks, as rules of an access list.
fn lacking(kind: Kind, rights: &Rights, prefix: &str) -> Vec<String> {
    let is_denied = |command: &&str| rights.commands.get(*command) == Some(&Refusal::Denied);
    let commands = kind.commands().filter(is_denied).map(|command| format!("+{command}"));
    let keys = kind.keys().iter().filter(|key| rights.keys.contains(*key)).map(|key| key.rule(prefix));
    commands.chain(keys).collect()
}

/// Rights that other kinds lack are a note, unless a wanted kind lacks them too.
fn right_missing(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in facts.primaries() {
        let Some(rights) = &server.rights else { continue };
        let mut listed: BTreeSet<String> = BTreeSet::new();
        for severity in [Breaks, Note] {
            let (mut kinds, mut missing) = (Vec::new(), BTreeSet::new());
            for kind in Kind::value_variants().iter().filter(|kind| facts.is_wanted(**kind) == (severity == Breaks)) {
                let mut lacks = lacking(*kind, rights, &facts.wanted.prefix);
                lacks.retain(|right| !listed.contains(right));
                if !lacks.is_empty() {
                    kinds.push(*kind);
                    missing.extend(lacks);
                }
            }
            if kinds.is_empty() {
                continue;
            }
            let rules = missing.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            let what = format!("user {} lacks {rules}, needed by {}", user(server), titles(&kinds));
            let or = if rights.keys.contains(&NAME) { ", or pass the prefix of all names as --prefix" } else { "" };
            found.push(Found::at(severity, server, what).fix(format!("ACL SETUSER {} {rules}{or}", user(server))));
            listed.extend(missing);
        }
    }
    found
}

fn command_disabled(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for server in facts.primaries() {
        let Some(rights) = &server.rights else { continue };
        let unknown = |command: &&str| rights.commands.get(*command) == Some(&Refusal::Unknown);
        let needs = |kind: &Kind| kind.commands().any(|command| unknown(&command));
        let kinds: Vec<Kind> = Kind::value_variants().iter().copied().filter(needs).collect();
        if kinds.is_empty() {
            continue;
        }
        let severity = if kinds.iter().any(|kind| facts.is_wanted(*kind)) { Breaks } else { Note };
        let commands: Vec<&str> = rights.commands.keys().copied().filter(unknown).collect();
        let what = format!("{} missing, needed by {}", commands.join(" "), titles(&kinds));
        found.push(Found::at(severity, server, what));
    }
    found
}
