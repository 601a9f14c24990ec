//! The report: text for people, JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::checks::{Finding, Severity};
use super::facts::{Facts, NotChecked, Server};

/// The link to a page: a path in the repository, or a URL if `Cargo.toml` names the repository's address.
fn link(page: &str) -> String {
    match env!("CARGO_PKG_REPOSITORY") {
        "" => page.to_owned(),
        repository => format!("{repository}/blob/main/{page}"),
    }
}

/// The role, address and version of a server.
fn title(server: &Server) -> String {
    let role = if server.is_primary() { "primary" } else { "replica" };
    let version = server.version().map(|(fork, version)| format!(" ({fork} {version})"));
    format!("{role} {}{}", server.address, version.unwrap_or_default())
}

fn paint(severity: Severity, is_coloured: bool) -> String {
    let colour = match severity {
        Severity::Breaks => 31,
        Severity::Risk => 33,
        Severity::Note => 36,
    };
    let name = severity.name();
    if is_coloured { format!("\x1b[{colour}m{name}\x1b[0m") } else { name.to_owned() }
}

pub(super) fn text(facts: &Facts, findings: &[Finding], is_coloured: bool) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    for server in &facts.servers {
        line(&title(server));
    }
    for sentinel in &facts.sentinels {
        line(&format!("sentinel {}", sentinel.address));
    }
    let is_same = |one: &Finding, other: &Finding| {
        (one.rule.id, one.severity, &one.fix) == (other.rule.id, other.severity, &other.fix)
    };
    for group in findings.chunk_by(is_same) {
        let first = &group[0];
        line(&format!("\n{}: {}", paint(first.severity, is_coloured), first.rule.id));
        for finding in group {
            line(&format!("  found  {}: {}", finding.server, finding.what));
        }
        line(&format!("  why    {}", first.rule.why));
        line(&format!("  do     {}", first.fix));
        line(&format!("  read   {}", link(first.rule.page)));
    }
    line("");
    for not in &facts.not_checked {
        line(&format!("not checked at {}: {} ({})", not.server, not.what, not.why));
    }
    let count = |severity: Severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let [breaks, risks, notes] = [Severity::Breaks, Severity::Risk, Severity::Note].map(count);
    line(&format!("findings: {breaks} breaks locks, {risks} risk, {notes} note"));
    out
}

pub(super) fn json(facts: &Facts, findings: &[Finding]) -> Value {
    let server = |server: &Server| {
        json!({
            "address": server.address,
            "role": if server.is_primary() { "primary" } else { "replica" },
            "version": server.version().map(|(fork, version)| format!("{fork} {version}")),
        })
    };
    let finding = |finding: &Finding| {
        json!({
            "id": finding.rule.id,
            "severity": finding.severity.name(),
            "server": finding.server,
            "found": finding.what,
            "why": finding.rule.why,
            "fix": finding.fix,
            "page": link(finding.rule.page),
        })
    };
    let not_checked = |not: &NotChecked| json!({ "server": not.server, "what": not.what, "why": not.why });
    json!({
        "servers": facts.servers.iter().map(server).collect::<Vec<_>>(),
        "sentinels": facts.sentinels.iter().map(|sentinel| sentinel.address.as_str()).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "not_checked": facts.not_checked.iter().map(not_checked).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use distlock::ServerRole;

    use super::*;
    use crate::doctor::checks::{run, tests::sound};

    fn evicting() -> Facts {
        let mut facts = sound();
        for address in ["b:1", "c:1"] {
            let mut server = facts.servers[0].clone();
            (server.address, server.role) = (address.to_owned(), ServerRole::Replica);
            server.info.insert("maxmemory", "100");
            server.info.insert("maxmemory_policy", "allkeys-lru");
            facts.servers.push(server);
        }
        let why = "CONFIG is refused".to_owned();
        facts.not_checked.push(NotChecked { server: "a:1".to_owned(), what: "settings", why });
        facts
    }

    #[test]
    fn text_states_reason_and_fix_once_for_all_servers() {
        let facts = evicting();
        let text = text(&facts, &run(&facts), false);
        assert_eq!(text.matches("  why ").count(), 1, "{text}");
        assert_eq!(text.matches("  found ").count(), 2, "{text}");
        let first = "\nbreaks: eviction\n  found  b:1: maxmemory-policy allkeys-lru, maxmemory 100\n";
        assert!(text.contains(first), "{text}");
        assert!(text.contains("\nnot checked at a:1: settings (CONFIG is refused)\n"), "{text}");
        assert!(text.ends_with("findings: 2 breaks locks, 0 risk, 0 note\n"), "{text}");
    }

    #[test]
    fn json_has_one_finding_per_server() {
        let facts = evicting();
        let report = json(&facts, &run(&facts));
        let findings = report["findings"].as_array().unwrap();
        let servers: Vec<_> = findings.iter().map(|finding| finding["server"].as_str().unwrap()).collect();
        assert_eq!(servers, ["b:1", "c:1"]);
        assert_eq!((&findings[0]["id"], &findings[0]["severity"]), (&json!("eviction"), &json!("breaks")));
        assert_eq!(report["not_checked"][0]["what"], "settings");
    }

    #[test]
    fn only_coloured_text_has_escape_codes() {
        let facts = evicting();
        let findings = run(&facts);
        assert!(text(&facts, &findings, true).contains("\x1b[31mbreaks\x1b[0m"));
        assert!(!text(&facts, &findings, false).contains('\x1b'));
    }
}
