//! Fair queues shared with Java (findings 8 and 12).
