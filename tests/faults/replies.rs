//! Replies that none of our scripts returns. They could come from another kind of server, from a proxy that mixes
//! replies up, or from another version.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Acquire, Client, Error, Guard};

use crate::fake::Fake;
use bed::fault::brisk;
use bed::harm::sha;
use bed::{PATIENCE, ends, idle, ms, secs};

/// Replies of every RESP2 and RESP3 type, and some that are malformed. Each ends with `\r\n`.
const SHORT: &[&str] = &[
    "_", "+OK", "+", ":0", ":1", ":-1", ":-2", ":-3", ":-4", "$-1", "$0\r\n", "*-1", "*0", "*1\r\n:1", "*1\r\n:0",
    "*1\r\n:7", "*1\r\n_", "%0", "~0", "#t", "#f", ",3.14", ",inf", ",nan", "-", "-ERR", "@garbage", "",
];

/// More of them, with several lines or with a text.
const LONG: &[&str] = &[
    ":9223372036854775807",
    ":-9223372036854775808",
    "$3\r\nabc",
    "$4\r\n\u{1f512}",
    "*1\r\n*1\r\n*1\r\n*0",
    "*1\r\n-ERR inside",
    "*2\r\n:0\r\n+x",
    "*2\r\n:1\r\n+x",
    "*2\r\n+x\r\n:0",
    "*2\r\n:-2\r\n+odd number",
    "*3\r\n:5\r\n$1\r\na\r\n:1",
    "*3\r\n:5\r\n$1\r\na\r\n$2\r\n-1",
    "%1\r\n+a\r\n:1",
    "~2\r\n:1\r\n:2",
    "(123456789012345678901234567890",
    "=7\r\ntxt:abc",
    "!9\r\nERR bulky",
    "-ERR something",
    "-lower case",
    "-NOSCRIPT again and again",
    "-MOVED 1234 127.0.0.1:1",
    "-ASK 1234 127.0.0.1:1",
    "-CROSSSLOT Keys in request don't hash to the same slot",
    "-CLUSTERDOWN The cluster is down",
    "-EXECABORT x",
    "-NOAUTH Authentication required.",
    "-WRONGTYPE x",
    ">3\r\n+message\r\n+elsewhere\r\n+x",
    "|1\r\n+a\r\n+b\r\n:5",
    "HTTP/1.1 400 Bad Request\r\n",
];

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics outside the test files, in any task.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|at| !at.file().contains("tests/")) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            before(info);
        }));
    });
}

/// For every odd reply, every operation returns a valid value or an error with a text. Nothing panics or hangs, and the
/// client works again when the server replies correctly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_replies_cause_no_panic_and_no_hang() {
    count_panics();
    let tasks = distlock_support::leak::alive_tasks();
    let replies: Vec<_> = SHORT.iter().chain(LONG).map(|reply| format!("{reply}\r\n")).collect();
    let running = replies.chunks(replies.len().div_ceil(8)).map(async |chunk| {
        let fake = Fake::start().await;
        for reply in chunk {
            one(&fake, reply).await;
        }
    });
    futures::future::join_all(running).await;
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something has panicked");
    bed::eventually("every task has ended", async || distlock_support::leak::alive_tasks() <= tasks).await;
}

async fn one(fake: &Fake, reply: &str) {
    fake.always(reply.as_bytes());
    let builder =
        brisk(&fake.url()).retry_attempts(2).command_timeout(ms(150)).configure(|options| options.poll_cap = ms(50));
    // The check of the login's rights at connect also gets the odd reply.
    let connecting = ends(&format!("connect() on {reply:?}"), builder.connect()).await;
    let client = connecting.unwrap_or_else(|error| panic!("{reply:?}: {error:?}"));
    let lock = client.reentrant("a");
    told(reply, "try_lock", lock.try_lock()).await;
    told(reply, "lock_for", lock.lock_for(ms(50))).await;
    told(reply, "a leased lock", lock.acquire(Acquire::new().lease(ms(500)).wait(ms(50)))).await;
    told(reply, "state", lock.state()).await;
    told(reply, "force_unlock", lock.force_unlock()).await;
    told(reply, "release", lock.release(&client.owner())).await;
    let guard = held(fake, &client).await;
    fake.always(reply.as_bytes());
    ends(&format!("renewal on {reply:?}"), client.renew_now()).await;
    told(reply, "extend", guard.extend(secs(2))).await;
    told(reply, "unlock", guard.unlock()).await;
    drop(held(fake, &client).await);
    fake.always(reply.as_bytes());
    tokio::time::sleep(ms(20)).await;
    works_again(fake, &client).await;
    client.shutdown(PATIENCE).await.unwrap();
}

/// Returns a guard, while the server replies correctly.
async fn held(fake: &Fake, client: &Client) -> Guard {
    let acquire = sha(&["common/holds", "reentrant/acquire"]).into_bytes();
    fake.set(move |words| Some(if words.contains(&acquire) { b"_\r\n".to_vec() } else { b":0\r\n".to_vec() }));
    ends("an acquire at a server that is well", async {
        loop {
            match client.reentrant("a").lock().await {
                Ok(guard) => return guard,
                // An odd reply may have been read as the reply to the previous command. Then every reply is taken for
                // that of the command before it.
                Err(error) if error.to_string().contains("unexpected reply") => {}
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    })
    .await
}

async fn works_again(fake: &Fake, client: &Client) {
    drop(held(fake, client).await);
    fake.always(b":0\r\n");
    idle(client).await;
}

/// Asserts that any error has a short text.
async fn told<T>(reply: &str, what: &str, work: impl Future<Output = Result<T, Error>>) {
    if let Err(error) = ends(&format!("{what} on {reply:?}"), work).await {
        let text = error.to_string();
        assert!(!text.is_empty() && text.len() < 1000, "{reply:?}: {text}");
        assert!(!format!("{error:?}").is_empty());
    }
}

#[tokio::test]
async fn incomplete_reply_leaves_acquire_in_doubt() {
    count_panics();
    let fake = Fake::start().await;
    let client = brisk(&fake.url()).retry_attempts(2).connect().await.unwrap();
    for reply in ["*1000000000\r\n", "$536870912\r\nabc", "*2\r\n:1\r\n", "+no end", ":12", "%5\r\n+a\r\n"] {
        fake.always(reply.as_bytes());
        let error = client.reentrant("a").try_lock().await.unwrap_err();
        assert!(error.outcome_unknown(), "{reply:?}: {error:?}");
        works_again(&fake, &client).await;
    }
    client.shutdown(PATIENCE).await.unwrap();
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something has panicked");
}
