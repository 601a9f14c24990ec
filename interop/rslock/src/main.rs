//! An rslock client in its own process, which takes one JSON request per line: see interop/README.md.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rslock::{Lock, LockError, LockManager};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::Mutex;

#[derive(Default)]
struct Held {
    locks: HashMap<u64, Lock>,
    next: u64,
}

/// rslock's timeouts cannot be set: 0.5 s for a reply, 1 s for a connection. A paused tokio clock keeps them from
/// firing. The paused clock would advance by itself only while no blocking task runs, and the read of standard input is
/// a blocking task.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    let urls = std::env::args().nth(1).expect("the servers' urls");
    let manager = |tries| {
        let mut manager = LockManager::new(urls.split(',').collect());
        manager.set_retry(tries, Duration::from_millis(200));
        manager
    };
    let (once, held) = (manager(1), Arc::new(Mutex::new(Held::default())));
    println!("{}", json!({"ready": true, "version": "rslock 0.10.0"}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).expect("a request");
        let (once, held) = (once.clone(), Arc::clone(&held));
        tokio::spawn(async move {
            let value = act(&request, &once, &held).await;
            println!("{}", json!({"id": request["id"], "ok": true, "value": value}));
        });
    }
}

/// Sleeps by the system's clock, since tokio's is paused.
async fn sleep(time: Duration) {
    tokio::task::spawn_blocking(move || std::thread::sleep(time)).await.expect("it sleeps");
}

async fn act(request: &Value, once: &LockManager, held: &Mutex<Held>) -> Value {
    let name = request["name"].as_str().unwrap_or_default();
    let ms = |field: &str| Duration::from_millis(request[field].as_u64().unwrap_or_default());
    let handle = request["handle"].as_u64().unwrap_or_default();
    match request["op"].as_str().unwrap_or_default() {
        "lock" => {
            let until = Instant::now() + ms("wait_ms");
            loop {
                match once.lock(name, ms("ttl_ms")).await {
                    Ok(lock) => {
                        let mut held = held.lock().await;
                        held.next += 1;
                        let number = held.next;
                        held.locks.insert(number, lock);
                        return json!(number);
                    }
                    // rslock does not remove the key of a lock that was granted too late. Wait until the key expires.
                    Err(LockError::TtlExceeded) => sleep(ms("ttl_ms")).await,
                    Err(_) if Instant::now() < until => sleep(Duration::from_millis(100)).await,
                    Err(_) => return Value::Null,
                }
            }
        }
        "extend" => {
            let lock = held.lock().await.locks.remove(&handle).expect("a lock that was taken");
            match once.extend(&lock, ms("ttl_ms")).await {
                Ok(longer) => {
                    held.lock().await.locks.insert(handle, longer);
                    json!(true)
                }
                Err(_) => {
                    held.lock().await.locks.insert(handle, lock);
                    json!(false)
                }
            }
        }
        "release" => {
            let lock = held.lock().await.locks.remove(&handle).expect("a lock that was taken");
            // rslock's unlock does not report whether it held the lock. An extend that succeeds on most servers shows
            // that it did.
            let had = once.extend(&lock, Duration::from_secs(20)).await.is_ok();
            once.unlock(&lock).await;
            json!(had)
        }
        odd => panic!("no operation {odd:?}"),
    }
}
