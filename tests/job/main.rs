//! `Client::once` and `with`, on real servers. `ticks` is about clocks that differ, in virtual time.

mod closed;
mod replicas;
mod ticks;
mod with;

use bed::Bed;
use distlock::{Client, Flavour};

pub const NAME: &str = "report";

pub async fn jobs(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Reentrant, name), body).await;
}

/// Opens the name, as the end of its lease does.
pub async fn open(bed: &Bed) {
    bed.admin.cmd::<()>(&["DEL", NAME]).await;
}

/// Runs an empty job. Returns whether it ran here.
pub async fn runs(client: &Client) -> bool {
    client.once(NAME, bed::secs(600), bed::secs(3600), async {}).await.unwrap().is_some()
}
