//! RedLock over plain locks: the Redlock of other libraries, a majority of independent servers.

use std::time::Duration;

use bed::{becomes, ends, enter, ms, secs, waits_in_vain};
use distlock::{Acquire, Client, Error, Flavour, RedLock, Released};
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};
use futures::future::join_all;

use crate::rig::Stranger;

struct Three {
    servers: Vec<RedisServer>,
    admins: Vec<Admin>,
}

impl Three {
    async fn clients(&self) -> Vec<Client> {
        join_all(self.servers.iter().map(async |server| bed::builder(&server.url()).connect().await.unwrap())).await
    }

    fn lock(clients: &[Client]) -> RedLock {
        RedLock::over(clients.iter().cloned(), Flavour::Plain, "job").node_timeout(secs(10))
    }

    async fn held_on(&self, count: usize) {
        becomes("servers that have the lock", count, async || self.values().await.iter().flatten().count()).await;
    }

    async fn values(&self) -> Vec<Option<String>> {
        join_all(self.admins.iter().map(async |admin| admin.cmd(&["GET", "job"]).await)).await
    }

    /// Acquires these servers for a holder of another library. Returns the number of servers that granted it.
    async fn takes(&self, at: &[usize], lease: Duration) -> usize {
        let mut votes = 0;
        for at in at {
            votes += usize::from(self.stranger(*at).takes("job", lease).await);
        }
        votes
    }

    async fn releases(&self) -> usize {
        let mut votes = 0;
        for at in 0..3 {
            votes += usize::from(self.stranger(at).releases("job").await);
        }
        votes
    }

    fn stranger(&self, at: usize) -> Stranger<'_> {
        Stranger { admin: &self.admins[at], value: "7be4a1a69a6b4a4c8b9f1c1f6f8f6f8f7be4a1a69a6b4a4c" }
    }
}

async fn three(body: impl AsyncFn(&Three, &[Client])) {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let admins = join_all(servers.iter().map(Admin::connect)).await;
    let baselines = join_all(admins.iter().map(Baseline::take)).await;
    let three = Three { servers, admins };
    let clients = three.clients().await;
    body(&three, &clients).await;
    for client in clients {
        bed::end(client).await;
    }
    for (admin, baseline) in three.admins.iter().zip(&baselines) {
        assert_nothing_left(admin, baseline).await;
    }
}

#[tokio::test]
async fn redlock_and_foreign_majority_exclude_each_other() {
    three(async |three, clients| {
        let lock = Three::lock(clients);
        let guard = lock.lock().await.unwrap();
        three.held_on(3).await;
        // Each server has its own value.
        let values = three.values().await;
        assert!(values[0] != values[1] && values[1] != values[2]);
        assert_eq!(three.takes(&[0, 1, 2], secs(5)).await, 0);
        assert_eq!(three.releases().await, 0);
        assert_eq!(lock.state().await.unwrap().holders, [(guard.owner().to_string(), 1)]);
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        three.held_on(0).await;
        // There is no re-entry.
        let me = clients[0].owner();
        let guard = enter(&lock, &me).await;
        let again = lock.acquire(Acquire::new().owner(&me)).await;
        assert!(matches!(again, Err(Error::WouldDeadlock { .. })), "{again:?}");
        assert!(guard.is_held());
        guard.unlock().await.unwrap();

        for at in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
            // The release of the third server, and the undo of an attempt in vain, run in the background.
            three.held_on(0).await;
            assert_eq!(three.takes(at, secs(600)).await, at.len());
            assert!(lock.try_lock().await.unwrap().is_none());
            waits_in_vain(ms(150), async |wait| lock.lock_for(wait).await).await;
            // A foreign holder is named by its value, which is the same on all servers.
            let holders = lock.state().await.unwrap().holders;
            assert_eq!(holders, [(three.stranger(0).value.to_owned(), 1)], "{at:?}");
            assert!(lock.release(&me).await.is_err());
            assert_eq!(three.releases().await, at.len());
        }
        three.held_on(0).await;
        // A foreign holder of a minority does not prevent our lock, and keeps its servers.
        assert_eq!(three.takes(&[1], secs(600)).await, 1);
        let guard = lock.lock().await.unwrap();
        assert!(guard.is_held());
        assert_eq!(three.takes(&[0, 2], secs(5)).await, 0);
        guard.unlock().await.unwrap();
        assert_eq!(three.releases().await, 1);
    })
    .await;
}

/// A waiter behind another library's majority acquires the lock after its release, and when its lease expires.
#[tokio::test]
async fn waiter_acquires_when_foreign_majority_is_released_or_expires() {
    three(async |three, clients| {
        let lock = Three::lock(clients);
        for expires in [false, true] {
            assert_eq!(three.takes(&[0, 1, 2], secs(600)).await, 3);
            let waiter = bed::passer(lock.clone());
            becomes("waiters", true, async || clients.iter().any(|client| client.stats().waiting > 0)).await;
            if expires {
                for admin in &three.admins {
                    let () = admin.cmd(&["PEXPIRE", "job", "100"]).await;
                }
            } else {
                assert_eq!(three.releases().await, 3);
            }
            ends("the waiter", waiter).await.unwrap();
            three.held_on(0).await;
        }
    })
    .await;
}

/// The watchdog renews the lock on every server. The lock is lost when other holders have a majority.
#[tokio::test]
async fn redlock_is_renewed_on_every_server_and_reports_its_loss() {
    three(async |three, clients| {
        let lock = Three::lock(clients);
        let guard = lock.lock().await.unwrap();
        three.held_on(3).await;
        for client in clients {
            assert_eq!(client.renew_now().await.renewed, 1);
        }
        for at in [0, 2] {
            let () = three.admins[at].cmd(&["DEL", "job"]).await;
        }
        assert_eq!(three.takes(&[0, 2], secs(60)).await, 2);
        for client in clients {
            client.renew_now().await;
        }
        assert!(!guard.is_held());
        assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
        assert_eq!(three.releases().await, 2);
    })
    .await;
}
