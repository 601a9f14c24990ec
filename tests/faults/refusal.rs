//! Servers that refuse commands. `passing.rs` has the refusals that pass.

use distlock::{Acquire, Error, Flavour, Released};

use crate::fake::Fake;
use bed::fault::{refused, warm};
use bed::{PATIENCE, builder, enter, idle, reentrant, secs};

/// A refusal applies to one command, and not to later commands in flight on the same connection. If a command that ran
/// were reported as refused, its lock would stay held.
#[tokio::test]
async fn refusal_fails_only_its_own_command() {
    let fake = Fake::start().await;
    let client = builder(&fake.url()).connect().await.unwrap();
    for code in ["LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOAUTH", "OOM", "ERR"] {
        let mut waiting = false;
        let both = format!("-{code} and so on\r\n_\r\n").into_bytes();
        // The server sends no reply until the second acquire has arrived.
        fake.set(move |words| {
            let acquire = words.contains(&b"a".to_vec()) || words.contains(&b"b".to_vec());
            match (acquire, std::mem::replace(&mut waiting, acquire)) {
                (true, false) => None,
                (true, true) => Some(both.clone()),
                _ => Some(b":0\r\n".to_vec()),
            }
        });
        let (a, b) = (client.reentrant("a"), client.reentrant("b"));
        let (first, second) = tokio::join!(a.try_lock(), b.try_lock());
        refused(first, code);
        let guard = second.unwrap_or_else(|error| panic!("beside {code}: {error:?}"));
        fake.always(b":0\r\n");
        guard.expect("nil means held").unlock().await.unwrap();
    }
    client.shutdown(PATIENCE).await.unwrap();
}

/// A server that is out of memory writes nothing, but held locks can be renewed and released. `passing.rs` shows that
/// waits continue.
#[tokio::test]
async fn oom_refuses_acquires_and_lets_releases_through() {
    reentrant(async |bed| {
        let client = bed.connect(bed.still_builder().retry_attempts(0)).await;
        warm(&client).await;
        let (held, free) = (client.reentrant("held"), client.reentrant("free"));
        let guard = held.lock().await.unwrap();
        // Other clients may use this owner, so only the server knows how many holds it has.
        let me = client.owner();
        let known: Vec<_> = Flavour::ALL.iter().map(|of| (of, client.lock(*of, &format!("known {of}")))).collect();
        for (_, lock) in &known {
            drop(enter(&**lock, &me).await.into_owner());
        }
        bed.admin.config_set("maxmemory", "1").await;
        bed.admin.reset_stats().await;
        refused(free.try_lock().await, "OOM");
        refused(free.lock().await, "OOM");
        refused(free.lock_for(secs(60)).await, "OOM");
        assert_eq!(bed.admin.calls("evalsha").await, 3, "retried by a client without retries");
        refused(free.acquire(Acquire::new().owner(&client.owner())).await, "OOM");
        assert!(!bed.admin.exists("free").await);
        let renewed = client.renew_now().await;
        assert_eq!((renewed.renewed, renewed.failed, renewed.lost), (1, 0, 0));
        assert!(free.state().await.is_ok_and(|state| !state.is_locked()) && held.is_locked().await.unwrap());
        refused(guard.extend(secs(60)).await.map(|()| None::<()>), "OOM");
        guard.extend(secs(7200)).await.unwrap();
        assert_eq!(guard.unlock().await.unwrap(), Released::Free);
        for (flavour, lock) in &known {
            let released = lock.release(&me).await;
            assert_eq!(released.unwrap_or_else(|error| panic!("{flavour}: {error}")), Released::Free, "{flavour}");
        }
        assert!(!free.force_unlock().await.unwrap());
        bed.admin.config_set("maxmemory", "0").await;
        free.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// `conformance/suite/inputs.rs` has the other errors for such a key.
#[tokio::test]
async fn a_release_on_a_key_of_another_type_is_an_error() {
    reentrant(async |bed| {
        let client = bed.still_client().await;
        for make in [&["SET", "key", "x"][..], &["SADD", "key", "x"]] {
            let guard = client.reentrant("key").lock().await.unwrap();
            let () = bed.admin.cmd(&["DEL", "key"]).await;
            bed.admin.raw(make).await.expect("it becomes something else");
            let error = guard.unlock().await.unwrap_err();
            assert!(matches!(&error, Error::WrongType { .. }), "{make:?}: {error:?}");
            assert_eq!(bed.admin.cmd::<i64>(&["DEL", "key"]).await, 1, "{make:?}: it is left alone");
            idle(&client).await;
        }
    })
    .await;
}
