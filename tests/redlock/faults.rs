//! One server's commands, lost, repeated, delayed and cut: the others decide, and nothing is left at that one. Servers that are
//! away as a whole: `minority.rs`, `sweep.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{DistLock as _, RedLock, Released};
use distlock_support::Proxy;
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{Path, SOON, five, long, patient, quick};
use bed::eventually;
use bed::harm::{ACTIONS, TIMEOUT, in_every_way};

/// Where waiters meet.
const FIRST: usize = 0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_lost_in_any_way_at_one_server_costs_no_vote_of_another() {
    five(async |five| {
        // The servers know the scripts.
        five.warm(Path::Direct, patient).await;
        let fired = AtomicUsize::new(0);
        let hit = async |action: Action, nth: usize| {
            let proxy = Proxy::start(five.servers[FIRST].addr());
            let mut clients = Vec::new();
            for at in 0..5 {
                let url = if at == FIRST { proxy.url() } else { five.url(at, Path::Direct) };
                let client = quick(&url).command_timeout(TIMEOUT).connect().await.unwrap();
                five.keep(&client);
                clients.push(client);
            }
            let name = format!("{action:?}/{nth};");
            let armed = proxy.on_request(Matcher::command("EVALSHA").containing(&name).nth(nth), action);
            let lock = RedLock::new(clients.clone(), &name);
            for _ in 0..2 {
                let guard = lock.acquire(long()).await.unwrap().expect("nobody else is there");
                assert!(guard.is_held() && guard.members().iter().filter(|member| member.is_held).count() >= 3);
                assert!(lock.try_lock().await.is_ok_and(|second| second.is_none()), "{name} two holders");
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{name}");
                eventually(&format!("{name} is free everywhere"), async || five.having(&name).await.is_empty())
                    .await;
                for client in &clients {
                    eventually("no command is under way", async || client.stats().under_way == 0).await;
                }
            }
            fired.fetch_add(usize::from(armed.has_fired()), Ordering::Relaxed);
        };
        // The acquire, the look of the second one, the release, and the acquire after that.
        in_every_way(1..=4, hit).await;
        let fired = fired.into_inner();
        println!("{fired} of {} commands were hit", 4 * ACTIONS.len());
        assert!(fired >= 3 * ACTIONS.len(), "{fired}");
    })
    .await;
}
