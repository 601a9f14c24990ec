//! The files in `redisson/`, and whether Redisson 4.7 and 3.52 can read them.

pub struct Sample {
    pub name: &'static str,
    /// Whether 4.7 and 3.52 can read the file.
    pub read_by: [bool; 2],
}

/// Redisson 4.0 removed `retryInterval`, and moved connection options to the root.
const fn sample(name: &'static str, by_4: bool, by_3: bool) -> Sample {
    Sample { name, read_by: [by_4, by_3] }
}

pub const OPEN: &[Sample] =
    &[sample("single-minimal", true, true), sample("single-docs", false, true), sample("single-locks", true, true)];

pub const CLOSED: &[Sample] = &[
    sample("single-spring", true, true),
    sample("single-acl-4", true, false),
    sample("single-userinfo", true, true),
    sample("single-json", true, true),
    sample("single-before-3.52", false, false),
];

pub const CLUSTER: &[Sample] = &[
    sample("cluster-docs", false, true),
    sample("cluster-nodes", true, true),
    sample("cluster-4", true, false),
    sample("cluster-before-3.52", false, false),
];

pub const SENTINEL: &[Sample] = &[
    sample("sentinel-docs", false, true),
    sample("sentinel-4", true, false),
    sample("sentinel-userinfo", true, true),
    sample("sentinel-before-3.52", false, false),
];

pub const REPLICATED: &[Sample] = &[
    sample("replicated-managed", false, true),
    sample("replicated-4", true, false),
    sample("master-slave", true, true),
    sample("master-slave-before-3.52", false, false),
];

pub fn all() -> impl Iterator<Item = &'static Sample> {
    [OPEN, CLOSED, CLUSTER, SENTINEL, REPLICATED].into_iter().flatten()
}
