//! What the tests of the spin lock add to the bed.

use distlock::Flavour;

use bed::Bed;

/// Runs a test body over the spin lock.
pub async fn spin(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Spin, name), body).await;
}
