//! Guides: the pages of `docs/`.

#[doc = include_str!("../docs/semantics.md")]
pub mod semantics {}

#[doc = include_str!("../docs/owners.md")]
pub mod owners {}

#[doc = include_str!("../docs/leases.md")]
pub mod leases {}

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
