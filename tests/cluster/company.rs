//! Callers whose calls share commands and servers with calls of other callers.

use distlock::{Acquire, DistLock, Error, Flavour};
use futures::future::join_all;

use crate::{FLAVOURS, client, end, lock, primaries, secs};

/// A login has rights to some names only. Calls for these names share commands with calls for other names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_names_do_not_fail_the_calls_they_share_a_command_with() {
    let cluster = primaries(1).await;
    let node = &cluster.nodes()[0];
    let user = ["ACL", "SETUSER", "some", "on", ">secret", "~mine:*", "~redisson*", "~*mine:*", "&*", "+@all"];
    node.admin().cmd::<()>(&user).await;
    let url = cluster.url().replace("://", "://some:secret@");
    let one = bed::builder(&url).connect().await.unwrap();
    for flavour in FLAVOURS {
        let error = lock(&one, flavour, "his").try_lock().await.unwrap_err();
        assert!(matches!(&error, Error::Server { message, .. } if message.contains("NOPERM")), "{flavour}: {error:?}");
        let all = (0..120).map(|n| {
            let is_mine = n % 3 > 0;
            let name = format!("{}:{flavour}:{n}", if is_mine { "mine" } else { "his" });
            let lock = lock(&one, flavour, &name);
            async move {
                for _ in 0..10 {
                    match lock.try_lock().await {
                        Ok(Some(guard)) if is_mine => drop(guard.unlock().await.unwrap()),
                        Err(Error::Server { message, .. })
                            if !is_mine && (message.contains("NOPERM") || message.contains("access")) => {}
                        odd => panic!("{} {odd:?}", lock.name()),
                    }
                }
            }
        });
        join_all(all).await;
    }
    let error = DistLock::try_lock(&one.multi(["his:1", "his:2"])).await.unwrap_err();
    assert!(matches!(&error, Error::Server { .. }), "{error:?}");
    let keys = node.admin().keys().await;
    assert!(!keys.iter().any(|key| key.contains("his")), "{keys:?}");
    node.admin().reset_stats().await;
    let guards = join_all((0..300).map(|n| {
        let lock = lock(&one, Flavour::Reentrant, &format!("mine:{n}"));
        async move { lock.lock().await.unwrap() }
    }))
    .await;
    assert_eq!(one.renew_now().await.renewed, 300);
    // The login loses the right to some of the held names. The other names are still renewed.
    let user = ["ACL", "SETUSER", "some", "resetkeys", "~mine:1*", "~*mine:1*"];
    node.admin().cmd::<()>(&user).await;
    let kept = guards.iter().filter(|guard| guard.name().starts_with("mine:1")).count();
    for _ in 0..12 {
        let round = one.renew_now().await;
        assert_eq!((round.renewed, round.lost), (kept, 0), "{round:?}");
    }
    node.admin().cmd::<()>(&["ACL", "SETUSER", "some", "allkeys"]).await;
    assert_eq!(one.renew_now().await.renewed, 300);
    let calls = node.admin().calls("evalsha").await;
    assert_eq!(one.renew_now().await.renewed, 300);
    let renewals = node.admin().calls("evalsha").await - calls;
    assert!(renewals < 20, "{renewals} scripts to renew 300 holds: the server gets no shared ones any more");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    end(one).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_locks_with_odd_names_succeed() {
    let cluster = primaries(2).await;
    let (one, other) = (client(&cluster).await, client(&cluster).await);
    let long = "x".repeat(4_000);
    let words = "0 1 -1 1e3 ! nil false ü€𝄞 {a} {a}1 {a}{b} x{y}z '\"\\ %d%s [[ ]]-- ERR READONLY CROSSSLOT";
    let phrases =
        [" ", "\n", "\r\n", "a\0b", "\0", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1", "user_script:1: x", &long];
    let names: Vec<&str> = words.split(' ').chain(phrases).collect();
    for flavour in FLAVOURS {
        let all = names.iter().flat_map(|name| std::iter::repeat_n(name, 4)).enumerate().map(|(n, name)| {
            let client = if n % 2 == 0 { one.clone() } else { other.clone() };
            let name = name.to_string();
            async move {
                let lock = lock(&client, flavour, &name);
                let name: String = name.chars().take(20).collect();
                for _ in 0..5 {
                    let guard = lock.acquire(Acquire::new().wait(secs(300))).await;
                    let guard =
                        guard.unwrap_or_else(|e| panic!("{flavour} {name:?}: {e}")).unwrap_or_else(|| panic!("{name}"));
                    guard.unlock().await.unwrap_or_else(|e| panic!("{flavour} {name:?}: {e}"));
                }
            }
        });
        join_all(all).await;
    }
    end(one).await;
    end(other).await;
}
