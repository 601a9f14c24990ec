//! Tries the rights of the login on a throw-away key of one server. `ACL DRYRUN` would need an administrator.

use bytes::Bytes;

use super::{texts, words};
use crate::connect::{Raw, Servers};
use crate::doctor::facts::{Refusal, Rights};
use crate::doctor::needs;
use crate::exit::Failure;

/// Tries commands and channels, and returns the refusals.
const PROBE: &str = include_str!("rights.lua");
/// Number of names to try. A primary with a hundredth of the slots has about a hundred of them.
const NAMES: u32 = 10_000;

/// Tries every right that any kind of lock needs.
///
/// # Errors
///
/// If the server runs no script, or refuses for another reason than the login's rights.
pub(super) async fn read(servers: &Servers, raw: &Raw, prefix: &str, is_sharded: bool) -> Result<Rights, Failure> {
    let id = servers.client().id();
    let name = |n: u32| format!("{prefix}distlock-doctor:{id}:{n}");
    let is_here = |name: &String| servers.of(name.as_bytes()).is_ok_and(|there| there.address() == raw.address());
    let Some(name) = (0..NAMES).map(name).find(is_here) else {
        return Err(Failure::Server("no name has a slot of this server".to_owned()));
    };
    // Otherwise a missing right to EVAL would look like missing rights to all keys.
    raw.call(["EVAL", "return 1", "0"]).await?;
    let mut rights = Rights::default();
    let keys = needs::all_keys();
    let tries = keys.iter().map(|key| words(&["EVAL", "return 1", "1", &key.example(&name)])).collect();
    for (key, reply) in keys.iter().zip(raw.calls(tries).await?) {
        match reply {
            Err(Failure::Server(why)) if Refusal::of(&why).is_some() => {
                rights.keys.insert(*key);
            }
            other => {
                other?;
            }
        }
    }
    // Without the right to the key, the server refuses the script as a whole.
    if !rights.keys.contains(&needs::NAME) {
        commands(raw, &name, is_sharded, &mut rights).await?;
    }
    Ok(rights)
}

async fn commands(raw: &Raw, name: &str, is_sharded: bool, rights: &mut Rights) -> Result<(), Failure> {
    let (channels, commands) = (needs::all_channels(), needs::all_commands());
    let examples: Vec<String> = channels.iter().map(|channel| channel.example(name)).collect();
    let publish = if is_sharded { "spublish" } else { "publish" };
    let mut call = words(&["EVAL", PROBE, "1", name, publish, &channels.len().to_string()]);
    call.extend(examples.iter().cloned().map(Bytes::from));
    call.extend(commands.iter().map(|command| Bytes::from_static(command.as_bytes())));
    let reply = texts(raw.call(call).await?);
    for pair in reply.chunks_exact(2) {
        let Some(refusal) = Refusal::of(&pair[1]) else { continue };
        if let Some(at) = examples.iter().position(|example| *example == pair[0]) {
            rights.channels.insert(channels[at]);
        } else if let Some(command) = commands.iter().copied().find(|command| *command == pair[0]) {
            rights.commands.insert(command, refusal);
        }
    }
    Ok(())
}
