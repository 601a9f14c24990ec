//! Checks of whether a server keeps its keys: eviction, memory, persistence.

use super::Severity::{Breaks, Note, Risk};
use super::{Found, Rule, each};
use crate::doctor::facts::{Facts, Server};

/// Share of the memory limit, in percent, at which memory counts as nearly full.
const FULL: u64 = 90;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "eviction",
        why: "When memory is full, the server deletes keys by this policy. Locks have an expiry, so every policy \
              except noeviction may delete them. Then two clients hold the same lock.",
        fix: "CONFIG SET maxmemory-policy noeviction, and the same line in the configuration file. A cache that needs \
              eviction belongs on another server.",
        page: "docs/semantics.md#premises",
        find: eviction,
    },
    Rule {
        id: "memory-nearly-full",
        why: "A full server refuses acquires (OOM), or deletes keys by its maxmemory-policy.",
        fix: "Delete data, or raise maxmemory.",
        page: "docs/faults.md#refusals-that-pass",
        find: memory_nearly_full,
    },
    Rule {
        id: "persistence-off",
        why: "Every restart deletes all locks, while their holders still work. Replicas of a primary that restarts \
              empty become empty too.",
        fix: "CONFIG SET appendonly yes, and the same line in the configuration file. Without a disk, keep a server \
              down for the longest lease before it restarts.",
        page: "docs/semantics.md#premises",
        find: persistence_off,
    },
    Rule {
        id: "persistence-snapshots",
        why: "A crash deletes all locks that were acquired after the last snapshot, while their holders still work.",
        fix: "CONFIG SET appendonly yes, and the same line in the configuration file.",
        page: "docs/semantics.md#premises",
        find: persistence_snapshots,
    },
    Rule {
        id: "fsync-off",
        why: "When the machine crashes, locks of up to 30 s are lost: the operating system decides when they reach the \
              disk.",
        fix: "CONFIG SET appendfsync everysec, or always, and the same line in the configuration file.",
        page: "docs/acknowledgement.md",
        find: fsync_off,
    },
    Rule {
        id: "disk-writes-fail",
        why: "While the last save has failed, the server refuses all writes (MISCONF), so no lock can be acquired.",
        fix: "Free disk space or correct the rights of the folder (CONFIG GET dir), then BGSAVE.",
        page: "docs/faults.md#refusals-that-pass",
        find: disk_writes_fail,
    },
];

/// The memory limit of a server that has one.
fn limit(server: &Server) -> Option<u64> {
    server.info.number("maxmemory").filter(|bytes| *bytes > 0)
}

fn eviction(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let (limit, policy) = (limit(server)?, server.info.text("maxmemory_policy")?);
        let evicted = server.info.number("evicted_keys").filter(|keys| *keys > 0);
        let so_far = evicted.map(|keys| format!("; {keys} keys evicted since the start")).unwrap_or_default();
        let what = format!("maxmemory-policy {policy}, maxmemory {limit}{so_far}");
        (policy != "noeviction").then_some((Breaks, what))
    })
}

fn memory_nearly_full(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let (limit, used) = (limit(server)?, server.info.number("used_memory")?);
        let share = used.saturating_mul(100) / limit;
        let is_full = server.is_primary() && share >= FULL;
        is_full.then(|| (Risk, format!("{used} of {limit} bytes used ({share} %)")))
    })
}

fn persistence_off(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let is_off = server.info.is("aof_enabled", "0") && server.settings.is("save", "");
        is_off.then(|| (Risk, r#"appendonly no, save """#.to_owned()))
    })
}

fn persistence_snapshots(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let save = server.settings.text("save");
        let is_found = server.info.is("aof_enabled", "0") && save != Some("");
        let save = save.map_or_else(|| "save not known".to_owned(), |save| format!("save {save:?}"));
        is_found.then(|| (Note, format!("appendonly no, {save}")))
    })
}

fn fsync_off(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let is_off = server.info.is("aof_enabled", "1") && server.settings.is("appendfsync", "no");
        is_off.then(|| (Note, "appendfsync no".to_owned()))
    })
}

fn disk_writes_fail(facts: &Facts) -> Vec<Found> {
    each(facts, |server| {
        let failed = |field: &str| server.info.is(field, "err");
        let tolerated = server.settings.is("stop-writes-on-bgsave-error", "no") || server.settings.is("save", "");
        let what = if failed("aof_last_write_status") {
            "aof_last_write_status:err"
        } else if failed("rdb_last_bgsave_status") && !tolerated {
            "rdb_last_bgsave_status:err"
        } else {
            return None;
        };
        server.is_primary().then(|| (Breaks, what.to_owned()))
    })
}
