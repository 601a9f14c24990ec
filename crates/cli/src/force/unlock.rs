//! `distlock unlock NAME --force`: frees a held lock.
//!
//! Exit status: 0 if the lock was held and is free now, 1 if it was free, 70 if this login may not read who holds it.
//!
//! `--flavour permits` deletes all permits of a name and their number. Acquires then wait until a number is set again,
//! so the keys alone never choose this flavour.

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use distlock::Flavour;

use crate::connect::{Servers, Target};
use crate::exit::Failure;
use crate::inspect::{self, Half, Report};
use crate::keys::MAYBE_FENCED;
use crate::keys::show::{print, safe};

/// The value of `--flavour` that deletes permits.
const PERMITS: &str = "permits";

/// Arguments of `unlock`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Required: the holder is not asked, and may still be at work
    #[arg(long)]
    force: bool,
    /// Flavour of the lock, if the keys do not show it; `permits` deletes all permits of the name and their number
    #[arg(long, value_name = "FLAVOUR", value_parser = kinds())]
    flavour: Option<Kind>,
}

/// Subject of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock(Flavour),
    Permits,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let names = Flavour::ALL.iter().map(|flavour| flavour.as_str()).chain([PERMITS]);
    PossibleValuesParser::new(names)
        .try_map(|name| if name == PERMITS { Ok(Kind::Permits) } else { name.parse::<Flavour>().map(Kind::Lock) })
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
    let kind = args.flavour.map_or_else(|| flavour(&report).map(Kind::Lock), Ok)?;
    if let Some(key_type) = &report.foreign
        && (kind, key_type.as_str()) != (Kind::Lock(Flavour::Plain), "string")
    {
        let name = safe(&args.name);
        return Err(Failure::Usage(format!("{name} is no lock: its key has the type {key_type}, and is not deleted")));
    }
    let text = match kind {
        Kind::Lock(flavour) => free(args, servers, &report, flavour).await?,
        Kind::Permits => delete(args, servers, &report).await?,
    };
    print(&text)?;
    Ok(())
}

/// Frees the lock. Returns the text for people.
async fn free(args: &Args, servers: &Servers, report: &Report, flavour: Flavour) -> Result<String, Failure> {
    if !servers.client().lock(flavour, &args.name).force_unlock().await? {
        return Err(not_locked(&args.name));
    }
    let shown = match report.flavour {
        Some(MAYBE_FENCED) if args.flavour.is_none() => MAYBE_FENCED,
        _ => flavour.as_str(),
    };
    let mut text = format!("{} was unlocked (flavour {shown})\n", safe(&args.name));
    for holder in &report.holders {
        text += &format!("it was held by {}\n", inspect::holder(report, holder));
    }
    Ok(text)
}

/// Deletes the permits. Returns the text for people.
async fn delete(args: &Args, servers: &Servers, report: &Report) -> Result<String, Failure> {
    let name = safe(&args.name);
    if !servers.client().permits(&args.name).delete().await? {
        return Err(Failure::NotHeld(format!("{name} has no permits")));
    }
    let mut text = format!("the permits of {name} and their number are deleted\n");
    for (id, _) in report.permits.iter().flat_map(|permits| &permits.holders) {
        text += &format!("it was held: permit {}\n", inspect::permit(report, id));
    }
    Ok(text)
}

fn not_locked(name: &str) -> Failure {
    Failure::NotHeld(format!("{} is not locked", safe(name)))
}

/// The flavour whose `force_unlock` frees what the keys show.
fn flavour(report: &Report) -> Result<Flavour, Failure> {
    let name = safe(&report.name);
    match report.flavour {
        // Spin and fenced locks have the same hash, and a fair lock without waiters has nobody to serve.
        Some("reentrant" | "fenced" | MAYBE_FENCED) => Ok(Flavour::Reentrant),
        Some("fair") => Ok(Flavour::Fair),
        Some("plain") => Ok(Flavour::Plain),
        Some("read-write") if report.half() == Some(Half::Write) => Ok(Flavour::Write),
        Some("read-write") => Ok(Flavour::Read),
        Some(PERMITS) => Err(Failure::Usage(format!(
            "{name} has permits. To delete all of them and their number, add --flavour permits: acquires then wait \
             until a number is set again, and the holders learn of it at their next renewal"
        ))),
        Some(other) => Err(Failure::Usage(format!(
            "{name} is no lock, but of the kind {other}, which has no holder that could be removed. Use --flavour if \
             it is a lock of another library"
        ))),
        None => Err(match report.foreign.as_deref() {
            Some("string") => Failure::NotHeld(format!(
                "{name} is no lock that is known: text without a lease. Add --flavour plain if it is a plain lock"
            )),
            Some(kind) => Failure::NotHeld(format!("{name} is no lock: its key has the type {kind}")),
            None => not_locked(&report.name),
        }),
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
        assert_eq!(of(Some(MAYBE_FENCED)), Ok(Flavour::Reentrant));
        assert_eq!(of(Some("fenced")), Ok(Flavour::Reentrant));
        assert_eq!(of(Some("fair")), Ok(Flavour::Fair));
        assert_eq!(of(Some("plain")), Ok(Flavour::Plain));
        assert_eq!(of(Some("read-write")), Ok(Flavour::Read));
        for (name, advice) in [("number", "no lock"), ("permits", "--flavour permits")] {
            assert!(matches!(of(Some(name)), Err(Failure::Usage(text)) if text.contains(advice)), "{name}");
        }
        assert_eq!(of(None).map_err(|failure| failure.code()), Err(NOT_HELD));
    }
}
