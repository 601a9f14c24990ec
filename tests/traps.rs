//! fred's traps (`rust-ground.md` §B.2), those that concern one server: a test each, over the public client, that fails
//! when our way around the trap is taken out. Every test names the line that is the way around.

#[path = "traps/commands.rs"]
mod commands;
#[path = "traps/connections.rs"]
mod connections;
#[path = "traps/messages.rs"]
mod messages;
#[path = "traps/sockets.rs"]
mod sockets;
