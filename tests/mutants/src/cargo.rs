//! Builds a test binary and runs some of its tests, within a time limit.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::list::Target;

const BUILDS_WITHIN: Duration = Duration::from_secs(1800);

/// Time that the other tests still get after a test has failed.
const AFTER_A_FAILURE: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_millis(100);

/// Settings that all runs share.
pub(crate) struct Cargo {
    root: PathBuf,
    build: PathBuf,
    logs: PathBuf,
}

pub(crate) struct Ran {
    pub(crate) log: PathBuf,
    pub(crate) is_built: bool,
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<String>,
    /// Tests that had run for over a minute and had not ended at the time limit.
    pub(crate) hung: Vec<String>,
    pub(crate) succeeded: bool,
    /// True if the run was killed at its time limit.
    pub(crate) timed_out: bool,
    pub(crate) build_took: Duration,
    pub(crate) tests_took: Duration,
}

impl Cargo {
    pub(crate) fn new(root: &Path, target: &Path) -> Result<Self> {
        let logs = target.join("logs");
        fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        let absolute = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
        Ok(Self { root: absolute(root)?, build: absolute(target)?.join("build"), logs: absolute(&logs)? })
    }

    /// Builds a test binary and runs the tests whose names contain one of the filters.
    pub(crate) fn test(
        &self,
        name: &str,
        target: &Target,
        filters: &[impl AsRef<str>],
        limit: Duration,
    ) -> Result<Ran> {
        let log = self.logs.join(format!("{}.log", name.replace(' ', "-")));
        let began = Instant::now();
        let built = self.run(self.command(target).arg("--no-run"), &log, BUILDS_WITHIN)?;
        let build_took = began.elapsed();
        let mut ran = Ran {
            log,
            is_built: built.is_some_and(|status| status.success()),
            passed: Vec::new(),
            failed: Vec::new(),
            hung: Vec::new(),
            succeeded: false,
            timed_out: false,
            build_took,
            tests_took: Duration::ZERO,
        };
        if !ran.is_built {
            return Ok(ran);
        }
        let output = read(&ran.log);
        let program = program(&output).ok_or_else(|| format!("no test binary in {}", ran.log.display()))?;
        let mut command = Command::new(self.root.join(program));
        command.args(filters.iter().map(AsRef::as_ref));
        let began = Instant::now();
        let status = self.run(&mut command, &ran.log, limit)?;
        ran.tests_took = began.elapsed();
        let output = read(&ran.log);
        let with = |end: &str| output.lines().filter_map(|line| test_of(line, end)).map(str::to_owned).collect();
        (ran.passed, ran.failed) = (with(" ... ok"), with(" ... FAILED"));
        ran.succeeded = status.is_some_and(|status| status.success());
        ran.timed_out = status.is_none();
        if ran.timed_out {
            ran.hung = with(" has been running for over 60 seconds");
            ran.hung.retain(|test| !ran.passed.contains(test) && !ran.failed.contains(test));
        }
        Ok(ran)
    }

    fn command(&self, target: &Target) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.arg("test").args(target.args());
        command
    }

    /// Runs a command with its output in the log. Returns None if the command was killed: at the limit, or some time
    /// after a test had failed.
    fn run(&self, command: &mut Command, log: &Path, limit: Duration) -> Result<Option<ExitStatus>> {
        let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let other = file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.build).env("CARGO_INCREMENTAL", "1");
        command.stdin(Stdio::null()).stdout(file).stderr(other);
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let mut until = Instant::now() + limit;
        let (mut has_failed, mut seen) = (false, 0);
        loop {
            if let Some(status) = child.try_wait().map_err(|error| format!("{}: {error}", log.display()))? {
                return Ok(Some(status));
            }
            let size = fs::metadata(log).map_or(0, |file| file.len());
            if !has_failed && size != seen {
                seen = size;
                has_failed = read(log).lines().any(|line| test_of(line, " ... FAILED").is_some());
                if has_failed {
                    until = until.min(Instant::now() + AFTER_A_FAILURE);
                }
            }
            if Instant::now() >= until {
                child.kill().and_then(|()| child.wait()).map_err(|error| format!("a run cannot be ended: {error}"))?;
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The path of the test binary in cargo's output: `  Executable tests/sim/main.rs (path)`.
fn program(output: &str) -> Option<&str> {
    let line = output.lines().rev().find(|line| line.trim_start().starts_with("Executable "))?;
    line.rsplit_once('(')?.1.strip_suffix(')')
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

/// Returns the test name of a line of the test harness that ends with `end`.
fn test_of<'a>(line: &'a str, end: &str) -> Option<&'a str> {
    let name = line.strip_prefix("test ")?.strip_suffix(end)?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}
