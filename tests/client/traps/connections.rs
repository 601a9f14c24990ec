//! Traps 7, 8, 11, 12 and 16: connections that do not come back, that are silent, or that outlive their client.

use std::time::Instant;

use distlock::{Client, Error};
use distlock_support::proxy::{Action, Proxy};
use distlock_support::{Admin, Baseline, RedisServer, assert_nothing_left};

use bed::fault::{brisk, script, warm};
use bed::harm::TIMEOUT;
use bed::{eventually, idle, ms, reentrant, secs};

/// Without a policy, which is the default, the first disconnect is final. connect.rs, `ReconnectPolicy::new_exponential`.
#[tokio::test]
async fn trap_07_a_killed_connection_comes_back() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).pool_size(2)).await;
        let lock = client.reentrant("a");
        for round in 0..3 {
            let guard = lock.lock().await.unwrap();
            let killed = bed.admin.client_kill_type("normal").await + bed.admin.client_kill_type("pubsub").await;
            assert_eq!(killed, 3, "round {round}: two for commands, one for messages");
            let start = Instant::now();
            guard.unlock().await.unwrap();
            println!("released {:?} after the kill", start.elapsed());
            let back = async || bed.admin.others().await.len() == 3;
            eventually("all connections are back", back).await;
        }
    })
    .await;
}

/// A silent connection goes unnoticed for as long as something is written to it. node/connection.rs, `Connection::run`: after two
/// timeouts in a row the connection is broken and made anew.
#[tokio::test]
async fn trap_08_a_silent_connection_is_replaced_under_steady_traffic() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url())).await;
        warm(&client).await;
        // All that the server says on this connection from here on is withheld. Others are not touched.
        let silent = proxy.on_request(script("acquire"), Action::HangReply);
        let start = Instant::now();
        let mut requests = Vec::new();
        let mut traffic = tokio::time::interval(ms(50));
        let healed = loop {
            traffic.tick().await;
            assert!(start.elapsed() < secs(4), "not healed under steady traffic");
            let lock = client.reentrant(&format!("lock {}", requests.len()));
            requests.push(tokio::spawn(async move { lock.try_lock().await.map(|guard| guard.is_some()) }));
            // Less than the timeout that fred goes by.
            if requests.len() > 3
                && requests[requests.len() - 3].is_finished()
                && matches!(requests.swap_remove(requests.len() - 3).await, Ok(Ok(true)))
            {
                break start.elapsed();
            }
        };
        assert!(silent.has_fired());
        println!("healed after {healed:?}, {} requests", requests.len());
        assert!(healed > TIMEOUT && healed < TIMEOUT + secs(2), "{healed:?}");
        for request in requests {
            if let Err(error) = request.await.unwrap() {
                assert!(error.outcome_unknown(), "{error:?}");
            }
        }
        // What ran unseen on the silent connection is undone.
        eventually("nothing is left", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}

/// Dropping every handle leaves the connections and fred's tasks behind. client.rs, `Handle`'s `Drop`; where that is cut
/// short, node.rs, `Node`'s `Drop`.
#[tokio::test]
async fn trap_11_dropping_all_handles_closes_connections_and_ends_tasks() {
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let baseline = Baseline::take(&admin).await;
    for round in 0..10 {
        let client = brisk(&server.url()).pool_size(1 + round % 3).connect().await.unwrap();
        let lock = client.reentrant("a");
        let guard = lock.lock().await.unwrap();
        let second = client.clone();
        let waiting = client.reentrant("a");
        let waiting = tokio::spawn(async move { drop(waiting.lock_for(ms(20)).await) });
        drop(client);
        waiting.await.unwrap();
        drop((lock, second));
        // The last one: the guard keeps the client open, so that its lock is kept.
        assert!(guard.is_held() && admin.exists("a").await);
        drop(guard);
    }
    assert_nothing_left(&admin, &baseline).await;
}

/// `quit()` can hang when the server is away. node.rs, `Node::close`: bounded, then the connection's task is aborted.
#[tokio::test]
async fn trap_12_shutdown_keeps_its_time_when_the_server_is_away() {
    distlock_support::undisturbed(shutdowns_keep_their_time).await;
}

async fn shutdowns_keep_their_time() {
    let within = ms(500);
    for how in ["killed", "frozen", "just killed", "back"] {
        let server = RedisServer::start();
        let tasks = distlock_support::leak::alive_tasks();
        let mut clients: Vec<Client> = Vec::new();
        for n in 0..4 {
            let client = brisk(&server.url()).pool_size(if n == 0 { 16 } else { 1 }).connect().await.unwrap();
            if n % 2 == 0 {
                // Has something to release.
                std::mem::forget(client.reentrant(&format!("lock {n}")).lock().await.unwrap());
            }
            clients.push(client);
        }
        match how {
            "frozen" => server.stop(),
            "back" => server.restart(),
            _ => server.kill9(),
        }
        if how == "killed" {
            // fred has noticed.
            tokio::time::sleep(ms(100)).await;
        }
        for (n, client) in clients.iter().enumerate() {
            let start = Instant::now();
            let outcome = client.shutdown(within).await;
            let took = start.elapsed();
            println!("{how}, client {n}: {outcome:?} after {took:?}");
            assert!(took < within + ms(800), "{how}, client {n}: {took:?}");
            assert!(matches!(outcome, Ok(()) | Err(Error::Timeout { .. })), "{outcome:?}");
            idle(client).await;
        }
        drop(clients);
        let ended = async || distlock_support::leak::alive_tasks() <= tasks;
        eventually("every task has ended", ended).await;
        if how == "frozen" {
            server.cont();
        }
    }
}

/// A demoted server refuses every write for as long as the connection lives. node/connection.rs, `Connection::run`: `READONLY` has the
/// connection made anew, which finds the new primary where the old address leads to it.
#[tokio::test]
async fn trap_16_a_demoted_server_is_left() {
    let new = RedisServer::start();
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let client = bed.connect(brisk(&proxy.url())).await;
        warm(&client).await;
        // The old primary stays, and so do its connections; new ones reach the new one.
        let () = bed.admin.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]).await;
        proxy.set_upstream(new.addr());
        let start = Instant::now();
        let guard = client.reentrant("a").lock().await.unwrap();
        println!("locked {:?} after the demotion", start.elapsed());
        assert!(start.elapsed() < secs(2));
        let admin = Admin::connect(&new).await;
        assert!(admin.exists("a").await);
        guard.unlock().await.unwrap();
        let () = bed.admin.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    })
    .await;
}

/// The same server, demoted and promoted again, its connections untouched.
#[tokio::test]
async fn trap_16_a_server_that_is_promoted_again_is_used_again() {
    let other = RedisServer::start();
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        warm(&client).await;
        let () = bed.admin.cmd(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).await;
        let error = client.reentrant("a").try_lock().await.unwrap_err();
        println!("{error:?}");
        assert!(matches!(&error, Error::Server { message } if message.starts_with("READONLY")), "{error:?}");
        assert!(error.is_retryable() && !error.outcome_unknown());
        let lock = client.reentrant("a");
        let waiting = tokio::spawn(async move { (lock.lock().await, Instant::now()) });
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished(), "it waits for the server to be promoted");
        let () = bed.admin.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        let promoted = Instant::now();
        let (guard, granted) = waiting.await.unwrap();
        println!("locked {:?} after the promotion", granted - promoted);
        assert!(granted - promoted < secs(1));
        guard.unwrap().unlock().await.unwrap();
    })
    .await;
}
