//! Redlock over three servers: our RedLock over plain locks, and the peers' Redlock.

use std::sync::Arc;

use bed::{PATIENCE, becomes, ends, ms, secs, waits_in_vain};
use distlock::{Client, Error, Flavour, RedLock, Released};
use distlock_support::peer::{Library, Peer};
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};
use futures::future::join_all;

use crate::{AT_ONCE, LONG, is_ready};

struct Three {
    admins: Vec<Admin>,
    clients: Vec<Client>,
    peer: Peer,
}

impl Three {
    fn lock(&self) -> RedLock {
        RedLock::over(self.clients.iter().cloned(), Flavour::Plain, "job").node_timeout(secs(10))
    }

    async fn held(&self) -> usize {
        let mut held = 0;
        for admin in &self.admins {
            held += usize::from(admin.exists("job").await);
        }
        held
    }
}

async fn three(library: Library, body: impl AsyncFn(&Three)) {
    if !is_ready(library).await {
        return;
    }
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let admins = join_all(servers.iter().map(Admin::connect)).await;
    let baselines = join_all(admins.iter().map(Baseline::take)).await;
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(bed::builder(&server.url()).connect().await.unwrap());
    }
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let peer = Peer::start(library, &urls).await;
    let three = Three { admins, clients, peer };
    body(&three).await;
    let Three { admins, clients, peer } = three;
    peer.end().await;
    for client in clients {
        bed::end(client).await;
    }
    for (admin, baseline) in admins.iter().zip(&baselines) {
        assert_nothing_left(admin, baseline).await;
    }
}

/// A majority of either side excludes the other side. Each side acquires after the other's release.
async fn redlock_and_peer_exclude_and_follow_each_other(library: Library) {
    three(library, async |three| {
        let (lock, peer) = (three.lock(), &three.peer);
        // Our lock is renewed on every server.
        let guard = lock.lock().await.unwrap();
        for client in &three.clients {
            let round = client.renew_now().await;
            assert_eq!((round.failed, round.lost), (0, 0));
        }
        assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None);
        assert!(guard.is_held());
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);

        // The peer holds the lock.
        let theirs = peer.lock("job", LONG, PATIENCE).await.expect("it is free");
        assert!(lock.try_lock().await.unwrap().is_none());
        waits_in_vain(ms(200), async |wait| lock.lock_for(wait).await).await;
        assert!(peer.extend(theirs, LONG).await);
        let waiting = lock.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await.unwrap() });
        tokio::time::sleep(ms(300)).await;
        assert!(!waiter.is_finished());
        assert!(peer.release(theirs).await);
        let guard = ends("our waiter after their release", waiter).await.unwrap();
        assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None);
        guard.unlock().await.unwrap();

        // The peer's lease ends. Its late release must not release our lock.
        let theirs = peer.lock("job", secs(4), PATIENCE).await.expect("it is free");
        let guard = ends("ours, when their lease is over", lock.lock()).await.unwrap();
        assert!(!peer.release(theirs).await);
        assert!(guard.is_held() && three.held().await >= 2);
        guard.unlock().await.unwrap();
    })
    .await;
}

/// One server still has the key of a dead holder. Then two of three servers lose our key.
async fn dead_vote_on_one_server_blocks_neither_side(library: Library) {
    three(library, async |three| {
        let (lock, peer) = (three.lock(), &three.peer);
        let () = three.admins[1].cmd(&["SET", "job", "somebody who died", "PX", "3600000"]).await;
        let guard = lock.lock_for(PATIENCE).await.unwrap().expect("two of three are free");
        assert_eq!(peer.lock("job", LONG, AT_ONCE).await, None);
        guard.unlock().await.unwrap();
        let theirs = peer.lock("job", LONG, PATIENCE).await.expect("two of three are free");
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(peer.release(theirs).await);
        let () = three.admins[1].cmd(&["DEL", "job"]).await;
        // Our lock is lost when the peer holds it on two servers.
        let guard = lock.lock().await.unwrap();
        // Two votes are enough, so the third may still be in flight.
        for client in &three.clients {
            let in_flight = async || (client.stats().waiting, client.stats().under_way);
            becomes("waiters and commands in flight", (0, 0), in_flight).await;
        }
        for at in [0, 2] {
            let () = three.admins[at].cmd(&["DEL", "job"]).await;
        }
        let theirs = peer.lock("job", LONG, PATIENCE).await.expect("two of three are free");
        let lost = ends("the loss is signalled", guard.lost()).await;
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        assert!(guard.unlock().await.is_err());
        assert!(peer.release(theirs).await);
        assert!(lock.lock_for(PATIENCE).await.unwrap().is_some());
    })
    .await;
}

/// Both sides want the lock all the time, and never hold it at the same time.
async fn redlock_and_peer_never_hold_at_once(library: Library) {
    three(library, async |three| {
        let counter = Arc::new(bed::Counter::default());
        let ours = async {
            let lock = three.lock();
            for _ in 0..12 {
                let guard = lock.lock().await.unwrap();
                counter.bump(ms(2)).await;
                guard.unlock().await.unwrap();
                tokio::time::sleep(ms(60)).await;
            }
        };
        let theirs = async {
            for _ in 0..5 {
                let handle = three.peer.lock("job", LONG, PATIENCE).await.expect("it is free now and then");
                counter.bump(ms(2)).await;
                assert!(three.peer.release(handle).await);
            }
        };
        tokio::join!(ours, theirs);
        assert_eq!(counter.get(), 12 + 5);
    })
    .await;
}

// redis-py has no quorum.
libraries!([redsync: Redsync, redlock: Redlock, rslock: Rslock], [
    redlock_and_peer_exclude_and_follow_each_other
    dead_vote_on_one_server_blocks_neither_side
    redlock_and_peer_never_hold_at_once
]);
