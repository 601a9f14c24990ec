//! `distlock doctor`: finds what breaks locks on these servers.
//!
//! 1. `read` asks the servers, and stores the answers as `facts`.
//! 2. `checks` judges the facts: a table of pure functions.
//! 3. `report` prints the findings.

use std::time::Duration;

use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::keys::show;

mod checks;
mod facts;
mod needs;
mod read;
mod report;

use checks::Severity;
use facts::Wanted;
use needs::Kind;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Exit with status 1 if a finding is at least this severe
    #[arg(long, value_name = "SEVERITY", default_value = "risk")]
    fail_on: Severity,
    /// A kind of lock that must work with this login. For other kinds, missing rights are only a note. Can be given
    /// several times
    #[arg(long, value_name = "KIND", default_value = "reentrant")]
    flavour: Vec<Kind>,
    /// Report a latency above this limit, in ms: 99 % of 100 PINGs must be faster
    #[arg(long, value_name = "MS", default_value_t = 50)]
    latency_limit: u64,
}

/// Checks the servers, prints the report, and returns the exit status.
///
/// # Errors
///
/// The errors of connecting. Refusals of a server are part of the report.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    let servers = target.servers().await?;
    let wanted = Wanted {
        kinds: args.flavour,
        latency: Duration::from_millis(args.latency_limit),
        prefix: target.prefix().to_owned(),
    };
    let facts = read::all(&servers, target.primary_name().as_deref(), wanted).await;
    servers.close().await;
    let findings = checks::run(&facts);
    let text = if args.json {
        format!("{:#}\n", report::json(&facts, &findings))
    } else {
        report::text(&facts, &findings, show::is_coloured())
    };
    show::print(&text)?;
    let fails = findings.iter().any(|finding| finding.severity >= args.fail_on);
    Ok(if fails { exit::FOUND } else { 0 })
}
