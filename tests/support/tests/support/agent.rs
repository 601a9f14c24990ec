//! The Java agents carry out requests, with the newest and the oldest Redisson.

use std::time::Duration;

use distlock_support::agent::{Agent, AgentOptions, Kind, VERSIONS, monotonic_ns};
use distlock_support::child;
use distlock_support::{RedisServer, reaper};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::json;

use crate::until;

const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(600);

/// A server with a connection of the test, and its URL without a password.
struct Redis {
    url: String,
    _server: RedisServer,
}

impl Redis {
    async fn start() -> (Redis, MultiplexedConnection) {
        Self::over(RedisServer::start()).await
    }

    async fn over(server: RedisServer) -> (Redis, MultiplexedConnection) {
        let connection = crate::connection(&server.url()).await;
        (Redis { url: format!("redis://{}", server.addr()), _server: server }, connection)
    }
}

async fn pair(url: &str, options: AgentOptions) -> (Agent, Agent) {
    tokio::join!(Agent::start(url, options.clone()), Agent::start(url, options))
}

#[tokio::test]
async fn release_passes_lock_to_other_agent() {
    for version in VERSIONS {
        let (redis, mut admin) = Redis::start().await;
        let (a, b) = pair(&redis.url, AgentOptions::version(version)).await;
        assert_eq!((a.version(), b.version()), (version, version));
        assert_ne!(a.id(), b.id());
        assert_eq!(a.pid(), b.pid(), "agents of one version share a process");

        let (mine, theirs) = (a.at(Kind::Reentrant, "job", 7), b.at(Kind::Reentrant, "job", 7));
        mine.lock().await.unwrap();
        mine.lock().await.unwrap();
        assert_eq!(mine.hold_count().await, Ok(2));
        assert_eq!(admin.hgetall::<_, Vec<(String, i64)>>("job").await.unwrap(), [(format!("{}:7", a.id()), 2)]);
        assert!((10_000..=30_000).contains(&mine.ttl().await.unwrap()), "the default watchdog");
        assert_eq!(theirs.try_lock().await, Ok(false));
        assert_eq!(theirs.is_held().await, Ok(false));
        assert_eq!(theirs.unlock().await.unwrap_err().error, "IllegalMonitorStateException");
        // Another thread of the same client is another holder.
        assert_eq!(a.at(Kind::Reentrant, "job", 8).try_lock().await, Ok(false));

        let mut waiting = theirs.start_try_lock(LONG, None);
        assert_eq!(waiting.within(SOON).await, None);
        // A blocked thread does not delay other threads or asynchronous calls.
        assert_eq!(b.at(Kind::Reentrant, "job", 9).is_locked().await, Ok(true));
        mine.unlock().await.unwrap();
        assert_eq!(waiting.within(SOON).await, None);
        let before = monotonic_ns();
        mine.unlock().await.unwrap();
        let reply = waiting.await.unwrap();
        assert_eq!(reply.value, true);
        assert!(reply.t0 < before && before < reply.t1 && reply.t1 < monotonic_ns(), "one clock: {before} {reply:?}");
        assert_eq!(admin.hgetall::<_, Vec<(String, i64)>>("job").await.unwrap(), [(b.holder(Kind::Reentrant, 7), 1)]);

        assert_eq!(mine.try_lock_within(SOON).await, Ok(false));
        assert_eq!(mine.force_unlock().await, Ok(true));
        assert_eq!(mine.is_locked().await, Ok(false));
        assert_eq!(mine.try_lock_for(SOON, LONG).await, Ok(true));
        assert!((300_000..=600_000).contains(&mine.ttl().await.unwrap()), "the lease of the call");
        a.close().await;
        assert_eq!(mine.try_lock().await.unwrap_err().error, "IllegalStateException");
        assert_eq!(theirs.is_locked().await, Ok(true), "an agent goes on when another is closed");
    }
}

#[tokio::test]
async fn agent_supports_thread_ids_semaphores_latches_and_loops() {
    for version in VERSIONS {
        let (redis, mut admin) = Redis::over(RedisServer::builder().password("secret").start()).await;
        let (prefix, password) = (Some("app:".to_owned()), Some("secret".to_owned()));
        let a = Agent::start(&redis.url, AgentOptions { prefix, password, ..AgentOptions::version(version) }).await;
        let ask = async |request| a.call(request).await.unwrap().value;

        ask(json!({"op": "lock_as", "name": "as", "tid": 41})).await;
        assert!(admin.hexists::<_, _, bool>("app:as", format!("{}:41", a.id())).await.unwrap());
        // Without a wait, because a short one may end before Redisson has subscribed, which is an error.
        assert_eq!(ask(json!({"op": "try_lock_as", "name": "as", "tid": 42, "wait_ms": 0})).await, false);
        assert_eq!(ask(json!({"op": "is_held_by_thread", "name": "as", "tid": 41})).await, true);
        let waiting = a.start_call(json!({"op": "lock_as", "name": "as", "tid": 43, "lease_ms": 600_000}));
        ask(json!({"op": "unlock_as", "name": "as", "tid": 41})).await;
        waiting.await.unwrap();
        let error = a.call(json!({"op": "unlock_as", "name": "as", "tid": 41})).await.unwrap_err();
        assert_eq!(error.error, "IllegalMonitorStateException");

        assert_eq!(ask(json!({"op": "sem_set", "name": "s", "permits": 2})).await, true);
        ask(json!({"op": "sem_acquire", "name": "s"})).await;
        assert_eq!(ask(json!({"op": "sem_try", "name": "s", "permits": 2, "wait_ms": 0})).await, false);
        ask(json!({"op": "sem_release", "name": "s"})).await;
        assert_eq!(ask(json!({"op": "sem_try", "name": "s", "permits": 2})).await, true);
        assert_eq!(ask(json!({"op": "sem_available", "name": "s"})).await, 0);

        assert_eq!(ask(json!({"op": "permit_set", "name": "p", "permits": 1})).await, true);
        let permit = ask(json!({"op": "permit_acquire", "name": "p", "lease_ms": 60_000})).await;
        assert_eq!(permit.as_str().map(str::len), Some(32));
        assert!(ask(json!({"op": "permit_try", "name": "p"})).await.is_null());
        assert_eq!(ask(json!({"op": "permit_renew", "name": "p", "permit": permit, "lease_ms": 120_000})).await, true);
        assert_eq!(ask(json!({"op": "permit_release", "name": "p", "permit": permit})).await, true);
        assert_eq!(ask(json!({"op": "permit_available", "name": "p"})).await, 1);

        assert_eq!(ask(json!({"op": "latch_set", "name": "l", "count": 1})).await, true);
        assert_eq!(ask(json!({"op": "latch_await", "name": "l", "wait_ms": 2_000})).await, false);
        let mut waiting = a.start_call(json!({"op": "latch_await", "name": "l", "thread": 2}));
        assert_eq!(waiting.within(SOON).await, None);
        ask(json!({"op": "latch_down", "name": "l"})).await;
        waiting.await.unwrap();
        assert_eq!(ask(json!({"op": "latch_count", "name": "l"})).await, 0);

        let error = a.call(json!({"op": "nonsense", "name": "l"})).await.unwrap_err();
        assert_eq!(error.error, "IllegalArgumentException");

        let loops = (1..=3).map(|thread| a.counter_loop(&a.at(Kind::Fair, "turn", thread), "n", 20));
        for done in futures::future::join_all(loops).await {
            let value = done.unwrap().value;
            assert_eq!((&value["rounds"], value["waits_us"].as_array().unwrap().len()), (&json!(20), 20));
        }
        assert_eq!(admin.get::<_, i64>("app:n").await.unwrap(), 60);
        let bench = ask(json!({"op": "bench_uncontended", "prefix": "own", "tasks": 4, "seconds": 0.3})).await;
        assert!(bench["pairs"].as_u64().unwrap() > 4 && bench["worst_us"].as_f64() >= bench["p50_us"].as_f64());
        let bench = json!({"op": "bench_contended", "name": "one", "tasks": 4, "seconds": 0.3, "hold_us": 100});
        assert_eq!(ask(bench).await["counts"].as_array().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn many_locks_are_held_renewed_and_released() {
    futures::future::join_all(VERSIONS.map(hold_many)).await;
}

/// Uses its own agent, because a client that has locked and unlocked much before renews irregularly (see the README).
async fn hold_many(version: &str) {
    let (redis, mut admin) = Redis::start().await;
    let a = Agent::start(&redis.url, AgentOptions::version(version)).await;
    a.hold_many("many", 2000, 5).await.unwrap();
    assert!(admin.hexists::<_, _, bool>("many1999", a.holder(Kind::Reentrant, 5)).await.unwrap());
    assert_eq!(at_each(&admin, &["PEXPIRE", "600000"]).await, (1, 1), "each lock is held");
    // A renewal cuts the ten minutes to the watchdog's half a minute.
    let is_renewed = async || {
        let (least, most) = at_each(&admin, &["PTTL"]).await;
        assert!(least > 0, "{version}: no lock has run out");
        most <= 30_000
    };
    until(&format!("{version} to renew 2000 locks"), is_renewed).await;
    assert_eq!(at_each(&admin, &["PEXPIRE", "600000"]).await, (1, 1), "each lock is held");
    assert!(a.mem().await > 1_000_000);
    a.release_many("many", 2000, 5).await.unwrap();
    assert_eq!(at_each(&admin, &["PTTL"]).await, (-2, -2), "no lock is left");
}

/// The least and the greatest reply to a command at each of the 2000 locks.
async fn at_each(admin: &MultiplexedConnection, command: &[&str]) -> (i64, i64) {
    const SCRIPT: &str = "
local replies = {}
for n = 0, 1999 do replies[n + 1] = redis.call(ARGV[1], 'many' .. n, unpack(ARGV, 2)) end
table.sort(replies)
return {replies[1], replies[2000]}";
    let mut admin = admin.clone();
    redis::cmd("EVAL").arg(SCRIPT).arg(0).arg(command).query_async(&mut admin).await.unwrap()
}

#[tokio::test]
async fn jvm_output_is_not_mistaken_for_reply() {
    let (redis, _admin) = Redis::start().await;
    let noisy = AgentOptions { jvm: vec!["-Xlog:gc*,class+load:stdout".into()], ..AgentOptions::default() };
    let agent = Agent::start(&redis.url, noisy).await;
    assert_eq!(agent.at(Kind::Reentrant, "job", 1).try_lock().await, Ok(true));
    assert!(agent.mem().await > 0);
    assert!(agent.log().contains("[gc"), "{}", agent.log());
    agent.close().await;
}

#[tokio::test]
async fn agent_can_be_interrupted_stopped_and_killed() {
    let (redis, mut admin) = Redis::start().await;
    let (a, b) = pair(&redis.url, AgentOptions::default().in_own_process()).await;
    let mine = a.at(Kind::Reentrant, "x", 1);
    mine.lock().await.unwrap();
    let theirs = b.at(Kind::Reentrant, "x", 1);
    let waiting = theirs.start("lock", json!({"interruptibly": true}));
    until("the thread sleeps", async || b.sleeps(1).await).await;
    assert_eq!(b.interrupt(1).await, Ok(true));
    // Redisson wraps the exception if the interrupt arrives during a command.
    let interrupted = waiting.await.unwrap_err().error;
    assert!(["InterruptedException", "RedisException"].contains(&interrupted.as_str()), "{interrupted}");
    // The thread has replied, and is idle a moment later.
    until("a thread that does nothing", async || b.interrupt(1).await == Ok(false)).await;
    assert_eq!(theirs.try_lock().await, Ok(false));

    b.stop();
    let mut waiting = b.start_call(json!({"op": "ping"}));
    assert_eq!(waiting.within(SOON).await, None);
    b.cont();
    assert_eq!(waiting.await.unwrap().value, "pong");

    let waiting = mine.start("latch_await", json!({}));
    let pid = a.pid();
    a.kill9().await;
    assert_eq!(waiting.await.unwrap_err().error, "AgentGone");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(admin.exists::<_, bool>("x").await.unwrap(), "left as a crash leaves it");

    let pid = b.pid();
    drop((b, theirs));
    until("the end of the process with the agent's handle", async || reaper::has_ended(pid)).await;
}

#[tokio::test]
async fn child_with_a_stopped_agent() {
    if !child::is_child() {
        return;
    }
    child::init();
    let server = RedisServer::start();
    let agent = Agent::start(&server.url(), AgentOptions::default().in_own_process()).await;
    agent.stop();
    child::say(&agent.pid().to_string());
    std::future::pending::<()>().await;
}

/// A stopped agent does not notice the end of its input.
#[tokio::test]
async fn stopped_agent_dies_with_its_test_process() {
    crate::end_with_their_process("agent::child_with_a_stopped_agent").await;
}
