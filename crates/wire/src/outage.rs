//! Reports the outage of one connection to the listener: its start once, and its end once. The listener counts broken
//! connections, so repeated reports would corrupt the count.

use crate::ListenerSlot;

/// Whether the listener was notified that this connection is broken.
#[derive(Debug, Default)]
pub struct Outage {
    is_told: bool,
}

impl Outage {
    /// Notes that the connection is broken. Further calls in the same outage report nothing.
    pub fn begins(&mut self, listener: &ListenerSlot) {
        if !self.is_told {
            self.is_told = listener.tell(|listener| listener.broken());
        }
    }

    /// Notes that the connection is up, perhaps for the first time.
    pub fn ends(&mut self, listener: &ListenerSlot) {
        if std::mem::take(&mut self.is_told) {
            listener.tell(|listener| listener.restored());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::Listener;

    #[derive(Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl Listener for Told {
        fn message(&self, _channel: &[u8], _payload: &[u8]) {}

        fn broken(&self) {
            self.0.lock().push("broken");
        }

        fn restored(&self) {
            self.0.lock().push("restored");
        }

        fn missed(&self) {}

        fn reconnected(&self) {}
    }

    #[test]
    fn each_outage_is_reported_once_and_its_end_once() {
        let told = Arc::new(Told::default());
        let as_listener: Arc<dyn Listener> = Arc::<Told>::clone(&told);
        let (mut outage, listener) = (Outage::default(), ListenerSlot::default());
        // No listener is set yet, and the connection has never been up.
        outage.begins(&listener);
        listener.set(Arc::downgrade(&as_listener));
        outage.ends(&listener);
        assert!(told.0.lock().is_empty());
        for _ in 0..2 {
            outage.begins(&listener);
            outage.begins(&listener);
            outage.ends(&listener);
            outage.ends(&listener);
        }
        assert_eq!(*told.0.lock(), ["broken", "restored", "broken", "restored"]);
    }
}
