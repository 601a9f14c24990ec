//! All or nothing: where one member cannot be had, none of the others is left taken (X1).

use std::sync::Arc;
use std::time::Instant;

use distlock::{Acquire, DistLock, Error, Flavour, MultiLock, RedLock, Striped};

use crate::rig::{Second, fair, member, multi, only_keys, settled, soon};
use bed::{enter, eventually, idle, in_vain, ms, reentrant, secs};

/// Plain ones, that one script takes, and others between them.
const MIXED: [(Flavour, &str); 6] = [
    (Flavour::Reentrant, "a"),
    (Flavour::Fair, "b"),
    (Flavour::Spin, "c"),
    (Flavour::Write, "d"),
    (Flavour::Reentrant, "e"),
    (Flavour::Read, "f"),
];

/// One member is held by a stranger, whichever it is: none of the others is left taken, by a try, by a wait that ran out, nor
/// by a wait that was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_held_by_a_stranger() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        for (flavour, name) in MIXED {
            // A reader would not mind another one.
            let flavour = if flavour == Flavour::Read { Flavour::Write } else { flavour };
            let theirs = stranger.lock(flavour, name).lock().await.unwrap();
            for owned in [false, true] {
                let lock = multi(&client, &MIXED);
                let how = || if owned { Acquire::new().owner(&client.owner()) } else { Acquire::new() };
                assert!(lock.acquire(how().wait(ms(0))).await.unwrap().is_none(), "{name}");
                only_keys(&bed.admin, &[name]).await;
                let began = Instant::now();
                let outcome = lock.acquire(how().wait(ms(40))).await;
                assert!(in_vain(&outcome), "{name}: {outcome:?}");
                assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
                let waiting = tokio::time::timeout(ms(40), lock.acquire(how())).await;
                assert!(waiting.is_err(), "{name}: {waiting:?}");
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
            }
            theirs.unlock().await.unwrap();
        }
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// The guard is there when all are held, and not before: also when one after the other comes free.
#[tokio::test]
async fn one_after_the_other_comes_free() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        for together in [true, false] {
            let names = ["a", "b", "c", "d"];
            let mut theirs = Vec::new();
            for name in names {
                theirs.push(stranger.lock(Flavour::Reentrant, name).lock().await.unwrap());
            }
            let lock = client.multi(names);
            let me = client.owner();
            let waiter = tokio::spawn(async move {
                let how = if together { Acquire::new() } else { Acquire::new().owner(&me) };
                lock.acquire(how).await.unwrap().unwrap()
            });
            settled(bed, &client, 1).await;
            // From the back: those that are free are not taken, in order that those who want them can have them.
            while let Some(guard) = theirs.pop() {
                assert!(!waiter.is_finished());
                guard.unlock().await.unwrap();
            }
            let guard = soon("all are free", secs(5), waiter).await.unwrap();
            assert_eq!(guard.members().len(), 4);
            assert!(guard.members().iter().all(|member| member.is_held));
            guard.unlock().await.unwrap();
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// A wait of its own length, whatever the members' share in it: no sum of waits (threads 85: #3323, #5438).
#[tokio::test]
async fn the_wait_is_for_all_together() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let theirs = stranger.multi(["a", "b", "c"]).lock().await.unwrap();
        for lock in [client.multi(["a", "b", "c"]), fair(&client, &["c", "b", "a"])] {
            let began = Instant::now();
            let outcome = lock.lock_for(ms(300)).await;
            let took = began.elapsed();
            assert!(in_vain(&outcome), "{outcome:?}");
            assert!(took >= ms(295) && took < ms(1_200), "{took:?}");
        }
        theirs.unlock().await.unwrap();
    })
    .await;
}

/// What is not free is not taken in between either: a member that is free stays free for others, while the multi lock waits.
#[tokio::test]
async fn waiting_it_stands_in_nobodys_way() {
    reentrant(async |bed| {
        let (client, stranger) = (bed.client().await, bed.client().await);
        let theirs = stranger.reentrant("b").lock().await.unwrap();
        let lock = client.multi(["a", "b", "c"]);
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        settled(bed, &client, 1).await;
        for name in ["a", "c"] {
            let guard = stranger.reentrant(name).try_lock().await.unwrap().expect("free");
            guard.unlock().await.unwrap();
        }
        let c = stranger.reentrant("c").lock().await.unwrap();
        theirs.unlock().await.unwrap();
        // Waits for c now, with a and b in its hands at the most.
        eventually("it waits for c", async || bed.admin.numsub("redisson_lock__channel:{c}").await == 1).await;
        assert!(!waiter.is_finished());
        c.unlock().await.unwrap();
        soon("it has all", secs(5), waiter).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// One that the server has as something else: the error says so, and nothing is left of the others.
#[tokio::test]
async fn one_is_no_lock() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for (_, name) in MIXED {
            let () = bed.admin.cmd(&["SET", name, "x"]).await;
            let lock = multi(&client, &MIXED);
            let me = client.owner();
            for how in [Acquire::new().wait(ms(0)), Acquire::new().wait(secs(5)), Acquire::new().owner(&me)] {
                let began = Instant::now();
                let error = lock.acquire(how).await.unwrap_err();
                assert!(matches!(error, Error::WrongType { .. }), "{name}: {error:?}");
                assert!(began.elapsed() < secs(3));
                idle(&client).await;
                only_keys(&bed.admin, &[name]).await;
            }
            assert_eq!(bed.admin.cmd::<String>(&["GET", name]).await, "x");
            let () = bed.admin.cmd(&["DEL", name]).await;
        }
    })
    .await;
}

/// A server that is down, or a client that is shut down: an error, within the wait, and nothing left on the other server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_is_out_of_reach() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::with(|builder| builder.command_timeout(ms(300)).watchdog(secs(3)).retry_attempts(1)).await;
        let lock = || {
            let (one, other) = (&client, &second.client);
            MultiLock::of(vec![
                member(one.reentrant("a")),
                member(other.reentrant("b")),
                member(one.fair("c")),
                member(one.reentrant("d")),
            ])
        };
        lock().lock().await.unwrap().unlock().await.unwrap();
        second.server.kill9();
        let me = client.owner();
        for how in [Acquire::new().wait(ms(0)), Acquire::new().wait(ms(400)), Acquire::new().wait(ms(400)).owner(&me)] {
            let began = Instant::now();
            let error = lock().acquire(how).await.unwrap_err();
            let took = began.elapsed();
            assert!(matches!(error, Error::Connection { .. } | Error::Timeout { .. }), "{error:?}");
            assert!(took < secs(2), "{took:?}");
            only_keys(&bed.admin, &[]).await;
        }
        // It comes back within the wait.
        let multi = lock();
        let waiter = tokio::spawn(async move { multi.lock_for(secs(10)).await });
        tokio::time::sleep(ms(150)).await;
        tokio::task::block_in_place(|| second.server.restart());
        let guard = soon("it is back", secs(10), waiter).await.unwrap().unwrap().unwrap();
        guard.unlock().await.unwrap();
        second.client.shutdown(secs(5)).await.unwrap();
        for how in [Acquire::new().wait(ms(0)), Acquire::new(), Acquire::new().owner(&me)] {
            let error = lock().acquire(how).await.unwrap_err();
            assert!(matches!(error, Error::Closed), "{error:?}");
            idle(&client).await;
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// A server that does not answer at all: the wait is kept, nothing is left here, and what was asked there is undone when it
/// goes on (lessons 1 and 13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ones_server_does_not_answer() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second =
            Second::with(|builder| builder.command_timeout(secs(2)).watchdog(secs(20)).retry_attempts(1)).await;
        let lock = MultiLock::of(vec![
            member(client.reentrant("a")),
            member(second.client.reentrant("b")),
            member(second.client.reentrant("c")),
            member(client.fair("d")),
        ]);
        lock.lock().await.unwrap().unlock().await.unwrap();
        second.server.stop();
        let me = client.owner();
        // A command may take much longer than these waits.
        for how in [Acquire::new().wait(ms(200)), Acquire::new().wait(ms(200)).owner(&me)] {
            let began = Instant::now();
            let error = lock.acquire(how).await.unwrap_err();
            let took = began.elapsed();
            assert!(error.is_retryable(), "{error:?}");
            assert!(took < ms(1_300), "{took:?}");
            only_keys(&bed.admin, &[]).await;
        }
        second.server.cont();
        soon("it answers", secs(10), lock.lock()).await.unwrap().unlock().await.unwrap();
        second.end().await;
    })
    .await;
}

/// A second server that answers later than the lease lasts (threads 85: #624): never held, never two, nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_too_short_for_the_slowest_server_is_never_held() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let second = Second::with(|builder| builder).await;
        let lock = MultiLock::of(vec![member(client.reentrant("a")), member(second.client.reentrant("b"))]);
        second.server.stop();
        let began = Instant::now();
        let asking = tokio::spawn(async move { lock.acquire(Acquire::new().wait(ms(0)).lease(ms(200))).await });
        tokio::time::sleep(ms(400)).await;
        second.server.cont();
        let outcome = soon("an answer", secs(5), asking).await.unwrap();
        assert!(matches!(&outcome, Ok(None) | Err(_)), "held for {:?}: {outcome:?}", began.elapsed());
        only_keys(&bed.admin, &[]).await;
        idle(&client).await;
        second.end().await;
    })
    .await;
}

/// Locks of this crate's are known for what they are behind the trait, those that are made of others too.
#[tokio::test]
async fn a_member_of_any_flavour_is_known() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for flavour in Flavour::ALL {
            let one = || client.lock(*flavour, "a");
            // What is not known is not known to be the same.
            assert_eq!(MultiLock::of(vec![one(), one()]).locks().len(), 1, "{flavour}");
            let striped = member(Striped::over(&client, *flavour, "b", 2));
            let multi = member(MultiLock::of(vec![one()]));
            let red = member(RedLock::of("c", vec![one()]));
            for made in [striped, multi, red] {
                let twice = RedLock::of("d", vec![one(), Arc::clone(&made)]).try_lock().await;
                assert!(matches!(twice, Err(Error::Config { .. })), "{flavour}, {made:?}: {twice:?}");
            }
        }
    })
    .await;
}

/// A member of one's own making: whatever is a `DistLock` will do, and is asked through the trait.
#[tokio::test]
async fn a_member_from_outside_of_this_crate() {
    use distlock::{Guard, Owner, Released, Result, State};
    use futures::future::BoxFuture;

    #[derive(Debug)]
    struct Foreign(Arc<dyn DistLock>);

    impl DistLock for Foreign {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn acquire(&self, how: Acquire) -> BoxFuture<'_, Result<Option<Guard>>> {
            self.0.acquire(how)
        }
        fn state(&self) -> BoxFuture<'_, Result<State>> {
            self.0.state()
        }
        fn force_unlock(&self) -> BoxFuture<'_, Result<bool>> {
            self.0.force_unlock()
        }
        fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<Released>> {
            self.0.release(owner)
        }
    }

    reentrant(async |bed| {
        let client = bed.client().await;
        let foreign = || -> Arc<dyn DistLock> { Arc::new(Foreign(client.lock(Flavour::Fenced, "b"))) };
        let lock = MultiLock::of(vec![foreign(), member(client.reentrant("a"))]);
        assert_eq!(lock.name(), "a+b");
        let me = client.owner();
        let guard = enter(&lock, &me).await;
        assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
        assert_eq!(guard.members()[1].token, Some(1));
        assert!(MultiLock::of(vec![foreign()]).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        assert!(bed.admin.calls("evalsha").await > 0);
    })
    .await;
}
