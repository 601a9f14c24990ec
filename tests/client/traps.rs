//! fred's traps, those that concern one server: each has a test, over the public client, that fails when our way around
//! the trap is taken out. Every test names the line that is the way around. Trap 11 (dropping every handle leaves connections and
//! fred's tasks behind; client.rs, `Handle`'s `Drop`, and node.rs, `Node`'s `Drop`) is in `lifecycle`.

mod commands;
mod connections;
mod messages;
mod sockets;
