//! A command whose reply is lost counts once.

use std::sync::Arc;

use bed::fault::brisk;
use bed::harm::{ACTIONS, runs};
use bed::{Bed, becomes, idle};
use distlock::{Client, Semaphore};
use distlock_support::proxy::{Action, Matcher, Proxy};

use crate::rig::{available, semaphores, with};

fn script(name: &str) -> Matcher {
    runs(&["common/once", name])
}

struct Rig {
    proxy: Arc<Proxy>,
    client: Client,
    /// Through the proxy.
    seats: Semaphore,
}

impl Rig {
    async fn start(bed: &Bed, name: &str) -> Self {
        let proxy = bed.proxy();
        let client = bed.connect(brisk(&proxy.url())).await;
        let seats = with(&client, name, 5).await;
        // The server knows all scripts.
        seats.acquire(1).await.unwrap();
        seats.release(1).await.unwrap();
        Self { proxy, client, seats }
    }
}

/// Runs a case for each way in which a command or its reply is lost, delayed or repeated.
async fn each(case: impl AsyncFn(&Bed, Rig, Action)) {
    semaphores(async |bed| {
        for (n, action) in ACTIONS.into_iter().enumerate() {
            let rig = Rig::start(bed, &format!("seats{n}")).await;
            case(bed, rig, action).await;
        }
    })
    .await;
}

#[tokio::test]
async fn acquire_in_doubt_takes_its_permits_once() {
    each(async |_, Rig { proxy, client, seats }, action| {
        let armed = proxy.on_request(script("semaphore/acquire"), action);
        seats.acquire(2).await.unwrap_or_else(|error| panic!("{action:?}: {error}"));
        drop(armed);
        idle(&client).await;
        becomes(&format!("{action:?}: free permits"), 3, async || available(&seats).await).await;
        seats.release(2).await.unwrap();
        assert_eq!(available(&seats).await, 5, "{action:?}");
    })
    .await;
}

#[tokio::test]
async fn single_attempt_in_doubt_takes_its_permits_or_none() {
    each(async |_, Rig { proxy, client, seats }, action| {
        let armed = proxy.on_request(script("semaphore/acquire"), action);
        let taken = seats.try_acquire(2).await;
        drop(armed);
        idle(&client).await;
        let expected = if matches!(taken, Ok(true)) { 3 } else { 5 };
        becomes(&format!("{action:?}: free permits after {taken:?}"), expected, async || available(&seats).await).await;
    })
    .await;
}

#[tokio::test]
async fn release_in_doubt_returns_its_permits_once() {
    each(async |_, Rig { proxy, client, seats }, action| {
        seats.acquire(3).await.unwrap();
        let armed = proxy.on_request(script("semaphore/release"), action);
        let released = seats.release(3).await;
        drop(armed);
        idle(&client).await;
        becomes(&format!("{action:?}: free permits after {released:?}"), 5, async || available(&seats).await).await;
    })
    .await;
}
