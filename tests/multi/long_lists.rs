//! Lists of thousands of names, acquired by several scripts.

use distlock::{Acquire, Client, DistLock as _, Error, MultiLock};

use bed::{becomes, ends, idle, ms, reentrant, waiter};

fn long_list(client: &Client, count: usize) -> MultiLock {
    client.multi((0..count).map(|n| format!("m{n:05}")))
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
        let waiting = waiter(lock.clone());
        let listens = async || client.stats().waiting > 0 && !bed.admin.channels().await.is_empty();
        bed::eventually("it waits for the one that is held", listens).await;
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

/// Two locks list the same names in opposite orders, and a third lock has these names in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_in_reverse_order_do_not_deadlock() {
    reentrant(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let names: Vec<_> = (0..1_300).map(|n| format!("m{n:05}")).collect();
        let locks = [client.multi(&names), other.multi(names.iter().rev()), other.multi(&names[400..900])];
        let tasks = locks.map(|lock| {
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = ends("an acquire of a long list", lock.acquire(Acquire::new())).await.unwrap().unwrap();
                    guard.unlock().await.unwrap();
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
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
