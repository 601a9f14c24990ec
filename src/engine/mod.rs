pub(crate) mod script;
#[cfg(feature = "sim")]
pub mod sim;
pub(crate) mod transport;
