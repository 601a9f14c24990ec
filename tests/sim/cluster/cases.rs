//! Single scenes over a cluster.
