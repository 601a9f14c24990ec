//! Plain members of one client, acquired by one script, or by several if there are thousands of names.

use distlock::{Acquire, Client, Error, Flavour, MultiLock};

use crate::rig::{counts, multi, only_keys, warm};
use bed::{becomes, ends, enter, eventually, idle, ms, reentrant, run_on, secs, waiter};

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{{tag}}:{i}")).collect()
}

fn long_list(client: &Client, count: usize) -> MultiLock {
    client.multi((0..count).map(|n| format!("m{n:05}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_acquires_250_names_and_renews_100() {
    const COUNT: usize = 10_000;
    reentrant(async |bed| {
        let client = bed.still_client().await;
        warm(&bed.admin, &client).await;
        let guard = client.multi(names(COUNT)).lock().await.unwrap();
        assert_eq!(bed.admin.calls("evalsha").await, COUNT as u64 / 250);
        assert_eq!((guard.members().len(), bed.admin.keys().await.len()), (COUNT, COUNT));
        bed.admin.reset_stats().await;
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.lost), (COUNT, 0));
        assert_eq!(bed.admin.calls("evalsha").await, COUNT as u64 / 100);
        bed.admin.reset_stats().await;
        guard.unlock().await.unwrap();
        let releases = bed.admin.calls("evalsha").await;
        assert!(releases <= COUNT as u64 / 4, "{releases} commands release {COUNT} names");
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

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

/// The login may not set a lease on the last name, and the other names already have leases. No lock without a lease may
/// be left.
#[tokio::test]
async fn refused_lease_leaves_no_keys() {
    reentrant(async |bed| {
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "on", ">SECRET", "~*", "&*", "+@all", "-pexpire"]).await;
        let () = bed.admin.cmd(&["ACL", "SETUSER", "locks", "(+pexpire ~a ~b)"]).await;
        let client = bed
            .connect(bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false))
            .await;
        let lock = client.multi(["a", "b", "c"]);
        for wait in [ms(0), secs(3600)] {
            let error = ends("an acquire that is refused", lock.lock_for(wait)).await.unwrap_err();
            assert!(matches!(error, Error::Server { .. }) && !error.outcome_unknown(), "{error:?}");
            only_keys(&bed.admin, &[]).await;
        }
    })
    .await;
}

/// A login with the right to each name, but not to both in one command (selectors of Redis 7).
#[tokio::test]
async fn names_of_separate_key_rights_form_one_lock() {
    reentrant(async |bed| {
        let rights = ["~ok*", "~{ok*}:*", "~*:{ok*}*", "(+@all ~also* ~{also*}:* ~*:{also*}*)"];
        let user = ["ACL", "SETUSER", "locks", "on", ">SECRET", "+@all", "&*"];
        if bed.admin.raw(&[&user[..], &rights].concat()).await.is_err() {
            return distlock_support::skip("key rights in selectors: this server has none");
        }
        let client = bed
            .connect(bed.builder().username("locks").password("SECRET").configure(|options| options.preflight = false))
            .await;
        let guard = client.multi(["ok", "also"]).try_lock().await.unwrap().expect("nobody holds them");
        counts(&bed.admin, guard.owner(), &[("ok", 1), ("also", 1)]).await;
        guard.unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
    })
    .await;
}

/// A server that accepts only scripts whose keys are in one slot. Names of several slots are acquired one by one, and
/// are one lock nevertheless.
#[tokio::test]
async fn names_of_several_slots_form_one_lock_on_cluster_node() {
    let make = |client: &Client, name: &str| client.lock(Flavour::Reentrant, name);
    run_on(bed::cluster_node().await, make, async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let lock = client.multi(["a", "b", "c", "d"]);
        let guard = lock.lock().await.unwrap();
        assert!(other.multi(["d", "x"]).try_lock().await.unwrap().is_none());
        counts(&bed.admin, guard.owner(), &[("a", 1), ("d", 1)]).await;
        guard.unlock().await.unwrap();
        only_keys(&bed.admin, &[]).await;
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

/// The busy name is in the last of six batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_list_is_acquired_entirely_or_not_at_all() {
    reentrant(async |bed| {
        let (client, other) = (bed.still_client().await, bed.still_client().await);
        let lock = long_list(&client, 1_300);
        let late = other.reentrant("m01200").lock().await.unwrap();
        let only = vec!["m01200".to_owned()];
        assert!(lock.try_lock().await.unwrap().is_none());
        bed::waits_in_vain(ms(700), async |wait| lock.lock_for(wait).await).await;
        idle(&client).await;
        assert_eq!(bed.admin.keys().await, only);
        let waiting = waiter(lock);
        let listens = async || client.stats().waiting > 0 && !bed.admin.channels().await.is_empty();
        eventually("it waits for the one that is held", listens).await;
        becomes("keys while it waits", only, async || bed.admin.keys().await).await;
        bed.admin.reset_stats().await;
        late.unlock().await.unwrap();
        let (guard, _) = ends("the waiter", waiting).await.unwrap();
        let sent = bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
        assert_eq!(guard.members().len(), 1_300);
        assert!(sent <= 20, "{sent} commands");
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn list_with_too_many_names_is_refused() {
    reentrant(async |bed| {
        let client = bed.client().await;
        let refused = long_list(&client, 70_000).try_lock().await;
        let Err(Error::Config { what }) = refused else { panic!("{:?}", refused.map(|guard| guard.is_some())) };
        assert!(what.contains("65536"), "{what}");
        // A name that is listed many times counts as one lock.
        let few = client.multi((0..70_000).map(|n| format!("n{}", n % 10)));
        assert_eq!(few.locks().len(), 10);
        few.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}
