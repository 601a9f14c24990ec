//! How the connections to one endpoint follow a failover behind it: a load balancer, a proxy or a DNS name now leads to
//! a new primary, and the old one lives on as a replica. A connection that stays at the old primary reads stale data: a
//! release finds no lock there.
//!
//! 1. A connection that is refused by a replica (`READONLY`) dials again.
//! 2. When that connection is up again, it adds one to the endpoint's count of reports.
//! 3. Every connection notes the count before it dials. When the count rises later, the connection is replaced once.
//!    Commands in flight on it are in doubt, as with a lost connection.
//!
//! The report comes before any reply of the new connection is passed on. Other connections pass on no reply that was
//! read after a report. So after a lock was acquired at the new primary through the reporter, no caller gets a reply of
//! the old primary that lacks the lock.
//!
//! Nothing is reported when the refusal arrives: the other connections would dial at once, might still reach the old
//! primary, and would stay there. A dial that begins after the report reaches the same server as the reporter, or a
//! later primary.
//!
//! One gap remains: a reporter that dialled before the endpoint was switched is back at the old primary. Its next write
//! is refused, and it dials again. Until then, its replies may say that a lock is free although others have acquired it
//! at the new primary. The same gap exists if a connection breaks by itself and reaches the new primary: it reports
//! nothing, so the other connections stay at the old primary until a command is refused.
//!
//! The reconnects stop: a connection that is replaced by rule 3 reports nothing, and the new primary refuses no
//! command. Until then, the back-off (`dial/pauses.rs`) limits them.

use std::sync::Arc;

use tokio::sync::watch;

/// The reports of an endpoint, as one of its connections sees them. Cloned for each connection.
#[derive(Clone, Debug)]
pub struct Demotions {
    reports: Arc<watch::Sender<u64>>,
    seen: watch::Receiver<u64>,
    /// Number of reports before the connection was last dialled.
    dialed: u64,
}

impl Default for Demotions {
    fn default() -> Self {
        let (reports, seen) = watch::channel(0);
        Self { reports: Arc::new(reports), seen, dialed: 0 }
    }
}

impl Demotions {
    /// Returns the number of reports of all connections.
    pub fn count(&self) -> u64 {
        *self.reports.borrow()
    }

    /// Returns the count that this connection noted at its last dial, or with its own report.
    pub const fn dialed(&self) -> u64 {
        self.dialed
    }

    /// Notes the current count. Called before the connection is dialled.
    pub fn dials(&mut self) {
        self.dialed = *self.seen.borrow_and_update();
    }

    /// Reports that this connection was refused by a demoted server, and is up again.
    pub fn report(&mut self) {
        self.reports.send_modify(|count| *count += 1);
        let count = *self.seen.borrow_and_update();
        if count == self.dialed + 1 {
            // A connection does not follow its own report.
            self.dialed = count;
        } else {
            self.seen.mark_changed();
        }
    }

    /// Returns true if another connection has reported a demotion since this connection was dialled.
    pub fn is_behind(&self) -> bool {
        // Never an error: `reports` lives as long as `self`.
        self.seen.has_changed().unwrap_or(false)
    }

    /// Waits until another connection reports a demotion.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no report is lost if the future is dropped.
    pub async fn reported(&mut self) {
        // Never an error, as above.
        let _ = self.seen.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_follows_reports_of_others_after_its_dial() {
        let mut one = Demotions::default();
        let mut other = one.clone();
        one.dials();
        one.report();
        assert!(!one.is_behind(), "its own report");
        assert!(other.is_behind());
        other.dials();
        assert!(!other.is_behind());
        assert_eq!((one.dialed(), other.dialed(), one.count()), (1, 1, 1));
    }

    /// Each may have reached the old primary before the other was up.
    #[test]
    fn two_connections_that_dial_at_once_both_follow_and_neither_reports_again() {
        let mut one = Demotions::default();
        let mut other = one.clone();
        one.dials();
        other.dials();
        one.report();
        other.report();
        assert!(one.is_behind() && other.is_behind());
        one.dials();
        other.dials();
        assert!(!one.is_behind() && !other.is_behind());
        assert_eq!(one.count(), 2);
    }
}
