pub(crate) mod script;
pub(crate) mod transport;
