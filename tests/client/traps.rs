//! fred's traps that concern one server. For each trap, a test over the public client fails if our workaround is
//! removed. The test names the code of the workaround. Trap 11 (dropping every handle leaves connections and fred's
//! tasks behind; engine/mod.rs, `Handle`'s `Drop`, and node.rs, `Node`'s `Drop`) is tested in `lifecycle`.

mod commands;
mod connections;
mod messages;
mod sockets;
