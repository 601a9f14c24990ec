//! `distlock dequeue NAME OWNER`: removes a waiter from the queue of a fair lock.
//!
//! For a waiter that is dead and still blocks the queue: a dead waiter of Java keeps its place for minutes. A live
//! waiter queues again, at the end.
//!
//! Exit status: 0 if the waiter was removed, 1 if it was not in the queue.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use distlock::Client;

use crate::connect::Target;
use crate::exit::Failure;
use crate::keys::Language;
use crate::keys::show::{print, safe};

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
    let client = target.client().await?;
    let outcome = dequeue(&args, &client).await;
    let _ = client.shutdown(Duration::ZERO).await;
    outcome.map(|()| 0)
}

async fn dequeue(args: &Args, client: &Client) -> Result<(), Failure> {
    let lock = client.fair(&args.name);
    let (name, owner) = (safe(&args.name), safe(&args.owner));
    let gone = || Failure::NotHeld(format!("{owner} does not wait for {name}: `distlock inspect` shows the queue"));
    if !args.yes {
        let waiters = lock.queue().await?.waiters;
        let ahead = waiters.iter().position(|waiter| waiter.owner == args.owner).ok_or_else(gone)?;
        let language = Language::of(&args.owner).map_or("unknown", Language::as_str);
        let (position, length) = (ahead + 1, waiters.len());
        let question = format!("Remove {owner} ({language}), number {position} of {length} in the queue of {name}?");
        if !tokio::task::spawn_blocking(move || confirm(&question)).await.unwrap_or(Ok(false))? {
            return Err(Failure::NotHeld("nothing was removed".to_owned()));
        }
    }
    let position = lock.dequeue(&args.owner).await?.ok_or_else(gone)? + 1;
    print(&format!("{owner} was number {position} in the queue of {name}, and is removed\n"))?;
    Ok(())
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
