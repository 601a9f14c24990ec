//! Traps 8 and 12: connections that are silent or outlive their client.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use distlock::Error;
use distlock_support::leak::alive_tasks;
use distlock_support::proxy::Action;
use distlock_support::{Admin, RedisServer};

use bed::fault::{brisk, script, warm};
use bed::{becomes, builder, ends, eventually, idle, ms, reentrant, secs};

/// fred does not notice a silent connection while commands are written to it. After two timeouts in a row, the
/// connection is replaced (node/connection.rs, `Connection::run`).
#[tokio::test]
async fn trap_08_a_silent_connection_is_replaced_under_steady_traffic() {
    reentrant(async |bed| {
        let proxy = bed.proxy();
        warm(&bed.still_client().await).await;
        let client = bed.connect(brisk(&proxy.url()).watchdog(secs(3600))).await;
        // The proxy withholds every further reply on this connection. Other connections are not affected.
        let silent = proxy.on_request(script("acquire"), Action::HangReply);
        let mut requests = Vec::new();
        let succeeded = Arc::new(AtomicBool::new(false));
        eventually("a request succeeds under steady traffic", async || {
            let (lock, success) = (client.reentrant(&format!("lock {}", requests.len())), Arc::clone(&succeeded));
            requests.push(tokio::spawn(async move {
                match lock.try_lock().await {
                    Ok(guard) => success.store(guard.is_some(), Relaxed),
                    Err(error) => assert!(error.outcome_unknown(), "{error:?}"),
                }
            }));
            // This is shorter than fred's own timeout.
            tokio::time::sleep(ms(50)).await;
            succeeded.load(Relaxed)
        })
        .await;
        assert!(silent.has_fired());
        for request in requests {
            ends("a request", request).await.unwrap();
        }
        // Commands that ran unseen on the silent connection are undone.
        becomes("keys", Vec::<String>::new(), async || bed.admin.keys().await).await;
    })
    .await;
}

/// `quit()` can hang when the server is unreachable. So the connection's task is aborted after a time limit (node.rs,
/// `Node::close`). If releases are pending, the shutdown returns a timeout, but the client is closed, and the locks end
/// with their leases. `tests/sim/timing/client.rs` checks when a shutdown ends.
#[tokio::test]
async fn trap_12_a_shutdown_ends_when_the_server_is_away() {
    for how in ["killed", "frozen", "back"] {
        let server = RedisServer::start();
        let tasks = alive_tasks();
        let mut clients = Vec::new();
        for n in 0..4 {
            let pool_size = if n == 0 { 16 } else { 1 };
            let client = builder(&server.url()).pool_size(pool_size).connect().await.unwrap();
            let lock = client.reentrant(&format!("lock {n}"));
            clients.push((client, if n % 2 == 0 { Some(lock.lock().await.unwrap()) } else { None }));
        }
        match how {
            "frozen" => server.stop(),
            "back" => server.restart(),
            _ => server.kill9(),
        }
        for (client, guard) in &clients {
            let outcome = ends(&format!("a shutdown, {how}"), client.shutdown(ms(500))).await;
            let late = matches!(outcome, Err(Error::Timeout { .. }));
            assert!(late || outcome.is_ok() && (guard.is_none() || how != "frozen"), "{how}: {outcome:?}");
            assert!(guard.as_ref().is_none_or(|guard| !guard.is_held()), "{how}: held after the shutdown");
            idle(client).await;
        }
        drop(clients);
        eventually("every task has ended", async || alive_tasks() <= tasks).await;
        if how == "frozen" {
            server.cont();
            let admin = Admin::connect(&server).await;
            becomes("keys", Vec::<String>::new(), async || admin.keys().await).await;
        }
    }
}
