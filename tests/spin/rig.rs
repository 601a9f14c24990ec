//! Helper of the spin lock's tests.

use distlock::Flavour;

use bed::Bed;

pub async fn spin(body: impl AsyncFn(&Bed)) {
    bed::run(|client, name| client.lock(Flavour::Spin, name), body).await;
}
