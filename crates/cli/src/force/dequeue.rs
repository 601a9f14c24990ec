//! `distlock dequeue NAME OWNER`: removes a waiter from the queue of a fair lock.
//!
//! For a waiter that is dead and still blocks the queue: a dead waiter of Java keeps its place for minutes. A live
//! waiter queues again, at the end. `dequeue.lua` changes the keys as the crate's scripts do for a dead waiter.
//!
//! Exit status: 0 if the waiter was removed, 1 if it was not in the queue.

use std::io::{IsTerminal as _, Write as _};

use bytes::Bytes;
use clap::builder::NonEmptyStringValueParser;

use crate::connect::{Raw, Servers, Target};
use crate::exit::Failure;
use crate::keys::show::{print, safe};
use crate::keys::{Language, Names, reply};

const SCRIPT: &str = include_str!("dequeue.lua");

/// Arguments of `dequeue`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The waiter, as `inspect` shows it: UUID:NUMBER
    owner: String,
    /// Does not ask
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("dequeue cannot ask, because stdin is no terminal: add --yes".to_owned()));
    }
    let servers = target.servers().await?;
    let outcome = dequeue(&args, &servers, target.prefix()).await;
    servers.close().await;
    outcome.map(|()| 0)
}

async fn dequeue(args: &Args, servers: &Servers, prefix: &str) -> Result<(), Failure> {
    let names = Names::new(format!("{prefix}{}", args.name));
    let raw = servers.of(&names.queue())?;
    let (name, owner) = (safe(&args.name), safe(&args.owner));
    let gone = || Failure::NotHeld(format!("{owner} does not wait for {name}: `distlock inspect` shows the queue"));
    if !args.yes {
        let (position, length) = place(raw, &names, &args.owner).await?.ok_or_else(gone)?;
        let language = Language::of(&args.owner).map_or("unknown", Language::as_str);
        let question = format!("Remove {owner} ({language}), number {position} of {length} in the queue of {name}?");
        if !tokio::task::spawn_blocking(move || confirm(&question)).await.unwrap_or(Ok(false))? {
            return Err(Failure::NotHeld("nothing was removed".to_owned()));
        }
    }
    let front = ["EVAL", SCRIPT, "4"].map(|word| Bytes::from_static(word.as_bytes()));
    let keys = [names.key.clone(), names.queue(), names.deadlines(), names.registrations()];
    let own = [Bytes::from(args.owner.clone()), names.channel()];
    let position = raw.call(front.into_iter().chain(keys).chain(own)).await?;
    match reply::int(&position) {
        Some(position @ 1..) => {
            print(&format!("{owner} was number {position} in the queue of {name}, and is removed\n"))?;
            Ok(())
        }
        _ => Err(gone()),
    }
}

/// The waiter's position, from 1, and the length of the queue. `None` = it is not in the queue.
async fn place(raw: &Raw, names: &Names, owner: &str) -> Result<Option<(usize, usize)>, Failure> {
    let [command, first, last] = ["LRANGE", "0", "-1"].map(|word| Bytes::from_static(word.as_bytes()));
    let queue = raw.call([command, names.queue(), first, last]).await?;
    let waiters = reply::list(&queue);
    let at = waiters.iter().position(|waiter| waiter.as_bytes() == Some(owner.as_bytes()));
    Ok(at.map(|at| (at + 1, waiters.len())))
}

/// Asks on the terminal. Anything but `y` or `yes` means no.
fn confirm(question: &str) -> std::io::Result<bool> {
    let mut out = std::io::stderr().lock();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    drop(out);
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
