//! fred's traps (pitfalls) at a single server. For each trap, a test over the public client fails if our workaround is
//! removed. The test's doc names the code of the workaround. `lifecycle` tests trap 11 (dropping every handle leaves
//! connections and fred's tasks behind; engine/mod.rs, `Handle`'s `Drop`, and node.rs, `Node`'s `Drop`).
//! `faults::demoted` and `faults::passing` test trap 16 (a demoted server refuses every write for as long as the
//! connection lives; node/connection.rs, `Connection::run`).

mod commands;
mod connections;
mod messages;
mod sockets;
