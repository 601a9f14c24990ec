//! Standstills of this process or of its machine: timers fire late, and answers are here that nobody has read.

use std::time::Duration;

/// A limit that is found overdue by so much was passed in a standstill, which says nothing about a server.
pub(crate) const OVERDUE: Duration = Duration::from_millis(25);

/// How long the reply to a command may take then: the server may have stood still as well.
pub(crate) const RECOVERY: Duration = Duration::from_millis(50);
