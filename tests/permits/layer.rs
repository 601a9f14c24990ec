//! The admission gate: a `tower` layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use distlock::{Error, Overloaded};
use futures::future::{BoxFuture, poll_fn};
use tokio::sync::Semaphore;
use tower_layer::Layer as _;
use tower_service::Service;

use crate::rig::{counts, permits, with};
use bed::{becomes, secs};

/// A service whose requests run until the test lets them go.
#[derive(Clone)]
struct Slow {
    running: Arc<AtomicU32>,
    go: Arc<Semaphore>,
}

impl Service<u32> for Slow {
    type Response = u32;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<u32, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        let Self { running, go } = self.clone();
        Box::pin(async move {
            running.fetch_add(1, Ordering::SeqCst);
            go.acquire().await.unwrap().forget();
            running.fetch_sub(1, Ordering::SeqCst);
            if request == 13 { Err(std::io::Error::other("thirteen")) } else { Ok(request * 2) }
        })
    }
}

#[tokio::test]
async fn requests_of_all_clients_beyond_the_permits_are_shed() {
    permits(async |bed| {
        let clients = [bed.client().await, bed.client().await];
        let gate = with(&clients[0], "checkout", 2).await;
        let slow = Slow { running: Arc::default(), go: Arc::new(Semaphore::new(0)) };
        let call = |n: usize, request: u32| {
            let mut service = clients[n].permits("checkout").layer(Duration::ZERO).layer(slow.clone());
            tokio::spawn(async move {
                poll_fn(|context| service.poll_ready(context)).await?;
                service.call(request).await
            })
        };
        let running = [call(0, 1), call(1, 13)];
        becomes("requests that run", 2, async || slow.running.load(Ordering::SeqCst)).await;
        let shed = call(0, 3).await.unwrap().unwrap_err();
        assert_eq!(shed.downcast_ref::<Overloaded>().map(Overloaded::name), Some("checkout"), "{shed}");
        slow.go.add_permits(2);
        let [one, other] = running;
        assert_eq!(one.await.unwrap().unwrap(), 2);
        assert_eq!(other.await.unwrap().unwrap_err().to_string(), "thirteen");
        becomes("free and held permits", (2, 0), async || counts(&gate).await).await;
    })
    .await;
}

#[tokio::test]
async fn request_waits_for_a_permit_and_is_cut_off_when_the_permit_is_lost() {
    permits(async |bed| {
        let client = bed.quick().await;
        let gate = with(&client, "checkout", 1).await;
        let held = gate.acquire(1).await.unwrap();
        let slow = Slow { running: Arc::default(), go: Arc::new(Semaphore::new(0)) };
        let mut service = gate.layer(secs(600)).layer(slow.clone());
        let waits = tokio::spawn(async move { service.call(1).await });
        becomes("waiters", 1, async || client.stats().waiting).await;
        held.release().await.unwrap();
        becomes("requests that run", 1, async || slow.running.load(Ordering::SeqCst)).await;
        gate.delete().await.unwrap();
        let error = waits.await.unwrap().unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Error::Lost { .. })), "{error}");
    })
    .await;
}
