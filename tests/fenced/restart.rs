//! A server that is killed and restarted, with and without its data (F9 in `tests/README.md`).

use distlock::{Client, Flavour, Guard};
use distlock_support::RedisServer;
use parking_lot::Mutex;

use crate::rig::{Section, Storage, enter, faults, token};
use bed::{Bed, eventually, run_on, secs};

/// Runs sections of two clients before and after a `kill -9` of the server. Returns the history and the writes that the
/// storage refused.
async fn around_a_restart(bed: &Bed) -> (Vec<Section>, Vec<u64>) {
    let connect = async || bed.connect(bed.builder().watchdog(secs(300))).await;
    let clients = [connect().await, connect().await];
    let (history, storage, mut refused) = (Mutex::default(), Storage::default(), Vec::new());
    let mut write = |guard: &Guard| {
        if !storage.write(token(guard)) {
            refused.push(token(guard));
        }
    };
    let lock = |n: usize| clients[n % 2].fenced("job");
    for n in 0..10 {
        if n == 6 {
            bed.server.kill9();
            bed.server.restart();
        }
        // The first acquire after the restart may still meet the broken connection.
        eventually("the client reaches the server", async || lock(n).last_token().await.is_ok()).await;
        let guard = enter(&lock(n), &history).await;
        write(&guard);
        guard.unlock().await.unwrap();
    }
    // A lock that was acquired after the restart is renewed as usual (testLockAfterTimeout).
    let guard = enter(&lock(0), &history).await;
    bed.admin.cmd::<()>(&["PEXPIRE", "job", "20000"]).await;
    assert_eq!(clients[0].renew_now().await.renewed, 1);
    assert!(bed.admin.pttl("job").await > 20_000);
    assert!(guard.is_held() && lock(1).try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    (history.into_inner(), refused)
}

fn make(client: &Client, name: &str) -> std::sync::Arc<dyn distlock::DistLock> {
    client.lock(Flavour::Fenced, name)
}

/// The AOF is written before each reply, so the counter survives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_continue_after_restart_with_aof() {
    run_on(RedisServer::builder().aof(true).arg("--appendfsync", "always").start(), make, async |bed| {
        let (history, refused) = around_a_restart(bed).await;
        assert_eq!(faults(&history), Vec::<String>::new());
        assert_eq!(refused, Vec::<u64>::new());
        assert_eq!(history.last().map(|section| section.token), Some(11));
    })
    .await;
}

/// Without the AOF, numbers restart at 1, which no client can detect. The checker finds numbers that occur twice, and
/// the storage refuses even current holders. M3 needs the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_restart_without_aof_and_checker_detects_it() {
    run_on(RedisServer::start(), make, async |bed| {
        let (history, refused) = around_a_restart(bed).await;
        assert_eq!(refused, [1, 2, 3, 4]);
        let found = faults(&history);
        assert!(found.len() >= 5, "{found:?}");
    })
    .await;
}
