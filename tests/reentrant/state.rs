//! The reentrant lock's state in Redis, field by field after each step, and its leases.

use std::collections::BTreeMap;
use std::time::Duration;

use bed::events::Events;
use bed::{Bed, becomes, ends, freed, ms, reentrant, secs, waiter};
use distlock::{Acquire, Client, Error, Guard, NotHeld, Owner, Released};
use distlock_support::{Numbers, TtlSampler};

const CHANNEL: &str = "redisson_lock__channel:{job}";
/// So long that a slow machine does not notably change the remaining time.
const WATCHDOG: Duration = secs(300);

async fn client(bed: &Bed) -> Client {
    bed.connect(bed.builder().watchdog(WATCHDOG)).await
}

/// Asserts that the server has exactly one hash with one field, and this lease.
async fn expect(bed: &Bed, owner: &Owner, count: u64, lease: Duration) {
    // There is no other key, such as a latch or a queue.
    assert_eq!(bed.admin.keys().await, ["job"]);
    let fields: BTreeMap<_, _> = [(owner.to_string(), count.to_string())].into();
    assert_eq!(bed.admin.hgetall("job").await, fields);
    near(bed, lease).await;
}

/// Asserts that the lease was set recently.
async fn near(bed: &Bed, lease: Duration) {
    let (ttl, lease) = (bed.admin.pttl("job").await, i64::try_from(lease.as_millis()).unwrap());
    assert!(ttl <= lease && ttl > lease * 2 / 3, "{ttl} ms are left of {lease}");
}

/// Lets half of the watchdog's lease pass.
async fn run_down(bed: &Bed) {
    bed.admin.cmd::<()>(&["PEXPIRE", "job", "150000"]).await;
}

async fn enter(client: &Client, how: Acquire) -> Guard {
    let guard = client.reentrant("job").acquire(how.wait(ms(0))).await;
    guard.expect("an acquire of a lock that is free, or of the same owner").expect("not busy")
}

#[tokio::test]
async fn hash_lease_and_messages_are_correct_after_each_step() {
    reentrant(async |bed| {
        let (ours, theirs) = (client(bed).await, client(bed).await);
        let events = Events::subscribe(&bed.server, &[CHANNEL]).await;
        let told = || events.count(CHANNEL, "0");
        let me = ours.owner();
        let how = || Acquire::new().owner(&me);
        assert_eq!(bed.admin.keys().await, [""; 0]);

        let outer = enter(&ours, how()).await;
        expect(bed, &me, 1, WATCHDOG).await;

        // Another client's attempt changes nothing, and subscribes to the lock's channel.
        run_down(bed).await;
        let waiter = waiter(theirs.reentrant("job"));
        becomes("listeners", 2, async || bed.admin.numsub(CHANNEL).await).await;
        expect(bed, &me, 1, WATCHDOG / 2).await;

        let inner = enter(&ours, how()).await;
        expect(bed, &me, 2, WATCHDOG).await;

        run_down(bed).await;
        assert_eq!(inner.unlock().await.unwrap(), Released::StillHeld(1));
        expect(bed, &me, 1, WATCHDOG).await;
        assert_eq!(told(), 0);

        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
        let (second, _) = ends("the waiter", waiter).await.unwrap();
        expect(bed, second.owner(), 1, WATCHDOG).await;
        becomes("messages", 1, async || told()).await;

        let refused = theirs.reentrant("job").release(&me).await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { why: NotHeld::HeldBy { .. }, .. }), "{refused:?}");
        expect(bed, second.owner(), 1, WATCHDOG).await;

        second.unlock().await.unwrap();
        assert_eq!(bed.admin.keys().await, [""; 0]);
        assert!(ours.reentrant("job").release(&me).await.is_err());
        assert!(!ours.reentrant("job").force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);

        // A force ends two holds, with one message.
        let guards = [enter(&ours, how()).await, enter(&ours, how()).await];
        assert!(theirs.reentrant("job").force_unlock().await.unwrap());
        assert_eq!(bed.admin.keys().await, [""; 0]);
        drop(guards);
        bed::idle(&ours).await;
        becomes("messages", 3, async || told()).await;
    })
    .await;
}

#[tokio::test]
async fn owner_fields_are_unique_and_distinct_from_java_owners() {
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
                // The UUID has version 8 and is in lower case. Redisson's UUIDs have version 4.
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

/// The leases in seconds of an owner's outer and inner hold (`None`: the watchdog's), and the key's lease: with both
/// holds, after the inner hold's release, and after the outer hold's release. Unlike in Redisson, a re-entry never
/// shortens the lease of earlier holds. The remaining hold gets its own lease.
type Case = (Option<u64>, Option<u64>, [u64; 3]);

const LEASES: [Case; 7] = [
    (None, None, [300, 300, 300]),
    (None, Some(100), [300, 300, 100]),
    (None, Some(600), [600, 300, 600]),
    (Some(100), None, [300, 100, 300]),
    (Some(600), None, [600, 600, 300]),
    (Some(100), Some(100), [100, 100, 100]),
    (Some(100), Some(40), [100, 100, 40]),
];

#[tokio::test]
async fn remaining_hold_keeps_lease_of_its_own_acquire() {
    reentrant(async |bed| {
        let client = client(bed).await;
        for (outer, inner, [both, outer_left, inner_left]) in LEASES {
            for release_inner in [true, false] {
                println!("outer {outer:?}, inner {inner:?}, the inner one is released first: {release_inner}");
                let me = client.owner();
                let own = || Acquire::new().owner(&me);
                let how = |lease: Option<u64>| lease.map_or_else(own, |lease| own().lease(secs(lease)));
                let first = enter(&client, how(outer)).await;
                near(bed, outer.map_or(WATCHDOG, secs)).await;
                let second = enter(&client, how(inner)).await;
                expect(bed, &me, 2, secs(both)).await;
                let (gone, stays, left) =
                    if release_inner { (second, first, outer_left) } else { (first, second, inner_left) };
                assert_eq!(gone.unlock().await.unwrap(), Released::StillHeld(1));
                expect(bed, &me, 1, secs(left)).await;
                assert!(stays.remaining() <= secs(left) && stays.remaining() > secs(left) * 2 / 3);
                assert_eq!(stays.unlock().await.unwrap(), Released::Free);
            }
        }
    })
    .await;
}

/// In Redisson, the release of the inner hold ends the renewal of the outer hold.
#[tokio::test]
async fn watched_hold_outlives_leased_holds_inside_it() {
    reentrant(async |bed| {
        let client = client(bed).await;
        let me = client.owner();
        let outer = enter(&client, Acquire::new().owner(&me)).await;
        let released = enter(&client, Acquire::new().owner(&me).lease(secs(60))).await;
        assert_eq!(released.unlock().await.unwrap(), Released::StillHeld(1));
        let lapsed = enter(&client, Acquire::new().owner(&me).lease(secs(60))).await;
        let _ = lapsed.extend(ms(100)).await;
        ends("the loss of the inner hold", lapsed.lost()).await;
        run_down(bed).await;
        assert_eq!(client.renew_now().await.renewed, 1);
        near(bed, WATCHDOG).await;
        assert!(outer.is_held() && !lapsed.is_held());
        let refused = lapsed.unlock().await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { why: NotHeld::LeaseOver, .. } | Error::Lost { .. }), "{refused:?}");
        let count = async || bed.admin.hgetall("job").await.into_values().collect::<Vec<_>>();
        becomes("hold counts", vec!["1".to_owned()], count).await;
        assert_eq!(outer.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

#[tokio::test]
async fn explicit_lease_is_never_renewed() {
    reentrant(async |bed| {
        let client = client(bed).await;
        let lock = client.lock(distlock::Flavour::Reentrant, "job");
        let guard = lock.lock_leased(secs(600)).await.unwrap();
        assert_eq!(client.renew_now().await.renewed, 0);
        guard.unlock().await.unwrap();

        // The owner acquires again after its lease has expired. Its count starts at one again.
        let me = client.owner();
        let lapsed = enter(&client, Acquire::new().owner(&me).lease(secs(600))).await;
        bed.admin.cmd::<()>(&["PEXPIRE", "job", "1"]).await;
        freed(&lock).await;
        let again = enter(&client, Acquire::new().owner(&me)).await;
        expect(bed, &me, 1, WATCHDOG).await;
        drop(lapsed);
        assert_eq!(client.renew_now().await.renewed, 1);
        expect(bed, &me, 1, WATCHDOG).await;
        assert!(again.is_held());
        assert_eq!(again.unlock().await.unwrap(), Released::Free);
    })
    .await;
}

/// L2: no operation ever leaves a lock without a TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_always_have_a_ttl() {
    reentrant(async |bed| {
        let sampler = TtlSampler::start(&bed.server.url()).await;
        let clients = [bed.client().await, bed.quick().await];
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..12_u64 {
            let client = clients[usize::from(n % 2 == 0)].clone();
            tasks.spawn(async move {
                let mut numbers = Numbers::new(n);
                let me = client.owner();
                for _ in 0..150 {
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
        tasks.join_all().await;
        assert_eq!(sampler.stop().await, []);
        // Holds without a guard end with their leases.
        becomes("keys", Vec::<String>::new(), async || bed.admin.keys().await).await;
    })
    .await;
}
