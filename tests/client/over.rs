//! Clients over connections that the program has made itself: `Client::over` for fred, and `distlock_redis::over`.

use std::sync::Arc;

use distlock::{Acks, Client, Error, Options, Result};
use distlock_support::proxy::Action;
use fred::clients::Pool;
use fred::interfaces::ClientLike as _;
use fred::types::ConnectHandle;
use fred::types::config::{Config, ReconnectPolicy};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::rig::{is_served, takes};
use bed::fault::{assert_doubt, script, warm};
use bed::{Counter, PATIENCE, becomes, ends, eventually, ms, passer, reentrant, secs};

/// The library of the program's own connections.
#[derive(Clone, Copy, Debug)]
enum Library {
    /// A pool of this many clients.
    Fred(usize),
    RedisRs,
}

/// The program's own connections.
enum Own {
    Fred(Pool, ConnectHandle),
    RedisRs(ConnectionManager),
}

impl Own {
    /// Checks that the connections still work, and closes them.
    async fn end(self) {
        match self {
            Self::Fred(pool, task) => {
                for client in pool.clients() {
                    let pong = ends("a PING of the program's own", client.ping::<String>(None)).await;
                    assert_eq!(pong.unwrap(), "PONG");
                }
                pool.quit().await.unwrap();
                ends("fred's task", task).await.unwrap().unwrap();
            }
            Self::RedisRs(mut manager) => {
                let pong = redis::cmd("PING").query_async::<String>(&mut manager).await;
                assert_eq!(pong.unwrap(), "PONG");
            }
        }
    }
}

/// No waiter polls, and a slow machine ends no command.
fn options() -> Options {
    let mut options = Options::default();
    options.command_timeout = secs(10);
    options.connect_timeout = PATIENCE;
    options.poll_cap = secs(3600);
    options
}

fn pool(url: &str, size: usize) -> Pool {
    let policy = ReconnectPolicy::new_constant(0, 10);
    Pool::new(Config::from_url(url).unwrap(), None, None, Some(policy), size).unwrap()
}

async fn over(library: Library, url: &str, options: Options) -> (Own, Result<Client>) {
    match library {
        Library::Fred(size) => {
            let pool = pool(url, size);
            let task = pool.init().await.unwrap();
            let client = Client::over(pool.clients(), options).await;
            (Own::Fred(pool, task), client)
        }
        Library::RedisRs => {
            let own = redis::Client::open(url).unwrap();
            let config = ConnectionManagerConfig::new().set_response_timeout(None);
            let config = config.set_connection_timeout(Some(PATIENCE));
            let manager = own.get_connection_manager_with_config(config).await.unwrap();
            let client = distlock_redis::over(&own, manager.clone(), options).await;
            (Own::RedisRs(manager), client)
        }
    }
}

/// The program's connections, and a client over them.
async fn bring(library: Library, url: &str) -> (Own, Client) {
    let (own, client) = over(library, url, options()).await;
    (own, client.unwrap())
}

async fn waiters_are_woken_and_shutdown_leaves_the_connections_open(library: Library) {
    reentrant(async |bed| {
        let (own, client) = bring(library, &bed.server.url()).await;
        let other = bed.connect(bed.builder().configure(|options| options.poll_cap = secs(3600))).await;
        for (name, holder, waiter) in [("a", &client, &other), ("b", &other, &client)] {
            let guard = holder.reentrant(name).lock().await.unwrap();
            assert!(waiter.reentrant(name).try_lock().await.unwrap().is_none(), "{name}: two holders");
            let waiting = passer(waiter.reentrant(name));
            let channel = format!("redisson_lock__channel:{{{name}}}");
            becomes("subscribers", 1, async || bed.admin.numsub(&channel).await).await;
            guard.unlock().await.unwrap();
            ends("the waiter", waiting).await.unwrap();
        }
        bed::end(client).await;
        own.end().await;
    })
    .await;
}

bed::cases!(
    waiters_are_woken_and_shutdown_leaves_the_connections_open: fred = Library::Fred(2), redis_rs = Library::RedisRs
);

/// By default, fred sends a command up to three times.
async fn lost_acquire_is_sent_once_and_undone(library: Library) {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let (own, client) = bring(library, &proxy.url()).await;
        warm(&client).await;
        for (name, action) in [("close", Action::SwallowReplyClose), ("reset", Action::SwallowReplyRst)] {
            let lock = client.reentrant(name);
            proxy.on_request(script("acquire").containing(name), action);
            let seen = proxy.requests_seen("EVALSHA");
            assert_doubt(&lock.try_lock().await.unwrap_err());
            eventually("the release has come", async || proxy.requests_seen("EVALSHA") >= seen + 2).await;
            // The query uses the same queue, so a repeated acquire would come before the query.
            assert!(!lock.is_locked().await.unwrap(), "{name}");
            assert_eq!(proxy.requests_seen("EVALSHA"), seen + 3, "the acquire, its undo, and the query");
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        bed::end(client).await;
        own.end().await;
    })
    .await;
}

bed::cases!(lost_acquire_is_sent_once_and_undone: fred = Library::Fred(1), redis_rs = Library::RedisRs);

async fn hold_and_subscription_survive_a_reset(library: Library) {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let (own, client) = bring(library, &proxy.url()).await;
        let other = bed.client().await;
        let held = client.reentrant("held").lock().await.unwrap();
        let guard = other.reentrant("a").lock().await.unwrap();
        let waiting = takes(client.reentrant("a"));
        let subscribed = async || {
            let mut others = bed.admin.others().await.into_iter();
            others.find(|connection| connection.sub == 1).map(|connection| connection.id)
        };
        let mut first = None;
        eventually("the waiter is subscribed", async || {
            first = subscribed().await;
            first.is_some()
        })
        .await;
        proxy.rst_all();
        eventually("a new connection is subscribed", async || {
            let now = subscribed().await;
            now.is_some() && now != first
        })
        .await;
        guard.unlock().await.unwrap();
        is_served("the waiter", waiting).await;
        eventually("the hold is renewed", async || client.renew_now().await.renewed == 1).await;
        assert!(held.is_held());
        assert!(other.reentrant("held").try_lock().await.unwrap().is_none(), "two holders");
        held.unlock().await.unwrap();
        bed::end(client).await;
        own.end().await;
    })
    .await;
}

bed::cases!(hold_and_subscription_survive_a_reset: fred = Library::Fred(2), redis_rs = Library::RedisRs);

async fn exclusion_holds_while_connections_are_reset(library: Library) {
    const ROUNDS: u64 = 20;
    reentrant(async |bed| {
        let proxy = bed.proxy();
        let (own, client) = bring(library, &proxy.url()).await;
        let (other, counter) = (bed.client().await, Arc::new(Counter::default()));
        let workers = [client.clone(), client.clone(), other].map(|client| {
            let (lock, counter) = (client.reentrant("a"), Arc::clone(&counter));
            tokio::spawn(async move {
                let mut rounds = 0;
                while rounds < ROUNDS {
                    // An acquire may fail while its connection is away.
                    let Ok(guard) = lock.lock().await else { continue };
                    counter.bump(ms(1)).await;
                    rounds += 1;
                    drop(guard);
                }
            })
        });
        for resets in 1..=4 {
            eventually("the workers go on", async || counter.get() >= resets * 10).await;
            proxy.rst_all();
        }
        for worker in workers {
            ends("a worker", worker).await.unwrap();
        }
        assert_eq!(counter.get(), 3 * ROUNDS);
        bed::end(client).await;
        own.end().await;
    })
    .await;
}

bed::cases!(exclusion_holds_while_connections_are_reset: fred = Library::Fred(2), redis_rs = Library::RedisRs);

async fn strict_acknowledgement_is_refused(library: Library) {
    reentrant(async |bed| {
        let mut strict = options();
        strict.acks = Acks::All;
        let (own, client) = over(library, &bed.server.url(), strict).await;
        let error = client.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }), "{error:?}");
        own.end().await;
    })
    .await;
}

bed::cases!(strict_acknowledgement_is_refused: fred = Library::Fred(1), redis_rs = Library::RedisRs);

#[tokio::test]
async fn fred_clients_of_clusters_sentinels_or_several_servers_are_refused() {
    let client = |url: &str| fred::clients::Client::new(Config::from_url(url).unwrap(), None, None, None);
    let one = client("redis://127.0.0.1:1");
    for (clients, part) in [
        (vec![], "no fred client"),
        (vec![client("redis-cluster://127.0.0.1:1")], "connect by redis-cluster://"),
        (vec![client("redis-sentinel://127.0.0.1:1?sentinelServiceName=main")], "connect by redis-sentinel://"),
        (vec![one.clone(), client("redis://127.0.0.1:2")], "different servers"),
        (vec![one.clone(), client("redis://127.0.0.1:1/3")], "different servers"),
    ] {
        let error = Client::over(&clients, options()).await.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Config { what } if what.contains(part)), "{part}: {error:?}");
    }
}

#[tokio::test]
async fn fred_client_that_is_not_connected_is_refused() {
    reentrant(async |bed| {
        let pool = pool(&bed.server.url(), 1);
        let mut brief = options();
        brief.connect_timeout = ms(200);
        let error = Client::over(pool.clients(), brief).await.map(drop).unwrap_err();
        let is_told = matches!(&error, Error::Connection { message, .. } if message.contains("init()"));
        assert!(is_told && !error.outcome_unknown(), "{error:?}");
    })
    .await;
}
