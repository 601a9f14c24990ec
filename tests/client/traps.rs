//! fred's traps that concern one server. Each has a test over the public client that fails if our workaround is
//! removed. Each test names the line of the workaround. Trap 11 (dropping every handle leaves connections and fred's
//! tasks behind; engine/mod.rs, `Handle`'s `Drop`, and node.rs, `Node`'s `Drop`) is tested in `lifecycle`.

mod commands;
mod connections;
mod messages;
mod sockets;
