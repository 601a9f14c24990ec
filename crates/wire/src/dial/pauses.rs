//! The back-off between attempts to connect.

use std::time::Duration;

/// The next pause: none before the first attempt, then 20 ms, doubled each time up to 2 s. Each pause is shortened at
/// random, by a quarter at most.
#[derive(Debug, Default)]
pub(crate) struct Pauses(u32);

/// After a connection that was up for this long, the next attempt follows at once.
const GOOD: Duration = Duration::from_secs(1);

impl Pauses {
    /// Sets the next pause after a connection that was up for `long`. `was_of_use`: the server has answered on it.
    /// After a short connection without an answer, the pauses keep growing, up to 320 ms. A server that only accepts
    /// connections is thus not dialled fifty times a second, and its recovery is noticed soon.
    pub(crate) fn stood(&mut self, long: Duration, was_of_use: bool) {
        self.0 = match (long >= GOOD, was_of_use) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => self.0.clamp(1, 5),
        };
    }

    pub(crate) async fn pause(&mut self) {
        if self.0 > 0 {
            let full = Duration::from_millis(20 << (self.0 - 1).min(7)).min(Duration::from_secs(2));
            tokio::time::sleep(full.mul_f64(1.0 - rand::random::<f64>() / 4.0)).await;
        }
        self.0 += 1;
    }
}
