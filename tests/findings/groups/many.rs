use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock, Error, MultiLock};

use bed::{Bed, eventually, idle, ms, reentrant, secs, waiter};

/// No script takes more locks than that.
const MOST: usize = 500;

type Slow = Vec<(i64, i64, i64, Vec<String>, String, String)>;

fn long_list(client: &Client, count: usize) -> MultiLock {
    client.multi((0..count).map(|n| format!("m{n:05}")))
}

/// The longest command, and the most keys of any script.
async fn longest(bed: &Bed) -> (Duration, usize) {
    let slow: Slow = bed.admin.cmd(&["SLOWLOG", "GET", "1000"]).await;
    let scripts = slow.iter().filter(|(_, _, _, words, ..)| words[0].starts_with("EVAL"));
    scripts.fold((Duration::ZERO, 0), |(most, keys), (_, _, micros, words, ..)| {
        (most.max(Duration::from_micros(*micros as u64)), keys.max(words[2].parse().unwrap_or(0)))
    })
}

/// 22: 10 000 names are taken by several scripts, none of which keeps everybody else waiting for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_22_long_lists_are_taken_in_parts() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = long_list(&client, 10_000);
        bed.admin.config_set("slowlog-log-slower-than", "500").await;
        bed.admin.config_set("slowlog-max-len", "1000").await;
        let mut worst = (Duration::MAX, 0);
        for _ in 0..3 {
            let () = bed.admin.cmd(&["SLOWLOG", "RESET"]).await;
            let began = Instant::now();
            let guard = lock.lock().await.unwrap();
            let took = began.elapsed();
            let (long, keys) = longest(bed).await;
            println!("10 000 names in {took:?}; the longest script {long:?}, of {keys} keys at the most");
            worst = (worst.0.min(long), worst.1.max(keys));
            assert_eq!(guard.members().len(), 10_000);
            guard.unlock().await.unwrap();
            idle(&client).await;
            assert!(bed.admin.keys().await.is_empty());
        }
        assert!(worst.1 <= MOST, "a script of {} keys", worst.1);
        assert!(worst.0 < ms(20), "{worst:?}");
    })
    .await;
}

/// 22: taken in parts, it is still all or nothing, and who waits for a late one takes the others by scripts too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_22_parts_are_all_or_nothing() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let lock = long_list(&client, 1_300);
        let late = other.reentrant("m01200").lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.lock_for(ms(700)).await.unwrap().is_none());
        idle(&client).await;
        assert_eq!(bed.admin.keys().await, ["m01200"]);
        let waiting = waiter(lock.clone());
        tokio::time::sleep(ms(1_500)).await;
        let nothing = async || bed.admin.keys().await == ["m01200"];
        eventually("it waits without holding anything", nothing).await;
        bed.admin.reset_stats().await;
        let freed = Instant::now();
        late.unlock().await.unwrap();
        let (guard, when) = waiting.await.unwrap();
        let sent = bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
        println!("{:?} after the release, {sent} commands", when - freed);
        assert_eq!(guard.members().len(), 1_300);
        assert!(sent <= 20, "{sent} commands");
        guard.unlock().await.unwrap();
        // Two with reversed lists, and one in the middle.
        let names: Vec<_> = (0..1_300).map(|n| format!("m{n:05}")).collect();
        let reversed = other.multi(names.iter().rev());
        let middle = other.multi(&names[400..900]);
        let began = Instant::now();
        let tasks = [lock, reversed, middle].map(|lock| {
            tokio::spawn(async move {
                for _ in 0..5 {
                    lock.acquire(Acquire::new().wait(secs(60)))
                        .await
                        .unwrap()
                        .expect("gets on")
                        .unlock()
                        .await
                        .unwrap();
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        println!("fifteen sections in {:?}", began.elapsed());
    })
    .await;
}

/// 22: a list without bounds is refused.
#[tokio::test]
async fn finding_22_too_long_a_list_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let refused = long_list(&client, 70_000).try_lock().await;
        let Err(Error::Config { what }) = refused else { panic!("{:?}", refused.map(|guard| guard.is_some())) };
        assert!(what.contains("65536"), "{what}");
        // A lock that is listed many times is one.
        let twice = client.multi((0..70_000).map(|n| format!("n{}", n % 10)));
        assert_eq!(twice.locks().len(), 10);
        twice.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}
