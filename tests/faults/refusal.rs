//! Servers that refuse.

use std::time::Instant;

use distlock::{Acquire, DistLock as _, Error, Flavour, Released};
use distlock_support::{Admin, RedisServer};

use crate::fake::Fake;
use bed::fault::{brisk, count, refused, told_and_left_alone, warm};
use bed::{enter, eventually, idle, ms, reentrant, run_on, secs};

/// A refusal says nothing of the commands that are under way behind it on the same connection: one that the server then
/// carried out must not be reported as refused, or what it took would stay taken.
#[tokio::test]
async fn a_refusal_is_of_one_command_only() {
    let fake = Fake::start().await;
    let client = brisk(&fake.url()).connect().await.unwrap();
    for code in ["LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOAUTH", "OOM", "ERR"] {
        let mut waiting = false;
        let both = format!("-{code} and so on\r\n_\r\n").into_bytes();
        // Silent until the second one has come.
        fake.set(move |words| {
            let acquire = words.contains(&b"a".to_vec()) || words.contains(&b"b".to_vec());
            match (acquire, std::mem::replace(&mut waiting, acquire)) {
                (true, false) => None,
                (true, true) => Some(both.clone()),
                _ => Some(b":0\r\n".to_vec()),
            }
        });
        let (a, b) = (client.reentrant("a"), client.reentrant("b"));
        let (first, second) = tokio::join!(a.try_lock(), b.try_lock());
        refused(first, code);
        let guard = second.unwrap_or_else(|error| panic!("beside {code}: {error:?}"));
        fake.always(b":0\r\n");
        guard.expect("nil means held").unlock().await.unwrap();
    }
    client.shutdown(secs(1)).await.unwrap();
}

/// Out of memory: nothing is written, nothing is tried again, and what is held can be kept and released.
#[tokio::test]
async fn oom_refuses_acquires_and_lets_releases_through() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url())).await;
        warm(&client).await;
        let (held, free) = (client.reentrant("held"), client.reentrant("free"));
        let guard = held.lock().await.unwrap();
        // Of an owner that others may use, only the server knows the count.
        let me = client.owner();
        let known: Vec<_> = Flavour::ALL.iter().map(|of| (of, client.lock(*of, &format!("known {of}")))).collect();
        for (_, lock) in &known {
            drop(enter(&**lock, &me).await.into_owner());
        }
        bed.admin.config_set("maxmemory", "1").await;
        bed.admin.reset_stats().await;
        refused(free.try_lock().await, "OOM");
        refused(free.lock().await, "OOM");
        refused(free.lock_for(secs(5)).await, "OOM");
        assert_eq!(bed.admin.calls("evalsha").await, 3, "not tried again");
        let owner = client.owner();
        refused(free.acquire(Acquire::new().owner(&owner)).await, "OOM");
        assert!(!bed.admin.exists("free").await);
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (1, 0, 0));
        assert!(free.state().await.is_ok_and(|state| !state.is_locked()) && held.is_locked().await.unwrap());
        refused(guard.extend(ms(500)).await.map(|()| None::<()>), "OOM");
        guard.extend(secs(60)).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        for (flavour, lock) in &known {
            let released = lock.release(&me).await;
            assert_eq!(released.unwrap_or_else(|error| panic!("{flavour}: {error}")), Released::Free, "{flavour}");
        }
        assert!(!free.force_unlock().await.unwrap());
        bed.admin.config_set("maxmemory", "0").await;
        free.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A key of another type is told as such, and not touched, whatever is asked of it.
#[tokio::test]
async fn a_key_of_another_type_is_told_and_left_alone() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let makers: [&[&str]; 5] = [
            &["SET", "key", "x"],
            &["RPUSH", "key", "x"],
            &["SADD", "key", "x"],
            &["ZADD", "key", "1", "x"],
            &["XADD", "key", "1-1", "a", "b"],
        ];
        for make in makers {
            told_and_left_alone(bed, &client, Flavour::Reentrant, make).await;
        }
    })
    .await;
}

/// A release that comes upon a key of another type.
#[tokio::test]
async fn a_release_on_a_key_of_another_type_is_an_error() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let guard = client.reentrant("key").lock().await.unwrap();
        let () = bed.admin.cmd(&["SET", "key", "x"]).await;
        let error = guard.unlock().await.unwrap_err();
        assert!(matches!(&error, Error::WrongType { .. }), "{error:?}");
        assert_eq!(bed.admin.cmd::<String>(&["GET", "key"]).await, "x");
        let () = bed.admin.cmd(&["DEL", "key"]).await;
        idle(&client).await;
    })
    .await;
}

/// A server that loads its data: acquires that may wait are tried again until it is done, and what was held before the
/// restart is held still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_passes() {
    let slow = [("--key-load-delay", "500"), ("--loading-process-events-interval-bytes", "1024")];
    let builder =
        slow.iter().fold(RedisServer::builder().aof(true).arg("--appendfsync", "always"), |builder, (name, value)| {
            builder.arg(name, value)
        });
    run_on(
        builder.start(),
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let fill = "for i = 1, 3000 do redis.call('set', 'filler' .. i, string.rep('x', 100)) end";
            let () = bed.admin.cmd(&["EVAL", fill, "0"]).await;
            let client = bed.connect(brisk(&bed.server.url()).watchdog(secs(10)).retry_attempts(20)).await;
            let held = client.reentrant("held").lock().await.unwrap();
            let () = bed.admin.cmd(&["BGREWRITEAOF"]).await;
            let rewritten = async || {
                let info: String = bed.admin.cmd(&["INFO", "persistence"]).await;
                info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
            };
            eventually("the file is rewritten", rewritten).await;
            let asked = client.clone();
            let asking = tokio::spawn(async move {
                let lock = asked.reentrant("asked");
                let mut loading = 0;
                loop {
                    match lock.try_lock().await {
                        Ok(Some(guard)) if loading > 0 => {
                            guard.unlock().await.unwrap();
                            return loading;
                        }
                        Err(Error::Server { message }) if message.starts_with("LOADING") => loading += 1,
                        Ok(_) | Err(Error::Connection { .. } | Error::Timeout { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                    tokio::time::sleep(ms(10)).await;
                }
            });
            let waited = client.clone();
            let restart = Instant::now();
            bed.server.kill9();
            let waiting =
                tokio::spawn(async move { waited.reentrant("waited").lock().await.map(|guard| guard.is_held()) });
            tokio::task::block_in_place(|| bed.server.restart());
            println!("loaded {:?} after the restart", restart.elapsed());
            assert!(waiting.await.unwrap().unwrap());
            println!("acquired {:?} after the restart", restart.elapsed());
            let loading = tokio::time::timeout(secs(30), asking).await.expect("it is told of the loading").unwrap();
            println!("{loading} times LOADING");
            assert!(held.is_held());
            assert_eq!(client.renew_now().await.lost, 0);
            assert_eq!(held.unlock().await.unwrap(), Released::Free);
            let () = bed.admin.cmd(&["FLUSHALL"]).await;
        },
    )
    .await;
}

/// A server that runs somebody's endless script: acquires are tried again, within their wait.
#[tokio::test]
async fn busy_passes_and_bounds_hold() {
    let server = RedisServer::builder().arg("--busy-reply-threshold", "100").start();
    run_on(
        server,
        |client, name| client.lock(Flavour::Reentrant, name),
        async |bed| {
            let client = bed.connect(brisk(&bed.server.url()).retry_attempts(20)).await;
            warm(&client).await;
            let held = client.reentrant("held").lock().await.unwrap();
            let lock = client.reentrant("a");
            let url = bed.server.url();
            let endless =
                tokio::spawn(async move { Admin::from_url(&url).await.raw(&["EVAL", "while true do end", "0"]).await });
            // Until the threshold nothing is answered at all.
            let busy =
                async || matches!(lock.try_lock().await, Err(Error::Server { message }) if message.starts_with("BUSY"));
            eventually("the server is busy", busy).await;
            let error = lock.try_lock().await.unwrap_err();
            assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
            let start = Instant::now();
            refused(lock.lock_for(ms(300)).await, "BUSY");
            let took = start.elapsed();
            assert!(took >= ms(300) && took < ms(800), "{took:?}");
            let renewed = client.renew_now().await;
            assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (0, 1, 0));
            let waiting = client.clone();
            let waiting = tokio::spawn(async move { (waiting.reentrant("b").lock().await, Instant::now()) });
            tokio::time::sleep(ms(200)).await;
            assert!(!waiting.is_finished());
            let () = bed.admin.cmd(&["SCRIPT", "KILL"]).await;
            let killed = Instant::now();
            let (guard, granted) = waiting.await.unwrap();
            println!("acquired {:?} after the end of the script", granted - killed);
            assert!(granted - killed < secs(1));
            guard.unwrap().unlock().await.unwrap();
            assert!(endless.await.unwrap().is_err());
            assert!(held.is_held());
            held.unlock().await.unwrap();
        },
    )
    .await;
}

/// Too few replicas for a write: passes by itself once they are there, and nothing is written until then.
#[tokio::test]
async fn too_few_replicas_pass() {
    reentrant(async |bed| {
        let client = bed.connect(brisk(&bed.server.url()).retry_attempts(20)).await;
        warm(&client).await;
        bed.admin.config_set("min-replicas-to-write", "1").await;
        refused(client.reentrant("a").try_lock().await, "NOREPLICAS");
        assert_eq!(count(&bed.admin, "a").await, 0);
        let waiting = client.clone();
        let waiting = tokio::spawn(async move { waiting.reentrant("a").lock().await });
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished());
        bed.admin.config_set("min-replicas-to-write", "0").await;
        let guard = tokio::time::timeout(secs(2), waiting).await.expect("tried again").unwrap().unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}
