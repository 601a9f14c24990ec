//! Several locks as one (findings 17 to 20, 22).
