//! Dropping a guard right after its acquire is most likely a mistake, so the client logs one warning per name.

use distlock::RedLock;

use super::rig::Warnings;
use bed::{idle, ms, reentrant};

/// A guard that was used, or that lived for a while, causes no warning.
#[tokio::test]
async fn guard_dropped_at_once_is_warned_about_once_per_name() {
    let (warnings, _listening) = Warnings::listen();
    reentrant(async |bed| {
        let client = bed.client().await;
        let id = &client.id()[..8];
        for way in ["some", "let", "statement"] {
            let warned = async |name: &str| {
                match way {
                    "some" => assert!(client.reentrant(name).try_lock().await.unwrap().is_some()),
                    "let" => {
                        let _ = client.reentrant(name).lock().await.unwrap();
                    }
                    _ => drop(client.multi([name]).lock().await.unwrap()),
                }
                idle(&client).await;
                warnings.count(&["dropped unused", "bind it", name])
            };
            // After a suspend of the machine, the guard has lived too long for a warning, and the test tries the next
            // name.
            let mut names = (0..100).map(|n| format!("dropped-{way}-{id}-{n};"));
            let name = loop {
                let name = names.next().expect("a warning of one of a hundred guards");
                if warned(&name).await == 1 {
                    break name;
                }
            };
            assert_eq!(warned(&name).await, 1, "{way}: warned of twice");
        }
        let before = warnings.count(&["dropped unused"]);
        let name = |what: &str| format!("{what}-{id}");
        let used = client.reentrant(&name("used")).lock().await.unwrap();
        assert!(used.is_held());
        drop(used);
        client.reentrant(&name("unlocked")).lock().await.unwrap().unlock().await.unwrap();
        let lived = client.reentrant(&name("lived")).lock().await.unwrap();
        tokio::time::sleep(ms(5)).await;
        drop(lived);
        drop(client.reentrant(&name("given")).lock().await.unwrap().into_owner());
        client.multi([name("a"), name("b")]).lock().await.unwrap().unlock().await.unwrap();
        RedLock::new([client.clone()], &name("red")).lock().await.unwrap().unlock().await.unwrap();
        // The fair lock of fair permits is an inner guard, which the user does not see.
        for n in 0..20 {
            let gate = client.permits(&name(&format!("gate-{n}"))).fair();
            assert!(gate.try_set_permits(1).await.unwrap());
            gate.acquire(1).await.unwrap().release().await.unwrap();
            assert!(gate.delete().await.unwrap());
        }
        idle(&client).await;
        assert_eq!(warnings.count(&["dropped unused"]), before, "a guard that was used was warned of");
        client.reentrant(&name("given")).force_unlock().await.unwrap();
    })
    .await;
}
