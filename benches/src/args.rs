//! The command line.

use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use crate::subject::Who;

const BENCHES: [&str; 17] = [
    "uncontended",
    "contended",
    "processes",
    "fair",
    "rw",
    "fenced",
    "spin",
    "plain",
    "multi",
    "striped",
    "permits",
    "semaphore",
    "latch",
    "red",
    "fleet",
    "held",
    "latency",
];

/// Compares distlock with the raw commands and its peers, on one private redis-server.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Benches to run; all if not given
    #[arg(long, value_name = "BENCH", value_delimiter = ',', hide_default_value = true)]
    #[arg(value_parser = PossibleValuesParser::new(BENCHES), default_values = BENCHES)]
    pub only: Vec<String>,
    /// Subjects to measure; all if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',', hide_default_value = true)]
    #[arg(value_enum, default_values_t = Who::ALL)]
    pub subjects: Vec<Who>,
    /// Fewer and shorter rounds: within 3 min
    #[arg(long)]
    pub quick: bool,
    /// Connections for commands, for distlock and the raw commands: 1 to 64
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64).map(usize::from))]
    pub pool: usize,
    /// File for the report
    #[arg(long, value_name = "PATH", default_value_os_t = report())]
    pub json: PathBuf,
    /// Fail if a target is missed
    #[arg(long)]
    pub check: bool,
    /// Passed by `cargo bench`
    #[arg(long = "bench", hide = true)]
    _bench: bool,
}

impl Args {
    pub fn wants(&self, bench: &str) -> bool {
        self.only.iter().any(|name| name == bench)
    }
}

fn report() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/bench/report.json")
}
