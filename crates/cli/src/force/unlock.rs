//! `distlock unlock NAME --force`: frees a lock, whoever holds it.
//!
//! Exit status: 0 if the lock was held and is free now, 1 if it was free.

use distlock::Flavour;

use crate::connect::{Servers, Target};
use crate::exit::Failure;
use crate::inspect::{self, Half, Report};
use crate::keys::show::{print, safe};

/// Arguments of `unlock`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the lock
    name: String,
    /// Required: the holder is not asked, and may still be at work
    #[arg(long)]
    force: bool,
    /// Flavour of the lock, if the keys do not show it: reentrant, fair, read, write, fenced, spin or plain
    #[arg(long, value_name = "FLAVOUR")]
    flavour: Option<Flavour>,
}

/// Runs the command.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    if !args.force {
        return Err(Failure::Usage(format!(
            "unlock frees {} while its holder may still be at work, and another owner may acquire it at once. The \
             holder learns of it at its next renewal. `distlock inspect` shows who holds it. Add --force to free it",
            safe(&args.name)
        )));
    }
    let servers = target.servers().await?;
    let outcome = unlock(&args, &servers, target.prefix()).await;
    servers.close().await;
    outcome.map(|()| 0)
}

async fn unlock(args: &Args, servers: &Servers, prefix: &str) -> Result<(), Failure> {
    let report = inspect::read(servers, prefix, &args.name).await?;
    let flavour = args.flavour.map_or_else(|| flavour(&report), Ok)?;
    let was_held = servers.client().lock(flavour, &args.name).force_unlock().await?;
    if !was_held {
        return Err(not_locked(&args.name));
    }
    let mut text = format!("{} is free now (flavour {flavour})\n", safe(&args.name));
    for holder in &report.holders {
        text += &format!("it was held by {}\n", inspect::holder(holder));
    }
    print(&text)?;
    Ok(())
}

fn not_locked(name: &str) -> Failure {
    Failure::NotHeld(format!("{} is not locked", safe(name)))
}

/// The flavour whose `force_unlock` frees what the keys show.
fn flavour(report: &Report) -> Result<Flavour, Failure> {
    match report.flavour {
        // Spin and fenced locks have the same hash, and a fair lock without waiters has nobody to serve.
        Some("reentrant" | "fenced") => Ok(Flavour::Reentrant),
        Some("fair") => Ok(Flavour::Fair),
        Some("plain") => Ok(Flavour::Plain),
        Some("read-write") if report.half() == Some(Half::Write) => Ok(Flavour::Write),
        Some("read-write") => Ok(Flavour::Read),
        Some(other) => Err(Failure::Usage(format!(
            "{} is no lock, but of the kind {other}, which has no holder that could be removed. Use --flavour if it is \
             a lock of another library",
            safe(&report.name)
        ))),
        None => Err(not_locked(&report.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::NOT_HELD;

    #[test]
    fn flavour_follows_the_report() {
        let of = |name: Option<&'static str>| flavour(&Report { flavour: name, ..Report::default() });
        assert_eq!(of(Some("reentrant")), Ok(Flavour::Reentrant));
        assert_eq!(of(Some("fenced")), Ok(Flavour::Reentrant));
        assert_eq!(of(Some("fair")), Ok(Flavour::Fair));
        assert_eq!(of(Some("plain")), Ok(Flavour::Plain));
        assert_eq!(of(Some("read-write")), Ok(Flavour::Read));
        assert!(matches!(of(Some("number")), Err(Failure::Usage(_))));
        assert_eq!(of(None).map_err(|failure| failure.code()), Err(NOT_HELD));
    }
}
