//! Nobody waits for one who waits for him: callers with lists in any order (X1; lesson 24, threads 84: #1160, #4050).

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Client, DistLock, Flavour, MultiLock};
use distlock_support::child::{self, Child};
use distlock_support::{Admin, Numbers};

use crate::rig::{Second, fair, member, multi, soon};
use bed::{Bed, Counter, enter, eventually, ms, reentrant, secs};

/// Longer than any wait in a round, and far shorter than for ever.
const STUCK: Duration = secs(20);

/// Rounds of several callers at once, each with a lock of its own over some of the counters it names. The longest wait.
async fn rounds(callers: Vec<(MultiLock, Vec<Arc<Counter>>)>, rounds: u64) -> Duration {
    let tasks: Vec<_> = callers
        .into_iter()
        .enumerate()
        .map(|(n, (lock, counters))| {
            tokio::spawn(async move {
                let mut numbers = Numbers::new(n as u64);
                let mut longest = Duration::ZERO;
                for round in 0..rounds {
                    let began = Instant::now();
                    let guard = tokio::time::timeout(STUCK, lock.lock()).await;
                    let guard = guard.unwrap_or_else(|_| panic!("stuck: {lock:?}, round {round}")).unwrap();
                    longest = longest.max(began.elapsed());
                    assert!(guard.is_held());
                    futures::future::join_all(counters.iter().map(|counter| counter.bump(Duration::ZERO))).await;
                    match numbers.below(4) {
                        0 => drop(guard),
                        _ => drop(guard.unlock().await.unwrap()),
                    }
                }
                longest
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    longest
}

/// Two callers with these lists, the second one's reversed: so many rounds each.
async fn reversed(what: &str, one: Vec<Arc<dyn DistLock>>, mut other: Vec<Arc<dyn DistLock>>, count: u64) {
    other.reverse();
    let counter = Arc::new(Counter::default());
    let began = Instant::now();
    let callers =
        [one, other].map(|locks| (MultiLock::of(locks), vec![Arc::clone(&counter)])).into_iter().collect::<Vec<_>>();
    let longest = rounds(callers, count).await;
    assert_eq!(counter.get(), 2 * count, "{what}");
    println!("{what}: {count} rounds in {:?}, the longest wait {longest:?}", began.elapsed());
}

fn plain(client: &Client) -> Vec<Arc<dyn DistLock>> {
    ["a", "b", "c"].iter().map(|name| client.lock(Flavour::Reentrant, name)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_one_client() {
    reentrant(async |bed| {
        let client = bed.client().await;
        reversed("one client", plain(&client), plain(&client), 1_000).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_two_clients() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        reversed("two clients", plain(&one), plain(&other), 1_000).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_all_flavours() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let all = |client: &Client| -> Vec<_> {
            Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect()
        };
        reversed("all flavours", all(&one), all(&other), 250).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_over_two_servers() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let second = Second::start().await;
        let both = |client: &Client| {
            vec![
                member(client.reentrant("a")),
                member(second.client.reentrant("a")),
                member(client.fair("b")),
                member(second.client.reentrant("b")),
            ]
        };
        reversed("two servers", both(&one), both(&other), 250).await;
        second.end().await;
    })
    .await;
}

/// Five at a table, each needs the forks to both sides; everybody eats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_philosophers() {
    const EACH: u64 = 200;
    reentrant(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let forks: Vec<_> = (0..5).map(|_| Arc::new(Counter::default())).collect();
        let began = Instant::now();
        let callers = (0..5)
            .map(|n| {
                let (left, right) = (n, (n + 1) % 5);
                let lock = clients[n % 2].multi([format!("fork {left}"), format!("fork {right}")]);
                (lock, vec![Arc::clone(&forks[left]), Arc::clone(&forks[right])])
            })
            .collect();
        let longest = rounds(callers, EACH).await;
        println!("philosophers: {EACH} meals each in {:?}, the longest wait {longest:?}", began.elapsed());
        assert!(forks.iter().all(|fork| fork.get() == 2 * EACH));
    })
    .await;
}

/// Reads a counter and writes it back, in steps that are not atomic together.
async fn count_up(admin: &Admin) {
    let count: Option<u64> = admin.cmd(&["GET", "count"]).await;
    let () = admin.cmd(&["SET", "count", &(count.unwrap_or(0) + 1).to_string()]).await;
}

const IN_EACH_PROCESS: u64 = 300;

/// The other process of the test below.
#[tokio::test]
async fn process_with_a_reversed_list() {
    if !child::is_child() {
        return;
    }
    child::init();
    let url = std::env::var("URL").unwrap();
    let (client, admin) = (Client::connect(&url).await.unwrap(), Admin::from_url(&url).await);
    let lock = client.multi(["c", "b", "a"]);
    child::say("ready");
    for _ in 0..IN_EACH_PROCESS {
        let guard = lock.lock().await.unwrap();
        count_up(&admin).await;
        guard.unlock().await.unwrap();
    }
    client.shutdown(secs(5)).await.unwrap();
    child::say("done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_lists_of_two_processes() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let mut other = Child::spawn("order::process_with_a_reversed_list", &[("URL", &bed.server.url())]);
        other.expect("ready").await;
        let lock = client.multi(["a", "b", "c"]);
        let began = Instant::now();
        for _ in 0..IN_EACH_PROCESS {
            let guard = soon("the next round", STUCK, lock.lock()).await.unwrap();
            count_up(&bed.admin).await;
            guard.unlock().await.unwrap();
        }
        other.expect("done").await;
        assert_eq!(bed.admin.cmd::<u64>(&["GET", "count"]).await, 2 * IN_EACH_PROCESS);
        println!("two processes: {IN_EACH_PROCESS} rounds each in {:?}", began.elapsed());
        let () = bed.admin.cmd(&["DEL", "count"]).await;
        assert!(other.wait().await.success());
    })
    .await;
}

/// Somebody has b and waits for a, by hand, in the wrong order. How long until it had a, beside this multi lock over both.
async fn against_the_order(bed: &Bed, ours: MultiLock, theirs: [Arc<dyn DistLock>; 2], owned: bool) -> Duration {
    let [a, b] = theirs;
    let client = bed.client().await;
    let first = b.lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        let me = client.owner();
        let guard = if owned { enter(&ours, &me).await } else { ours.lock().await.unwrap() };
        assert!(guard.members().iter().all(|member| member.is_held));
        guard.unlock().await.unwrap();
    });
    // Ours waits for b; with a in its hands, where it took that.
    if owned {
        eventually("it has a", async || bed.admin.exists("a").await).await;
    }
    eventually("it waits for b", async || !bed.admin.channels().await.is_empty()).await;
    let began = Instant::now();
    let second = soon("a comes free", secs(15), a.lock()).await.unwrap();
    let took = began.elapsed();
    assert!(!waiting.is_finished());
    second.unlock().await.unwrap();
    first.unlock().await.unwrap();
    soon("ours goes on", secs(15), waiting).await.unwrap();
    took
}

/// Against callers of another order (Redisson's multi lock takes its locks in the order of the list), it holds nothing while
/// it waits, or not for long: both get on.
#[tokio::test]
async fn one_who_takes_them_in_another_order_gets_on() {
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let hand = |flavour| [other.lock(flavour, "a"), other.lock(flavour, "b")];
        // By one script: all or nothing, so it has nothing while it waits.
        let took = against_the_order(bed, one.multi(["a", "b"]), hand(Flavour::Reentrant), false).await;
        println!("plain ones: {took:?}");
        assert!(took < ms(900), "{took:?}");
        let took = against_the_order(bed, one.multi(["a", "b"]), hand(Flavour::Reentrant), true).await;
        println!("as an owner: {took:?}");
        assert!(took > ms(100) && took < secs(5), "{took:?}");
        let took = against_the_order(bed, fair(&one, &["a", "b"]), hand(Flavour::Fair), true).await;
        println!("fair ones: {took:?}");
        assert!(took > ms(100) && took < secs(5), "{took:?}");
        let mixed = multi(&one, &[(Flavour::Write, "a"), (Flavour::Spin, "c"), (Flavour::Reentrant, "b")]);
        let took =
            against_the_order(bed, mixed, [other.lock(Flavour::Write, "a"), other.lock(Flavour::Reentrant, "b")], true)
                .await;
        println!("mixed ones: {took:?}");
        assert!(took > ms(100) && took < secs(5), "{took:?}");
    })
    .await;
}

/// Members that others want one by one, all the time: it comes to its turn all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_not_starve_beside_those_who_want_one_member() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let counters = Arc::new([Counter::default(), Counter::default()]);
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let singles: Vec<_> = (0..4_usize)
            .map(|n| {
                let lock = other.reentrant(["a", "b"][n % 2]);
                let (counters, done) = (Arc::clone(&counters), Arc::clone(&done));
                tokio::spawn(async move {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let guard = lock.lock().await.unwrap();
                        counters[n % 2].bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                    }
                })
            })
            .collect();
        let mut waits = Vec::new();
        for lock in [client.multi(["a", "b"]), client.multi(["b", "a", "c"])] {
            for _ in 0..10 {
                let began = Instant::now();
                let guard = soon("a turn", STUCK, lock.lock()).await.unwrap();
                waits.push(began.elapsed());
                tokio::join!(counters[0].bump(ms(0)), counters[1].bump(ms(0)));
                guard.unlock().await.unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        for single in singles {
            single.await.unwrap();
        }
        println!("waits beside four who want one member: median {:?}", bed::median(waits));
    })
    .await;
}

/// Again and again, both ways at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_many_of_another_order_both_make_progress() {
    const EACH: u64 = 20;
    reentrant(async |bed| {
        let (one, other) = (bed.client().await, bed.client().await);
        let counter = Arc::new(Counter::default());
        let theirs = tokio::spawn({
            let counter = Arc::clone(&counter);
            async move {
                for _ in 0..EACH {
                    let b = soon("b", STUCK, other.reentrant("b").lock()).await.unwrap();
                    tokio::time::sleep(ms(2)).await;
                    let a = soon("a", STUCK, other.reentrant("a").lock()).await.unwrap();
                    counter.bump(Duration::ZERO).await;
                    a.unlock().await.unwrap();
                    b.unlock().await.unwrap();
                }
            }
        });
        rounds(vec![(one.multi(["a", "b"]), vec![Arc::clone(&counter)])], EACH).await;
        theirs.await.unwrap();
        assert_eq!(counter.get(), 2 * EACH);
    })
    .await;
}
