//! Leader election: candidates, terms and observers on real servers.

mod doubt;
mod five;
mod observers;
mod terms;

use bed::Bed;
use distlock::{Client, Flavour, Term};
use tokio::task::JoinHandle;

pub const NAME: &str = "reports";

pub async fn elections(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Fenced, name), body).await;
}

/// Waits in a task of its own until this client leads.
pub fn stands(client: &Client, payload: &str) -> JoinHandle<Term> {
    let candidate = client.lead(NAME).payload(payload);
    tokio::spawn(async move { candidate.next().await.unwrap_or_else(|error| panic!("next: {error:?}")) })
}

pub async fn leads(client: &Client, payload: &str) -> Term {
    bed::ends("the election", stands(client, payload)).await.unwrap()
}
