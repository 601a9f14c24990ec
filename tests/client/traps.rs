//! fred's traps, those that concern one server: a test each, over the public client, that fails
//! when our way around the trap is taken out. Every test names the line that is the way around.

mod commands;
mod connections;
mod messages;
mod sockets;
