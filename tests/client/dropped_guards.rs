//! A guard that is dropped in the instant it was taken is most likely a mistake: a warning tells, once a name.

use std::sync::Arc;

use distlock::{DistLock, RedLock};

use bed::{idle, ms, reentrant};

/// Keeps the warnings that guards were dropped unused.
#[derive(Clone, Default)]
struct Warnings(Arc<parking_lot::Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("dropped unused") {
            self.0.lock().push(text.0);
        }
    }
}

/// A guard that was used, or that lived for a while, is no mistake.
#[tokio::test]
async fn a_guard_that_is_dropped_at_once_is_warned_of_once_a_name() {
    // With one subscriber only, an event that another thread comes by first would be disabled for good.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    reentrant(async |bed| {
        let client = bed.client().await;
        let id = &client.id()[..8];
        for way in ["some", "let", "statement"] {
            let drop_at_once = async |name: &str| match way {
                "some" => assert!(client.reentrant(name).try_lock().await.unwrap().is_some()),
                "let" => {
                    let _ = client.reentrant(name).lock().await.unwrap();
                }
                _ => drop(client.multi([name]).lock().await.unwrap()),
            };
            let warned = async |name: &str| {
                drop_at_once(name).await;
                idle(&client).await;
                let told = warnings.0.lock();
                told.iter().filter(|told| told.contains(name) && told.contains("bind it")).count()
            };
            // A stall makes a guard live for a while. Then another name is tried.
            let mut names = (0..100).map(|n| format!("dropped-{way}-{id}-{n}"));
            let name = loop {
                let name = names.next().expect("a warning of one of a hundred guards");
                if warned(&name).await == 1 {
                    break name;
                }
            };
            assert_eq!(warned(&name).await, 1, "{way}: warned of twice");
        }
        warnings.0.lock().clear();
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
        idle(&client).await;
        assert_eq!(*warnings.0.lock(), [""; 0]);
        client.reentrant(&name("given")).force_unlock().await.unwrap();
    })
    .await;
}
