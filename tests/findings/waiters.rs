//! Waiters left behind (findings 9, 10, 14).
