//! The table of checks: pure functions from facts to findings. `docs/doctor.md` has the same table for users.

use clap::ValueEnum;

use super::facts::{Facts, Server};

mod cluster;
mod network;
mod replication;
mod rights;
mod sentinel;
mod server;
mod storage;
#[cfg(test)]
pub(super) mod tests;

/// How bad a finding is, from harmless to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Severity {
    /// Worth knowing. Common on servers for development.
    Note,
    /// An event that must be expected (a restart, a failover, a burst) breaks locks.
    Risk,
    /// Locks do not work, or two clients may hold the same lock without any further event.
    Breaks,
}

/// A check, with the texts that all its findings share.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: &'static str,
    /// Why this breaks locks.
    pub(super) why: &'static str,
    /// The advice, unless the finding says it more exactly.
    pub(super) fix: &'static str,
    /// The page to read.
    pub(super) page: &'static str,
    find: fn(&Facts) -> Vec<Found>,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    severity: Severity,
    server: String,
    what: String,
    fix: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) rule: &'static Rule,
    pub(super) severity: Severity,
    /// The address of the server.
    pub(super) server: String,
    /// The value that was found.
    pub(super) what: String,
    pub(super) fix: String,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Risk => "risk",
            Self::Breaks => "breaks",
        }
    }
}

impl Found {
    fn new(severity: Severity, server: &str, what: impl Into<String>) -> Self {
        Self { severity, server: server.to_owned(), what: what.into(), fix: None }
    }

    fn at(severity: Severity, server: &Server, what: impl Into<String>) -> Self {
        Self::new(severity, &server.address, what)
    }

    fn fix(mut self, fix: String) -> Self {
        self.fix = Some(fix);
        self
    }
}

/// A finding at each server for which `judge` returns one.
fn each(facts: &Facts, judge: impl Fn(&Server) -> Option<(Severity, String)>) -> Vec<Found> {
    let found = |server: &Server| judge(server).map(|(severity, what)| Found::at(severity, server, what));
    facts.servers.iter().filter_map(found).collect()
}

/// All checks.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    let tables: [&'static [Rule]; 7] = [
        server::RULES,
        rights::RULES,
        storage::RULES,
        replication::RULES,
        cluster::RULES,
        sentinel::RULES,
        network::RULES,
    ];
    tables.into_iter().flatten()
}

/// Runs all checks. The worst findings come first; findings of one check stay together.
pub(super) fn run(facts: &Facts) -> Vec<Finding> {
    let find = |rule: &'static Rule| {
        (rule.find)(facts).into_iter().map(move |found| Finding {
            rule,
            severity: found.severity,
            server: found.server,
            what: found.what,
            fix: found.fix.unwrap_or_else(|| rule.fix.to_owned()),
        })
    };
    let mut findings: Vec<Finding> = rules().flat_map(find).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
