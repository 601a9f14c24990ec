//! Guides: the pages of `docs/`.

#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}

#[doc = include_str!("../docs/owners.md")]
pub mod owners {}

#[doc = include_str!("../docs/leases.md")]
pub mod leases {}

#[doc = include_str!("../docs/revoke.md")]
pub mod revoke {}

#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}

#[doc = include_str!("../docs/read-write.md")]
pub mod read_write {}

#[doc = include_str!("../docs/groups.md")]
pub mod groups {}

#[doc = include_str!("../docs/permits.md")]
pub mod permits {}

#[doc = include_str!("../docs/in-doubt.md")]
pub mod in_doubt {}

#[doc = include_str!("../docs/wire-format.md")]
pub mod wire_format {}

#[doc = include_str!("../docs/clusters.md")]
pub mod clusters {}

#[doc = include_str!("../docs/other-libraries.md")]
pub mod other_libraries {}

#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/writing-a-flavour.md")]
pub mod writing_a_flavour {}

#[doc = include_str!("../docs/acl.md")]
pub mod acl {}

#[doc = include_str!("../docs/doctor.md")]
pub mod doctor {}

#[doc = include_str!("../docs/faults.md")]
pub mod faults {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("../docs/configuration.md")]
pub mod configuration {}

#[doc = include_str!("../docs/redisson-yaml.md")]
pub mod redisson_yaml {}

#[doc = include_str!("../docs/sentinel.md")]
pub mod sentinel {}

#[doc = include_str!("../docs/tls.md")]
pub mod tls {}
#[doc = include_str!("../docs/acknowledgement.md")]
pub mod acknowledgement {}

#[doc = include_str!("../docs/playbook.md")]
pub mod playbook {}

#[doc = include_str!("../docs/kubernetes.md")]
pub mod kubernetes {}

#[doc = include_str!("../docs/who-holds-it.md")]
pub mod who_holds_it {}

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
#[doc = include_str!("../docs/blocking.md")]
pub mod blocking {}

#[doc = include_str!("../docs/start.md")]
pub mod start {}

#[doc = include_str!("../docs/choose.md")]
pub mod choose {}

/// One page for each flavour: sequence, guarantees, cost, and what it is bad at.
pub mod flavours {
    #[doc = include_str!("../docs/flavours/reentrant.md")]
    pub mod reentrant {}

    #[doc = include_str!("../docs/flavours/fair.md")]
    pub mod fair {}

    #[doc = include_str!("../docs/flavours/read-write.md")]
    pub mod read_write {}

    #[doc = include_str!("../docs/flavours/fenced.md")]
    pub mod fenced {}

    #[doc = include_str!("../docs/flavours/spin.md")]
    pub mod spin {}

    #[doc = include_str!("../docs/flavours/plain.md")]
    pub mod plain {}

    #[doc = include_str!("../docs/flavours/multi.md")]
    pub mod multi {}

    #[doc = include_str!("../docs/flavours/redlock.md")]
    pub mod redlock {}

    #[doc = include_str!("../docs/flavours/striped.md")]
    pub mod striped {}
}

#[doc = include_str!("../docs/commit-then-unlock.md")]
pub mod commit_then_unlock {}

#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

#[cfg(doctest)]
#[doc = include_str!("../docs/migrating.zh-CN.md")]
pub mod migrating_zh_cn {}

#[doc = include_str!("../docs/java-checklist.md")]
pub mod java_checklist {}

#[doc = include_str!("../docs/n-replicas.md")]
pub mod n_replicas {}

#[doc = include_str!("../docs/at-most-n.md")]
pub mod at_most_n {}

#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/leader.md")]
pub mod leader {}

#[doc = include_str!("../docs/jobs.md")]
pub mod jobs {}

#[cfg(feature = "fred")]
#[cfg_attr(docsrs, doc(cfg(feature = "fred")))]
#[doc = include_str!("../docs/bring-your-client.md")]
pub mod bring_your_client {}
