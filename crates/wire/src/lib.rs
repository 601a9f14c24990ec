#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bounds;
mod call;
mod connection;
mod connections;
mod credentials;
mod demotions;
mod dial;
mod driver;
mod exchange;
mod fault;
mod lanes;
mod line;
mod link;
mod listener;
mod messages;
mod outage;
pub mod passing;
mod pipeline;
mod resp;
#[cfg(any(feature = "rustls", feature = "rustls-ring"))]
mod secure;
mod settings;
mod silence;
// Public for distlock only.
#[doc(hidden)]
pub mod slim;
// Public for distlock only.
#[doc(hidden)]
pub mod standstill;
#[cfg(test)]
mod tests;
pub mod tls;

pub use call::{Acknowledge, Arg, Call, FOREIGN, Replied, Reply, Script};
pub use connections::Connections;
pub use credentials::{Credentials, Provider, Secret};
pub use demotions::Demotions;
pub use dial::Target;
pub use fault::{ConnectError, ConnectFault, Fault, FaultKind};
pub use lanes::Lanes;
pub use line::MessageLine;
pub use link::Place;
pub use listener::{Listener, ListenerSlot};
pub use outage::Outage;
pub use settings::Settings;
pub use tls::Tls;
