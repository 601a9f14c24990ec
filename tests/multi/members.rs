//! Members of other flavours: what is particular to each stays so (protocol §8.5).

use distlock::{Acquire, DistLock, Error, Flavour};

use crate::rig::{fair, member, multi, only_keys, settled, soon};
use bed::{eventually, ms, reentrant, secs};
use distlock::MultiLock;

const COUNTER: &str = "redisson_lock_token:{f}";

/// A fenced member's token is in the guard's members, grows with every section, and its counter has no end whatever way the
/// section ended (protocol §8.5: Redisson's multi lock gives it one, and it begins at 1 again).
#[tokio::test]
async fn fenced_members_go_on_counting() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = multi(&client, &[(Flavour::Reentrant, "a"), (Flavour::Fenced, "f"), (Flavour::Fenced, "g")]);
        let mut last = 0;
        let mut next = |guard: &distlock::Guard| {
            assert_eq!(guard.token(), None, "which one's?");
            let tokens: Vec<_> = guard.members().into_iter().map(|member| (member.name, member.token)).collect();
            assert_eq!(tokens[0], ("a".into(), None));
            let (f, g) = (tokens[1].1.unwrap(), tokens[2].1.unwrap());
            assert!(f > last && f == g, "{f} and {g} after {last}");
            last = f;
        };
        let endless = async || assert_eq!(bed.admin.pttl(COUNTER).await, -1);
        // The watchdog's.
        let guard = lock.lock().await.unwrap();
        next(&guard);
        client.renew_now().await;
        endless().await;
        // Coming in again is the same section.
        let me = guard.owner().clone();
        let inner = lock.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        assert_eq!(inner.members()[1].token, guard.members()[1].token);
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        // An explicit lease, extended.
        let guard = lock.acquire(Acquire::new().wait(secs(5)).lease(secs(5))).await.unwrap().unwrap();
        next(&guard);
        guard.extend(secs(3)).await.unwrap();
        endless().await;
        guard.unlock().await.unwrap();
        // One that ran out.
        let guard = lock.lock_leased(ms(150)).await.unwrap();
        next(&guard);
        soon("it runs out", secs(3), guard.lost()).await;
        drop(guard);
        eventually("f is free", async || !bed.admin.exists("f").await).await;
        endless().await;
        // One that was freed by force.
        let guard = lock.lock().await.unwrap();
        next(&guard);
        lock.force_unlock().await.unwrap();
        drop(guard);
        endless().await;
        // One that was waited for, with the other one taken and given back meanwhile.
        let theirs = client.reentrant("a").lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        let again = lock.clone();
        let waiter = tokio::spawn(async move { again.lock().await.unwrap() });
        settled(bed, &client, 1).await;
        theirs.unlock().await.unwrap();
        let guard = waiter.await.unwrap();
        next(&guard);
        assert_eq!(client.fenced("f").last_token().await.unwrap(), guard.members()[1].token.unwrap());
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A fair member's order holds for the multi lock too: those who came before it come first, those after it later.
#[tokio::test]
async fn fair_members_keep_their_order() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let holder = other.fair("f").lock().await.unwrap();
        let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for who in ["first", "multi", "last"] {
            let lock = match who {
                "multi" => multi(&client, &[(Flavour::Reentrant, "a"), (Flavour::Fair, "f")]),
                _ => fair(&other, &["f"]),
            };
            let order = std::sync::Arc::clone(&order);
            let before = bed.admin.cmd::<u64>(&["LLEN", "redisson_lock_queue:{f}"]).await;
            tasks.push(tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().push(who);
                tokio::time::sleep(ms(10)).await;
                guard.unlock().await.unwrap();
            }));
            let queued = async || bed.admin.cmd::<u64>(&["LLEN", "redisson_lock_queue:{f}"]).await == before + 1;
            eventually("it stands in the queue", queued).await;
        }
        for key in ["redisson_lock_queue:{f}", "redisson_lock_timeout:{f}"] {
            assert_eq!(bed.admin.pttl(key).await, -1, "{key}");
        }
        // One that does not wait does not get in before them.
        assert!(fair(&client, &["f", "x"]).try_lock().await.unwrap().is_none());
        holder.unlock().await.unwrap();
        for task in tasks {
            soon("its turn", secs(10), task).await.unwrap();
        }
        assert_eq!(*order.lock(), ["first", "multi", "last"]);
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// An explicit lease on a fair member says nothing of its queue (protocol §8.5).
#[tokio::test]
async fn a_lease_ends_no_queue() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let guard = fair(&client, &["f", "g"]).lock_leased(secs(20)).await.unwrap();
        let lock = other.fair("f");
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        let queued = async || bed.admin.cmd::<u64>(&["LLEN", "redisson_lock_queue:{f}"]).await == 1;
        eventually("it stands in the queue", queued).await;
        guard.extend(secs(5)).await.unwrap();
        for key in ["redisson_lock_queue:{f}", "redisson_lock_timeout:{f}"] {
            assert_eq!(bed.admin.pttl(key).await, -1, "{key}");
        }
        guard.unlock().await.unwrap();
        soon("its turn", secs(5), waiter).await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// Two that have a read half in common hold it side by side; one with the write half waits for both.
#[tokio::test]
async fn read_members_are_shared() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let one = multi(&client, &[(Flavour::Read, "r"), (Flavour::Reentrant, "a")]);
        let two = multi(&other, &[(Flavour::Reentrant, "b"), (Flavour::Read, "r")]);
        let write = multi(&other, &[(Flavour::Write, "r"), (Flavour::Reentrant, "c")]);
        let (first, second) = (one.lock().await.unwrap(), two.try_lock().await.unwrap().expect("readers share"));
        assert_eq!(client.rw("r").read().state().await.unwrap().holders.len(), 2);
        assert!(write.try_lock().await.unwrap().is_none());
        let writer = tokio::spawn(async move { write.lock().await.unwrap() });
        eventually("it listens", async || bed.admin.numsub("redisson_rwlock:{r}").await > 0).await;
        first.unlock().await.unwrap();
        tokio::time::sleep(ms(100)).await;
        assert!(!writer.is_finished());
        second.unlock().await.unwrap();
        let guard = soon("no reader is left", secs(4), writer).await.unwrap();
        assert!(one.try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        one.lock().await.unwrap().unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// Who reads and wants to write, by a multi lock as the same owner, is told so and keeps what he has (lesson 20).
#[tokio::test]
async fn an_upgrade_by_way_of_it_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let me = client.owner();
        let reading = multi(&client, &[(Flavour::Read, "r"), (Flavour::Reentrant, "a")]);
        let writing = multi(&client, &[(Flavour::Write, "r"), (Flavour::Reentrant, "b")]);
        let guard = reading.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        let error = soon("at once", secs(2), writing.acquire(Acquire::new().owner(&me))).await.unwrap_err();
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error:?}");
        eventually("b is free", async || !bed.admin.exists("b").await).await;
        assert!(guard.is_held());
        assert!(matches!(guard.downgrade().await, Err(Error::Unsupported { .. })));
        bed::idle(&client).await;
        // The other way round is none: who writes may read.
        let guard = writing.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        let inner = reading.acquire(Acquire::new().owner(&me)).await.unwrap().unwrap();
        inner.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// A spin member waits by looking, and sends no message; the others wait as ever.
#[tokio::test]
async fn spin_members_look() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let theirs = other.spin("s").lock().await.unwrap();
        let lock = multi(&client, &[(Flavour::Spin, "s"), (Flavour::Reentrant, "a")]);
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually("it has looked", async || bed.admin.calls("evalsha").await > 6).await;
        assert_eq!(bed.admin.channels().await, [""; 0]);
        theirs.unlock().await.unwrap();
        soon("it is seen", secs(3), waiter).await.unwrap().unlock().await.unwrap();
        assert_eq!(bed.admin.calls("subscribe").await, 0);
    })
    .await;
}

/// All flavours together: the state of each is its own, and who holds all of them is one owner.
#[tokio::test]
async fn all_flavours_together() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let all: Vec<_> = Flavour::ALL.iter().map(|flavour| client.lock(*flavour, flavour.as_str())).collect();
        let lock = MultiLock::of(all.clone());
        let guard = lock.lock().await.unwrap();
        let me = guard.owner().clone();
        assert_eq!(lock.state().await.unwrap().holders, [(me.to_string(), 1)]);
        for one in &all {
            assert_eq!(one.hold_count(&me).await.unwrap(), 1, "{one:?}");
        }
        for flavour in Flavour::ALL.iter().filter(|flavour| **flavour != Flavour::Read) {
            let theirs = MultiLock::of(vec![other.lock(*flavour, flavour.as_str()), member(other.reentrant("x"))]);
            assert!(theirs.try_lock().await.unwrap().is_none(), "{flavour}");
        }
        assert_eq!(client.renew_now().await.renewed, Flavour::ALL.len());
        guard.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
        eventually("no key is left", async || bed.keys().await.is_empty()).await;
    })
    .await;
}
