//! The command line.

use std::path::{Path, PathBuf};

use crate::subject::Who;

pub const USAGE: &str =
    "distlock-bench [--only BENCH[,BENCH]] [--subjects NAME[,NAME]] [--quick] [--pool N] [--json PATH] [--check]

  --only      uncontended, contended, processes, fair, rw, fenced, spin, multi, striped, red, held, latency; all of
              them unless said
  --subjects  distlock, raw, redisson, rslock, rlock; all of them unless said
  --quick     shorter and fewer rounds: within 3 min
  --pool      connections for commands, of distlock and of the raw commands; 1 unless said
  --json      where the report goes; target/bench/report.json unless said
  --check     fail when a target is missed";

/// The benches.
pub const BENCHES: [&str; 12] = [
    "uncontended",
    "contended",
    "processes",
    "fair",
    "rw",
    "fenced",
    "spin",
    "multi",
    "striped",
    "red",
    "held",
    "latency",
];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Args {
    pub only: Vec<String>,
    pub subjects: Vec<Who>,
    pub quick: bool,
    pub pool: usize,
    pub json: PathBuf,
    pub check: bool,
}

impl Args {
    /// Reads the command line. An error says what is wrong with it; an empty one asks for the usage.
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self {
            only: BENCHES.map(str::to_owned).to_vec(),
            subjects: Who::ALL.to_vec(),
            quick: false,
            pool: 1,
            json: Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/bench/report.json"),
            check: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--only" => {
                    args.only = value()?.split(',').map(str::to_owned).collect();
                    if let Some(odd) = args.only.iter().find(|name| !BENCHES.contains(&name.as_str())) {
                        return Err(format!("there is no bench {odd}: there are {}", BENCHES.join(", ")));
                    }
                }
                "--subjects" => {
                    let named = |name: &str| Who::named(name).ok_or_else(|| format!("there is no subject {name}"));
                    args.subjects = value()?.split(',').map(named).collect::<Result<_, _>>()?;
                }
                "--pool" => {
                    let pool = value()?.parse().ok().filter(|pool| (1..=64).contains(pool));
                    args.pool = pool.ok_or("--pool takes a number from 1 to 64")?;
                }
                "--json" => args.json = value()?.into(),
                "--quick" => args.quick = true,
                "--check" => args.check = true,
                "--help" | "-h" => return Err(String::new()),
                // `cargo bench` puts it there.
                "--bench" => {}
                other => return Err(format!("{other} is unknown")),
            }
        }
        Ok(args)
    }

    pub fn wants(&self, bench: &str) -> bool {
        self.only.iter().any(|name| name == bench)
    }
}
