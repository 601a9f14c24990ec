//! Plain members of one client, acquired by one script.

use distlock::{Acquire, DistLock, Error, Flavour, MultiLock};

use crate::rig::{counts, multi, only_keys, warm};
use bed::{ends, enter, eventually, idle, ms, reentrant, run_on, secs};

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{{tag}}:{i}")).collect()
}

async fn a_script_takes_250_names_and_renews_100(count: u64) {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        warm(&bed.admin, &client).await;
        let guard = client.multi(names(count as usize)).lock().await.unwrap();
        assert_eq!(bed.admin.calls("evalsha").await, count / 250);
        assert_eq!(guard.members().len() as u64, count);
        assert_eq!(bed.admin.keys().await.len() as u64, count);
        bed.admin.reset_stats().await;
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed as u64, renewed.lost), (count, 0));
        assert_eq!(bed.admin.calls("evalsha").await, count / 100);
        bed.admin.reset_stats().await;
        guard.unlock().await.unwrap();
        let releases = bed.admin.calls("evalsha").await;
        assert!(releases <= count / 4, "{releases} commands release {count} names");
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

bed::cases!(on two threads, a_script_takes_250_names_and_renews_100:
    of_a_thousand = 1_000,
    of_ten_thousand = 10_000,
);

/// In Redis, each member looks as if it had been acquired, released and announced (by a message) on its own.
async fn each_member_is_as_if_taken_alone(how: Acquire) {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let both = multi(&client, &[(Flavour::Reentrant, "a"), (Flavour::Spin, "b")]);
        let guard = both.acquire(how.clone()).await.unwrap().unwrap();
        let alone = client.reentrant("alone").acquire(how.clone()).await.unwrap().unwrap();
        let me = guard.owner().clone();
        counts(&bed.admin, &me, &[("a", 1), ("b", 1)]).await;
        let left = bed.admin.pttl("alone").await;
        let encoding = async |name| bed.admin.cmd::<String>(&["OBJECT", "ENCODING", name]).await;
        for name in ["a", "b"] {
            assert_eq!(encoding(name).await, encoding("alone").await);
            let there = bed.admin.pttl(name).await;
            assert!(there <= left && there > left / 2, "{name} expires in {there} ms, a single lock in {left}");
        }
        let again = enter(&client.reentrant("a"), &me).await;
        counts(&bed.admin, &me, &[("a", 2), ("b", 1)]).await;
        again.unlock().await.unwrap();
        let waiting = bed::passer(other.reentrant("a"));
        eventually("it listens", async || bed.admin.numsub("redisson_lock__channel:{a}").await == 1).await;
        guard.unlock().await.unwrap();
        ends("the waiter of another client", waiting).await.unwrap();
        alone.unlock().await.unwrap();
    })
    .await;
}

bed::cases!(each_member_is_as_if_taken_alone:
    with_the_watchdog = Acquire::new(),
    with_a_lease = Acquire::new().lease(secs(777)),
);

#[tokio::test]
async fn members_of_other_flavours_cost_one_command_each() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        let mut members: Vec<_> = (0..300).map(|n| client.lock(Flavour::Reentrant, &format!("p{n}"))).collect();
        let others = [Flavour::Fenced, Flavour::Fair, Flavour::Read, Flavour::Write];
        members.extend(others.iter().map(|flavour| client.lock(*flavour, flavour.as_str())));
        members.push(client.lock(Flavour::Spin, "spin"));
        let lock = MultiLock::of(members);
        lock.lock().await.unwrap().unlock().await.unwrap();
        idle(&client).await;
        bed.admin.reset_stats().await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(bed.admin.calls("evalsha").await, 2 + 4);
        assert_eq!(guard.members().len(), 305);
        let tokens: Vec<_> = guard.members().iter().filter_map(|member| member.token).collect();
        assert_eq!(tokens, [2]);
        let me = guard.owner().clone();
        counts(&bed.admin, &me, &[("p0", 1), ("p299", 1), ("spin", 1), ("fair", 1), ("fenced", 1)]).await;
        assert!(lock.is_held_by(&me).await.unwrap());
        guard.unlock().await.unwrap();
        eventually("no key is left", async || bed.keys().await.is_empty()).await;
    })
    .await;
}

/// The login may not set a lease on the last name, and the other names already have leases. No lock without a lease may
/// be left.
#[tokio::test]
async fn refused_lease_leaves_no_keys() {
    reentrant(async |bed| {
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "on", ">SECRET", "~*", "&*", "+@all", "-pexpire"]).await;
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "(+pexpire ~a ~b)"]).await;
        let client = bed.connect(bed.builder().username("locks").password("SECRET").preflight(false)).await;
        let lock = client.multi(["a", "b", "c"]);
        for wait in [ms(0), secs(3600)] {
            let error = ends("an acquire that is refused", lock.lock_for(wait)).await.unwrap_err();
            assert!(matches!(error, Error::Server { .. }) && !error.outcome_unknown(), "{error:?}");
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// A server that accepts only scripts whose keys are in one slot. Names of several slots are acquired one by one, and
/// are one lock nevertheless.
#[tokio::test]
async fn names_of_several_slots_form_one_lock_on_cluster_node() {
    let make = |client: &distlock::Client, name: &str| client.lock(Flavour::Reentrant, name);
    run_on(bed::cluster_node().await, make, async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let lock = client.multi(["a", "b", "c", "d"]);
        for _ in 0..3 {
            let guard = lock.lock().await.unwrap();
            assert!(other.multi(["d", "x"]).try_lock().await.unwrap().is_none());
            counts(&bed.admin, guard.owner(), &[("a", 1), ("d", 1)]).await;
            guard.unlock().await.unwrap();
            only_keys(&bed.admin, &[]).await;
        }
        let theirs = other.reentrant("c").lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        only_keys(&bed.admin, &["c"]).await;
        theirs.unlock().await.unwrap();
        idle(&client).await;
        warm(&bed.admin, &client).await;
        let guard = client.multi(names(50)).lock().await.unwrap();
        assert_eq!(bed.admin.calls("evalsha").await, 1);
        guard.unlock().await.unwrap();
    })
    .await;
}
