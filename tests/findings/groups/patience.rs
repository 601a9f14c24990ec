use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Acquire, Client, DistLock, Flavour, MultiLock, Prefer, Striped};
use distlock_support::{Action, Matcher, Proxy};

use super::rig::{Path, by_all, five, patient};
use bed::{enter, eventually, idle, ms, reentrant, rw, secs, waiter};

/// How long a reader is held back, and then some.
const ENOUGH: Duration = ms(2_500);

/// 18: two read halves, on each of which a writer waits: the whole acquire is held back for a second, as each would be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_18_a_multi_lock_of_read_halves_is_held_back_once() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.connect(bed.builder().prefer(Prefer::Writers)).await);
        let me = client.owner();
        let mut first = Vec::new();
        let mut writers = Vec::new();
        for name in ["a", "b", "c"] {
            first.push(enter(&client.rw(name).read(), &me).await);
            writers.push(waiter(other.rw(name).write()));
            let mark = format!("{{{name}}}:rwlock_waiting");
            eventually("a writer is known to wait", async || bed.admin.exists(&mark).await).await;
        }
        let half = |name: &str| -> Arc<dyn DistLock> { Arc::new(client.rw(name).read()) };
        for how in [Acquire::new(), Acquire::new().owner(&client.owner())] {
            let both = MultiLock::of(vec![half("a"), half("b"), half("c")]);
            let began = Instant::now();
            let guard = both.acquire(how.wait(secs(8))).await.unwrap();
            println!("in: {} after {:?}", guard.is_some(), began.elapsed());
            assert!(began.elapsed() < ENOUGH, "{:?}", began.elapsed());
            guard.expect("in").unlock().await.unwrap();
        }
        // Of locks made of locks too.
        let inner: Arc<dyn DistLock> = Arc::new(MultiLock::of(vec![half("a"), half("b")]));
        let began = Instant::now();
        let guard = MultiLock::of(vec![inner, half("c")]).lock_for(secs(8)).await.unwrap().expect("in");
        assert!(began.elapsed() < ENOUGH, "{:?}", began.elapsed());
        guard.unlock().await.unwrap();
        for guard in first {
            guard.unlock().await.unwrap();
        }
        for writer in writers {
            writer.await.unwrap().0.unlock().await.unwrap();
        }
    })
    .await;
}

/// 18: readers that wait in one line for any segment have each waited for as long as they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_18_readers_of_a_striped_lock_wait_side_by_side() {
    rw(async |bed| {
        let (client, other) = (bed.client().await, bed.connect(bed.builder().prefer(Prefer::Writers)).await);
        let me = client.owner();
        let striped = Striped::over(&client, Flavour::Read, "s", 1);
        let first = enter(&client.rw("s:0").read(), &me).await;
        let writer = waiter(other.rw("s:0").write());
        eventually("a writer is known to wait", async || bed.admin.exists("{s:0}:rwlock_waiting").await).await;
        let began = Instant::now();
        let readers: Vec<_> = (0..4).map(|_| waiter(striped.clone())).collect();
        for reader in readers {
            let (guard, when) = reader.await.unwrap();
            println!("in after {:?}", when - began);
            assert!(when - began < ENOUGH, "{:?}", when - began);
            guard.unlock().await.unwrap();
        }
        first.unlock().await.unwrap();
        writer.await.unwrap().0.unlock().await.unwrap();
    })
    .await;
}

/// 18: writers wait on a majority of a RedLock's servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finding_18_a_redlock_reader_is_held_back_once() {
    five(async |five| {
        let user = five.warm(Path::Direct, patient).await;
        let other = five.warm(Path::Direct, |url| patient(url).prefer(Prefer::Writers)).await;
        let readers = five.warm(Path::Direct, patient).await;
        let first = by_all(&readers.over(Flavour::Read, "x"), Acquire::new()).await;
        let mut writers = Vec::new();
        for at in [0, 1, 2, 3] {
            writers.push(waiter(other.clients[at].rw("x").write()));
            let admin = five.admin(at).await;
            eventually("a writer is known to wait", async || admin.exists("{x}:rwlock_waiting").await).await;
        }
        for _ in 0..3 {
            let began = Instant::now();
            let guard = user.over(Flavour::Read, "x").lock_for(secs(20)).await.unwrap();
            println!("in: {} after {:?}", guard.is_some(), began.elapsed());
            assert!(began.elapsed() < ENOUGH, "{:?}", began.elapsed());
            guard.expect("in").unlock().await.unwrap();
        }
        first.unlock().await.unwrap();
        for writer in writers {
            writer.await.unwrap().0.unlock().await.unwrap();
        }
    })
    .await;
}

/// A wait that giving back has taken all of is over: no attempt without a wait follows, which may take a command's whole time.
#[tokio::test]
async fn a_wait_that_giving_back_uses_up_is_over() {
    reentrant(async |bed| {
        let proxy = Proxy::start(bed.server.addr());
        let (client, other) = (bed.connect(Client::builder(&proxy.url())).await, bed.client().await);
        let me = client.owner();
        for name in ["a", "b", "c"] {
            client.reentrant(name).lock().await.unwrap().unlock().await.unwrap();
        }
        idle(&client).await;
        let held = other.reentrant("b").lock().await.unwrap();
        let multi = client.multi(["a", "b", "c"]);
        // a, b and c, and the release of c: never answered within the wait.
        proxy.on_request(Matcher::command("EVALSHA").nth(4), Action::HangReply);
        let began = Instant::now();
        let outcome = multi.acquire(Acquire::new().owner(&me).wait(ms(250))).await;
        println!("{:?} after {:?}", outcome.as_ref().map(Option::is_some), began.elapsed());
        assert!(began.elapsed() < secs(2), "{outcome:?} after {:?}", began.elapsed());
        assert!(!matches!(outcome, Ok(Some(_))));
        held.unlock().await.unwrap();
        idle(&client).await;
    })
    .await;
}
