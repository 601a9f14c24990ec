//! Leases and deadlines of the members. `tests/sim/group/special.rs` checks leases after a wait.

use distlock::{Acquire, Error, Flavour, MultiLock};

use crate::rig::{fair, member, multi};
use bed::{ms, reentrant, secs};

/// Each member is renewed by its own client's watchdog. When the first member expires, the whole lock is lost.
#[tokio::test]
async fn deadline_is_that_of_earliest_member() {
    reentrant(async |bed| {
        let (short, long) = (bed.client().await, bed.connect(bed.builder().watchdog(secs(3600))).await);
        let lock = MultiLock::of(vec![
            member(short.fair("a")),
            member(long.reentrant("b")),
            member(long.rw("c").read()),
            member(short.rw("d").write()),
        ]);
        let guard = lock.lock().await.unwrap();
        assert!(guard.remaining() <= secs(30), "{guard:?}");
        assert!(lock.remaining_ttl().await.unwrap().unwrap() <= secs(30));
        assert!(bed.admin.pttl("b").await > 1_800_000);
        for (client, renewed) in [(&short, 2), (&long, 2)] {
            assert_eq!(client.renew_now().await.renewed, renewed);
        }
        guard.unlock().await.unwrap();
    })
    .await;
}

/// An explicit lease applies to every member from the start, and an extend applies to all members. The watchdog renews
/// neither lease.
#[tokio::test]
async fn lease_and_extension_apply_to_all_members() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let names = ["a", "b", "c", "d"];
        let mixed = [(Flavour::Reentrant, "a"), (Flavour::Write, "b"), (Flavour::Spin, "c"), (Flavour::Read, "d")];
        for lock in [client.multi(names), fair(&client, &names), multi(&client, &mixed)] {
            for leased in [true, false] {
                let how = if leased { Acquire::new().wait(secs(60)).lease(secs(900)) } else { Acquire::new() };
                let guard = lock.acquire(how).await.unwrap().unwrap();
                let all_last = async |lease: u64| {
                    for name in names {
                        let left = bed.admin.pttl(name).await;
                        let most = lease as i64 * 1_000;
                        assert!(left > most / 2 && left <= most, "{name} expires in {left} ms of a lease of {lease} s");
                    }
                    assert!(guard.remaining() > secs(lease / 2) && guard.remaining() <= secs(lease), "{guard:?}");
                    assert_eq!(client.renew_now().await.renewed, 0, "explicit leases are not renewed");
                };
                if leased {
                    all_last(900).await;
                }
                for lease in [5_000, 400] {
                    guard.extend(secs(lease)).await.unwrap();
                    all_last(lease).await;
                }
                assert!(matches!(guard.extend(ms(0)).await, Err(Error::Config { .. })));
                assert!(guard.is_held());
                guard.unlock().await.unwrap();
            }
        }
    })
    .await;
}
