//! The number of commands for names on several primaries, as the primaries count them. Operations that cost the same as
//! on one server are tested in `cost.rs` of each flavour's folder, which also runs over a cluster.

use distlock::{Acquire, DistLock as _, Flavour, RedLock};
use distlock_support::cluster::key_in;
use distlock_support::{Admin, Cluster};
use futures::future::join_all;

use crate::{client, end, lock, primaries};

/// Each of the three primaries has two of these slots. The tests use two names in each slot.
const SLOTS: [u16; 6] = [10, 20, 6_000, 6_010, 16_000, 16_010];

fn names(prefix: &str) -> Vec<String> {
    let pair = |slot| ["a", "b"].map(|one| key_in(slot, &format!("{prefix}:{one}:")));
    SLOTS.into_iter().flat_map(pair).collect()
}

/// Returns the number of script calls since the last call.
async fn scripts(admin: &Admin) -> u64 {
    let stats = admin.commandstats().await;
    admin.reset_stats().await;
    ["eval", "evalsha"].iter().filter_map(|name| stats.get(*name)).sum()
}

async fn begin() -> (Cluster, Admin) {
    let cluster = primaries(3).await;
    let admin = Admin::of_cluster(&cluster).await;
    (cluster, admin)
}

#[tokio::test]
async fn multi_lock_costs_one_command_per_slot_and_per_released_name() {
    let (cluster, admin) = begin().await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let multi = one.multi(names("list"));
    scripts(&admin).await;
    // The first call needs a second command at each primary, which sends the script.
    for told in [2, 1] {
        let guard = multi.lock().await.unwrap();
        let taken = scripts(&admin).await;
        assert!(taken == 6 || taken <= 6 * told, "taken by {taken}");
        guard.unlock().await.unwrap();
        bed::idle(&one).await;
        let given = scripts(&admin).await;
        assert!(given == 12 || given <= 12 * told, "given back by {given}");
    }
    // Another client holds one name, so the acquire fails and the names of the other slots are released again.
    let theirs = lock(&other, Flavour::Reentrant, &names("list")[0]).lock().await.unwrap();
    scripts(&admin).await;
    assert!(multi.try_lock().await.unwrap().is_none());
    bed::idle(&one).await;
    assert_eq!(scripts(&admin).await, 6 + 10, "taken, and all but two given back");
    theirs.unlock().await.unwrap();
    end(one).await;
    end(other).await;
}

/// Renewals of read-write locks touch several keys for each name, so each slot gets its own command.
#[tokio::test]
async fn renewal_costs_one_command_per_primary_or_slot() {
    let (cluster, admin) = begin().await;
    let one = client(&cluster).await;
    for flavour in crate::FLAVOURS {
        let names = names(&flavour.to_string());
        let locks: Vec<_> = names.iter().map(|name| lock(&one, flavour, name)).collect();
        let guards: Vec<_> =
            join_all(locks.iter().map(|lock| lock.lock())).await.into_iter().map(Result::unwrap).collect();
        let commands = if matches!(flavour, Flavour::Read | Flavour::Write) { 6 } else { 3 };
        // The first round may share the work with a round of the watchdog, or with the confirmation of a new
        // connection's holds.
        let mut counts = Vec::new();
        while counts.last() != Some(&commands) {
            assert!(counts.len() < 4, "{flavour}: commands of a round: {counts:?}, not {commands}");
            scripts(&admin).await;
            assert_eq!(one.renew_now().await.renewed, names.len(), "{flavour}");
            counts.push(scripts(&admin).await);
        }
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    }
    end(one).await;
}

#[tokio::test]
async fn lock_and_unlock_are_two_commands_on_every_primary() {
    let (cluster, admin) = begin().await;
    let one = client(&cluster).await;
    for flavour in crate::FLAVOURS {
        let own = if flavour == Flavour::Plain { 1 } else { 2 };
        let names = names(&flavour.to_string());
        for told in [true, false] {
            for name in &names {
                scripts(&admin).await;
                let lock = lock(&one, flavour, name);
                let guard = lock.acquire(Acquire::new()).await.unwrap().unwrap();
                guard.unlock().await.unwrap();
                let sent = scripts(&admin).await;
                assert!(sent == own || told && sent <= 2 * own, "{name}: {sent}");
            }
        }
    }
    end(one).await;
}

#[tokio::test]
async fn connecting_costs_one_probe_and_two_connections_per_primary() {
    let (cluster, admin) = begin().await;
    let connections = async || {
        let info: String = admin.cmd(&["INFO", "stats"]).await;
        let counts = info.lines().filter_map(|line| line.strip_prefix("total_connections_received:"));
        counts.map(|count| count.trim().parse::<u64>().unwrap()).sum::<u64>()
    };
    admin.reset_stats().await;
    let (one, another) = (client(&cluster).await, client(&cluster).await);
    // Connecting stops at the first seed that answers, so other seeds may get no connection.
    bed::eventually("all stand", async || connections().await >= 2 * 8).await;
    let all = async || admin.others().await.len();
    bed::eventually("two each", async || all().await == 2 * 6).await;
    let made = connections().await;
    assert!(made <= 2 * 12, "{made}");
    // The first client also sends the script to each server.
    assert_eq!(scripts(&admin).await, 3 * 2 + 3);
    end(one).await;
    end(another).await;
}

#[tokio::test]
async fn redlock_costs_one_command_per_cluster_and_call() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let cluster = primaries(1).await;
        let (client, admin) = (client(&cluster).await, Admin::of_cluster(&cluster).await);
        client.reentrant("x").lock().await.unwrap().unlock().await.unwrap();
        nodes.push((cluster, client, admin));
    }
    let lock = RedLock::new(nodes.iter().map(|(_, client, _)| client.clone()), "x").node_timeout(bed::PATIENCE);
    for (_, _, admin) in &nodes {
        scripts(admin).await;
    }
    for _ in 0..10 {
        let guard = lock.acquire(Acquire::new().lease(crate::secs(20))).await.unwrap().expect("nobody has it");
        bed::eventually("all have granted it", async || guard.members().len() == 3).await;
        guard.unlock().await.unwrap();
        for (_, client, _) in &nodes {
            bed::idle(client).await;
        }
    }
    for (_, _, admin) in &nodes {
        assert_eq!(scripts(admin).await, 20);
    }
    for (_, client, _) in nodes {
        end(client).await;
    }
}
