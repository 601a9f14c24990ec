//! The reentrant lock's state in Redis, field by field after each step, and its leases.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bed::events::Events;
use bed::{Bed, QUICK, eventually, freed, ms, reentrant, secs};
use distlock::{Acquire, Client, DistLock, Error, Guard, NotHeld, Owner, Released};
use distlock_support::{Numbers, TtlSampler};

const CHANNEL: &str = "redisson_lock__channel:{job}";

/// The whole server: one hash with one field, and its lease.
async fn expect(bed: &Bed, owner: &Owner, count: u64, lease: Duration) {
    // Nothing beside it: no latch, no queue.
    assert_eq!(bed.admin.keys().await, ["job"]);
    let fields: BTreeMap<_, _> = [(owner.to_string(), count.to_string())].into();
    assert_eq!(bed.admin.hgetall("job").await, fields);
    near(bed, lease).await;
}

/// The lease was armed just now.
async fn near(bed: &Bed, lease: Duration) {
    let (ttl, lease) = (bed.admin.pttl("job").await, i64::try_from(lease.as_millis()).unwrap());
    assert!(ttl <= lease && ttl > lease - 250, "{ttl} ms are left of {lease}");
}

async fn enter(client: &Client, how: Acquire) -> Guard {
    client.reentrant("job").acquire(how.wait(ms(0))).await.unwrap().expect("free, or of the same owner")
}

#[tokio::test]
async fn the_trace_that_redisson_leaves() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        let events = Events::subscribe(&bed.server, &[CHANNEL]).await;
        let told = || events.count(CHANNEL, "0");
        let watchdog = ours.options().watchdog;
        let pause = || tokio::time::sleep(ms(400));
        let me = ours.owner();
        let how = || Acquire::new().owner(&me);
        // Connecting leaves nothing behind.
        assert_eq!(bed.admin.keys().await, [""; 0]);

        let outer = enter(&ours, how()).await;
        expect(bed, &me, 1, watchdog).await;

        // Another client's attempt changes nothing; it listens to the lock's channel.
        pause().await;
        let waiter = tokio::spawn({
            let lock = theirs.reentrant("job");
            async move { lock.lock().await.unwrap() }
        });
        eventually("it listens", async || bed.admin.numsub(CHANNEL).await == 2).await;
        let left = bed.admin.pttl("job").await;
        assert!(left <= 29_600, "its attempt armed the lease: {left}");
        assert_eq!(bed.admin.hgetall("job").await.len(), 1);

        let inner = enter(&ours, how()).await;
        expect(bed, &me, 2, watchdog).await;

        pause().await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        expect(bed, &me, 1, watchdog).await;
        assert_eq!(told(), 0);

        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        let second = waiter.await.unwrap();
        expect(bed, second.owner(), 1, watchdog).await;
        eventually("one message", async || told() == 1).await;

        let refused = theirs.reentrant("job").release(&me).await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { why: NotHeld::HeldBy { .. }, .. }), "{refused:?}");
        expect(bed, second.owner(), 1, watchdog).await;

        second.unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(ours.reentrant("job").release(&me).await.is_err());
        assert!(!ours.reentrant("job").force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);

        // By force, through two holds: one message.
        let guards = [enter(&ours, how()).await, enter(&ours, how()).await];
        assert!(theirs.reentrant("job").force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        drop(guards);
        eventually("three messages", async || told() == 3).await;
        bed::idle(&ours).await;
        assert_eq!(told(), 3);
    })
    .await;
}

#[tokio::test]
async fn owners_are_fields_that_scripts_can_tell_from_javas() {
    reentrant(async |bed| {
        let (ours, theirs) = (bed.client().await, bed.client().await);
        assert_ne!(ours.id(), theirs.id());
        let mut seen = std::collections::HashSet::new();
        for client in [&ours, &theirs] {
            for _ in 0..3 {
                let guard = client.reentrant("job").lock().await.unwrap();
                let fields = bed.admin.hgetall("job").await;
                let (field, count) = fields.first_key_value().unwrap();
                let (id, number) = field.rsplit_once(':').unwrap();
                assert_eq!((id, count.as_str()), (client.id(), "1"));
                // A uuid of version 8, in lower case; Redisson's are of version 4.
                assert_eq!((id.len(), id.as_bytes()[14], id.to_lowercase().as_str()), (36, b'8', id));
                assert!(i64::try_from(number.parse::<u64>().unwrap()).is_ok(), "a Java long");
                assert!(seen.insert(field.clone()), "{field} comes a second time");
                guard.unlock().await.unwrap();
            }
            for _ in 0..100_000 {
                assert!(seen.insert(client.owner().to_string()));
            }
        }
    })
    .await;
}

/// How the two holds of one owner are leased, and what the key's lease is after each step. None: the watchdog.
struct Case {
    outer: Option<u64>,
    inner: Option<u64>,
    /// Both held, then the inner one released; and both held, then the outer one.
    both: u64,
    outer_left: u64,
    inner_left: u64,
}

/// A hold that comes in never shortens what the ones before it were promised, unlike Redisson; what is left is armed with its own lease.
const LEASES: [Case; 7] = [
    Case { outer: None, inner: None, both: 30, outer_left: 30, inner_left: 30 },
    Case { outer: None, inner: Some(10), both: 30, outer_left: 30, inner_left: 10 },
    Case { outer: None, inner: Some(60), both: 60, outer_left: 30, inner_left: 60 },
    Case { outer: Some(10), inner: None, both: 30, outer_left: 10, inner_left: 30 },
    Case { outer: Some(60), inner: None, both: 60, outer_left: 60, inner_left: 30 },
    Case { outer: Some(10), inner: Some(10), both: 10, outer_left: 10, inner_left: 10 },
    Case { outer: Some(10), inner: Some(1), both: 10, outer_left: 10, inner_left: 1 },
];

#[tokio::test]
async fn what_is_left_has_the_lease_of_its_own_call() {
    reentrant(async |bed| {
        let client = bed.client().await;
        for Case { outer, inner, both, outer_left, inner_left } in LEASES {
            for release_inner in [true, false] {
                println!("outer {outer:?}, inner {inner:?}, the inner one is released first: {release_inner}");
                let me = client.owner();
                let how = |lease: Option<u64>| match lease {
                    Some(lease) => Acquire::new().owner(&me).lease(secs(lease)),
                    None => Acquire::new().owner(&me),
                };
                let first = enter(&client, how(outer)).await;
                near(bed, outer.map_or(client.options().watchdog, secs)).await;
                let second = enter(&client, how(inner)).await;
                expect(bed, &me, 2, secs(both)).await;
                let (gone, stays, left) =
                    if release_inner { (second, first, outer_left) } else { (first, second, inner_left) };
                assert_eq!(gone.unlock().await.unwrap(), Released::StillHeld(1));
                expect(bed, &me, 1, secs(left)).await;
                assert!(stays.is_held());
                assert!(stays.remaining() <= secs(left) && stays.remaining() > secs(left) - secs(left) / 50 - ms(300));
                assert_eq!(stays.unlock().await.unwrap(), Released::Free);
            }
        }
    })
    .await;
}

/// In Redisson the inner release ends the renewal of the outer hold.
#[tokio::test]
async fn a_watched_hold_outlives_the_leased_ones_inside_it() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let me = client.owner();
        let outer = enter(&client, Acquire::new().owner(&me)).await;
        let released = enter(&client, Acquire::new().owner(&me).lease(ms(300))).await;
        assert_eq!(released.unlock().await.unwrap(), Released::StillHeld(1));
        let lapsed = enter(&client, Acquire::new().owner(&me).lease(ms(300))).await;
        let began = Instant::now();
        tokio::time::timeout(secs(2), lapsed.lost()).await.expect("the inner lease ends");
        let mut least = i64::MAX;
        while began.elapsed() < QUICK * 3 {
            least = least.min(bed.admin.pttl("job").await);
            assert!(outer.is_held() && !lapsed.is_held());
            tokio::time::sleep(ms(20)).await;
        }
        assert!(least > 200, "{least} ms were left");
        let refused = lapsed.unlock().await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { why: NotHeld::LeaseOver, .. } | Error::Lost { .. }), "{refused:?}");
        assert_eq!(bed.admin.hgetall("job").await.values().collect::<Vec<_>>(), ["1"]);
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

#[tokio::test]
async fn an_explicit_lease_is_never_renewed() {
    reentrant(async |bed| {
        let client = bed.quick().await;
        let lock = client.lock(distlock::Flavour::Reentrant, "job");
        let start = Instant::now();
        let guard = lock.lock_leased(QUICK * 2).await.unwrap();
        assert_eq!(client.renew_now().await.renewed, 0);
        let took = start.elapsed() + freed(&lock, QUICK * 2 + secs(1)).await;
        assert!(took > QUICK * 2 - ms(100) && took < QUICK * 2 + ms(500), "{took:?}");
        drop(guard);

        // The owner comes back after the lapse: it starts at one.
        let me = client.owner();
        let lapsed = enter(&client, Acquire::new().owner(&me).lease(ms(50))).await;
        freed(&lock, secs(1)).await;
        let again = enter(&client, Acquire::new().owner(&me)).await;
        expect(bed, &me, 1, QUICK).await;
        drop(lapsed);
        tokio::time::sleep(ms(100)).await;
        assert!(again.is_held());
        assert_eq!(bed.admin.hgetall("job").await.values().collect::<Vec<_>>(), ["1"]);
        assert_eq!(again.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

#[tokio::test]
async fn a_java_holders_field_is_respected() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let lock = client.lock(distlock::Flavour::Reentrant, "job");
        let java: Owner = "71b96ce8-2746-4c3a-9d0e-0123456789ab:7".parse().unwrap();
        bed.admin.cmd::<()>(&["HSET", "job", &java.to_string(), "3"]).await;
        bed.admin.cmd::<()>(&["PEXPIRE", "job", "1500"]).await;
        let start = Instant::now();
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(lock.hold_count(&java).await.unwrap(), 3);
        assert_eq!(bed.admin.hgetall("job").await.values().collect::<Vec<_>>(), ["3"]);
        // As that thread: one of its holds is given back.
        assert_eq!(lock.release(&java).await.unwrap(), Released::StillHeld(2));
        bed.admin.cmd::<()>(&["PEXPIRE", "job", "1000"]).await;
        let guard = lock.lock().await.unwrap();
        assert!(start.elapsed() >= ms(990) && start.elapsed() < secs(3), "{:?}", start.elapsed());
        expect(bed, guard.owner(), 1, client.options().watchdog).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// L2: whatever is done, no lock without an end is ever seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_ever_without_an_end() {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let clients = [bed.client().await, bed.quick().await];
        let until = Instant::now() + secs(3);
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..12_u64 {
            let client = clients[usize::from(n % 2 == 0)].clone();
            tasks.spawn(async move {
                let mut numbers = Numbers::new(n);
                let me = client.owner();
                while Instant::now() < until {
                    let lock = client.reentrant(&format!("job {}", numbers.below(4)));
                    let mut how = Acquire::new().wait(ms(numbers.below(30)));
                    if numbers.below(2) == 0 {
                        how = how.lease(ms(5 + numbers.below(200)));
                    }
                    if numbers.below(2) == 0 {
                        how = how.owner(&me);
                    }
                    let attempt = tokio::time::timeout(ms(numbers.below(40)), lock.acquire(how));
                    if let Ok(Ok(Some(guard))) = attempt.await {
                        match numbers.below(5) {
                            0 => drop(guard),
                            1 => drop(guard.extend(ms(10 + numbers.below(100))).await),
                            2 => drop(lock.force_unlock().await),
                            3 => drop(lock.release(&guard.into_owner()).await),
                            _ => drop(guard.unlock().await),
                        }
                    }
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(sampler.stop().await, []);
        // What was left to its lease, by an owner that was given away, ends with it.
        eventually("all is free", async || bed.admin.keys().await.is_empty()).await;
    })
    .await;
}
