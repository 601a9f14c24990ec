//! The commands that show locks and take them away: `inspect`, `list`, `top`, `unlock`, `dequeue`. Real servers, and
//! real processes of the command.

mod dequeue;
mod inspect;
mod list;
mod login;
mod million;
mod rig;
mod top;
mod unlock;
