//! One server's commands are lost, repeated, delayed and cut off. The other servers decide, and nothing is left at that
//! server. `minority.rs` and `majority.rs` cover unreachable servers.

use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{RedLock, Released};
use distlock_support::Proxy;
use distlock_support::proxy::{Action, Matcher};

use crate::rig::{Path, User, five, long, patient};
use bed::harm::{ACTIONS, TIMEOUT, in_every_way};
use bed::{PATIENCE, becomes};

/// The server at which waiters subscribe.
const FIRST: usize = 0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_faults_at_one_server_keep_majority_and_leave_no_keys() {
    five(async |five| {
        // Loads the scripts on all servers.
        five.warm(Path::Direct, patient).await;
        let fired = AtomicUsize::new(0);
        let hit = async |action: Action, nth: usize| {
            let proxy = Proxy::start(five.servers[FIRST].addr());
            let mut clients = Vec::new();
            for at in 0..5 {
                let builder = match at {
                    FIRST => patient(&proxy.url()).command_timeout(TIMEOUT),
                    _ => patient(&five.url(at, Path::Direct)),
                };
                let client = builder.connect().await.unwrap();
                five.keep(&client);
                clients.push(client);
            }
            let name = format!("{action:?}/{nth};");
            let armed = proxy.on_request(Matcher::command("EVALSHA").containing(&name).nth(nth), action);
            let lock = RedLock::new(clients.clone(), &name).node_timeout(PATIENCE);
            let user = User { clients };
            for _ in 0..2 {
                let guard = lock.acquire(long()).await.unwrap().expect("nobody else is there");
                assert!(guard.is_held() && guard.members().iter().filter(|member| member.is_held).count() >= 3);
                match lock.try_lock().await {
                    Ok(second) => assert!(second.is_none(), "{name} two holders: {guard:?} and {second:?}"),
                    Err(error) => panic!("{name} four servers say that it is held, and the attempt failed: {error:?}"),
                }
                assert_eq!(guard.unlock().await.unwrap(), Released::Free, "{name}");
                becomes(&format!("servers that have {name}"), Vec::new(), async || five.having(&name).await).await;
                user.quiet().await;
            }
            fired.fetch_add(usize::from(armed.has_fired()), Ordering::Relaxed);
        };
        // The acquire, the second user's attempt, the release, and the acquire after it.
        in_every_way(1..=4, hit).await;
        let fired = fired.into_inner();
        assert!(fired >= 3 * ACTIONS.len(), "{fired} of {} commands were hit", 4 * ACTIONS.len());
    })
    .await;
}
