//! The number of commands for names on several primaries, as the primaries count them. Operations that cost the same as
//! on one server are tested in `cost.rs` of each flavour's folder, which also runs over a cluster.

use distlock::Flavour;
use distlock_support::cluster::key_in;
use distlock_support::{Admin, Cluster};
use futures::future::join_all;

use crate::{FLAVOURS, accepted, client, end, lock, primaries};

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
    for flavour in FLAVOURS {
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
async fn connecting_costs_one_probe_and_two_connections_per_primary() {
    let (cluster, admin) = begin().await;
    admin.reset_stats().await;
    let (one, another) = (client(&cluster).await, client(&cluster).await);
    // Connecting stops at the first seed that answers, so other seeds may get no connection.
    bed::eventually("all stand", async || accepted(&admin).await >= 2 * 8).await;
    bed::becomes("connections that stay, two each", 2 * 6, async || admin.others().await.len()).await;
    let made = accepted(&admin).await;
    assert!(made <= 2 * 12, "{made}");
    // The first client also sends the script to each server.
    assert_eq!(scripts(&admin).await, 3 * 2 + 3);
    end(one).await;
    end(another).await;
}
