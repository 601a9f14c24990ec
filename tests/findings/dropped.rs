//! Guards that are dropped at once (finding 15).

use std::sync::Arc;

use distlock::{DistLock, RedLock};

use bed::{idle, ms, reentrant, secs};

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

/// 15: a guard that is dropped in the instant it was taken is told of once a name; one that was used, or lived, is not.
#[tokio::test]
async fn n15_a_guard_dropped_at_once_is_told_of() {
    // With one subscriber only, an event that another thread comes by first would be dumb for good.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let warnings = Warnings::default();
    let _listening = tracing::subscriber::set_default(warnings.clone());
    reentrant(async |bed| {
        warnings.0.lock().clear();
        let client = bed.client().await;
        for round in 0..2 {
            // Another name every time that the machine stood still, and the test is run again.
            let id = &client.id()[..8];
            let names = ["some", "let", "semicolon"].map(|name| format!("n15-{name}-{id}"));
            assert!(client.reentrant(&names[0]).try_lock().await.unwrap().is_some());
            let _ = client.reentrant(&names[1]).lock().await.unwrap();
            client.multi([&names[2]]).lock_for(secs(1)).await.unwrap();
            idle(&client).await;
            let told = warnings.0.lock().clone();
            // As much later as the machine likes, it is no mistake any more.
            assert!(told.len() <= names.len() && told.len() + 1 >= names.len(), "round {round}: {told:?}");
            let all = told.iter().all(|told| told.contains("bind it") && names.iter().any(|name| told.contains(name)));
            assert!(all, "{told:?}");
        }
        warnings.0.lock().clear();
        let used = client.reentrant("n15-used").lock().await.unwrap();
        assert!(used.is_held());
        drop(used);
        client.reentrant("n15-unlocked").lock().await.unwrap().unlock().await.unwrap();
        let lived = client.reentrant("n15-lived").lock().await.unwrap();
        tokio::time::sleep(ms(5)).await;
        drop(lived);
        drop(client.reentrant("n15-given").lock().await.unwrap().into_owner());
        client.multi(["n15-a", "n15-b"]).lock().await.unwrap().unlock().await.unwrap();
        RedLock::new([client.clone()], "n15-red").lock().await.unwrap().unlock().await.unwrap();
        idle(&client).await;
        assert_eq!(*warnings.0.lock(), [""; 0]);
        client.reentrant("n15-given").force_unlock().await.unwrap();
    })
    .await;
}
