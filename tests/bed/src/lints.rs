//! Rules about the test files themselves.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without tests of real servers.
const EXEMPT: [&str; 4] = ["sim", "bed", "support", "mutants"];

/// Files that may read a clock. None of them asserts a fixed limit on a duration.
const ALLOWED: [(&str, &str); 12] = [
    ("conformance/suite/expiry.rs", "whether a reply came within its lease: else the round is played again"),
    ("histories/partition.rs", "when a fault began, for the report"),
    ("histories/partition/cluster.rs", "when a fault began, for the report"),
    ("histories/resource.rs", "the time of an event, as processes share it"),
    ("interop/fair_rig.rs", "the order of turns in two processes"),
    ("interop/fleet_parts.rs", "which sections overlap, in several processes"),
    ("interop/fleet_processes.rs", "which sections overlap, in several processes"),
    ("interop/failover.rs", "compares speed with Redisson in one run; ./x test leaves it out"),
    ("open_slot/slot.rs", "the time in a prepared state"),
    ("open_slot/walk.rs", "how long a made state may be used again"),
    ("rw_model/rig.rs", "when a step of the model began and ended, by which its ends may be off"),
    ("sim_fidelity/cluster/net.rs", "how long a server remembers its vote"),
];

/// Files that set their own time limit for a wait, or compare times. Do not add entries: wait for an event
/// (`bed::ends`, `bed::becomes`), and put rules about time in `sim/timing`.
const BOUNDED: [(&str, &str); 15] = [
    ("acks/holders.rs", "whether a deadline has moved"),
    ("client/acl.rs", "a time of the server between two others"),
    ("client/durations.rs", "drops a connect that never ends"),
    ("client/lifecycle.rs", "waits until a deadline moves"),
    ("client/traps/commands.rs", "drops an acquire"),
    ("conformance/suite/waiting.rs", "drops acquires"),
    ("fair/rig.rs", "ends of leases by the server's clock"),
    ("interop/failover.rs", "compares speed with Redisson in one run; ./x test leaves it out"),
    ("interop/held.rs", "looks once, without a wait"),
    ("interop/rig.rs", "ends of leases by the server's clock"),
    ("multi/together.rs", "drops an acquire"),
    ("redlock/rig.rs", "one try of many"),
    ("reentrant/state.rs", "drops acquires"),
    ("spin/quiet.rs", "looks again and again"),
    ("striped/cancel.rs", "drops acquires"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `Cargo.toml` names the test binaries. The tests of a folder that it does not name would never run.
#[test]
fn every_folder_with_a_main_file_is_a_test_binary() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(tests.join("Cargo.toml")).unwrap();
    for entry in fs::read_dir(tests).unwrap() {
        let entry = entry.unwrap();
        let main = format!("{}/main.rs", entry.file_name().to_str().unwrap());
        let is_named = manifest.contains(&format!("path = \"{main}\""));
        assert_eq!(entry.path().join("main.rs").is_file(), is_named, "tests/Cargo.toml and tests/{main}");
    }
}

fn code() -> String {
    let mut files = Vec::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut files);
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// `docs/faults.md` must not name tests that were renamed. A name that ends in `..` is a prefix.
#[test]
fn tests_named_in_faults_page_exist() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/faults.md")).unwrap();
    let code = code();
    let is_test = |name: &&str| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_:.".contains(&byte))
            && name.rsplit("::").next().is_some_and(|last| last.matches('_').count() >= 3)
    };
    let names = page.split('`').skip(1).step_by(2).filter(is_test);
    let is_missing = |name: &&str| {
        let last = name.rsplit("::").next().unwrap();
        match last.strip_suffix("..") {
            Some(beginning) => !code.contains(&format!("fn {beginning}")),
            // A function, or a case of `bed::cases!`.
            None => !code.contains(&format!("fn {last}(")) && !code.contains(&format!(" {last} = ")),
        }
    };
    let missing: Vec<_> = names.filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/faults.md names tests that do not exist: {missing:#?}");
}

/// True if this file has a test function of this name: by an attribute, by `bed::cases!`, or by a list of
/// `conformance` or `interop`.
fn has_test(file: &str, name: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| line.contains(&format!("fn {name}("))) else { return false };
    let mut attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
    let lists = [include_str!("../../conformance/suite/mod.rs"), include_str!("../../interop/main.rs")];
    let in_list = format!("{}::{name}", Path::new(file).file_stem().unwrap_or_default().display());
    let is_listed = |word: &str| word.trim_end_matches([',', ')', ';']) == in_list;
    attributes.any(|attribute| attribute.contains("test"))
        || text.split("cases!(").skip(1).any(|cases| cases.split([' ', ':']).take(4).any(|word| word == name))
        || lists.iter().any(|list| list.split_whitespace().any(is_listed))
}

/// The last cell of a row has paths of files, each followed by the names of its tests. A row that says `holds` names
/// at least one test.
#[test]
fn tests_named_in_redisson_tests_page_exist() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/redisson-tests.md")).unwrap();
    let (mut named, mut wrong) = (0, Vec::new());
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let [_, _, outcome, tests] = cells[..] else { panic!("not four cells: {row}") };
        let (mut file, mut count) = ("", 0);
        for code in tests.split('`').skip(1).step_by(2) {
            if code.ends_with(".rs") {
                file = code;
            } else {
                count += 1;
                if !has_test(file, code) {
                    wrong.push(format!("{file}: {code}"));
                }
            }
        }
        if outcome.trim_start().starts_with("holds") && count == 0 {
            wrong.push(format!("no test: {row}"));
        }
        named += count;
    }
    assert!(named > 0 && wrong.is_empty(), "docs/redisson-tests.md: {wrong:#?}");
}

/// The script `x` filters tests by name. A filter that matches no test runs nothing, and passes.
#[test]
fn filters_of_x_match_a_test_or_a_module() {
    let x = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../x")).unwrap();
    let dozen =
        x.split_once("dozen=\"").and_then(|(_, rest)| rest.split_once('"')).expect("x has a list of a dozen tests").0;
    let modules = x
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .filter(|word| word.contains("::") && !word.contains('$'));
    let code = code();
    let is_unknown = |filter: &&str| match (filter.strip_prefix("conformance::"), filter.strip_suffix("::")) {
        (Some(flavour), _) => !code.contains(&format!("conformance!({flavour}")),
        (_, Some(module)) => !code.contains(&format!("mod {module};")) && !code.contains(&format!("mod {module} {{")),
        _ => !code.contains(&format!("fn {filter}(")),
    };
    let unknown: Vec<_> = dozen.split_whitespace().chain(modules).filter(is_unknown).collect();
    assert!(unknown.is_empty(), "x filters by names that no test has: {unknown:#?}");
}

/// `tempfile` alone does not remove a directory when the test process is killed.
#[test]
fn directories_of_tests_are_made_by_the_reaper() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(tests, &mut files);
    files.retain(|file| !file.ends_with("support/src/reaper.rs") && !file.ends_with("bed/src/lints.rs"));
    files.retain(|file| fs::read_to_string(file).unwrap().contains("tempfile::"));
    assert!(files.is_empty(), "these make directories by themselves (use support::reaper::Folder): {files:#?}");
}

/// The test files of real servers with at least one such line, as paths below `tests/`.
fn files_with(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for entry in fs::read_dir(tests).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        if folder.is_dir() && !EXEMPT.contains(&name.as_str()) {
            sources(&folder, &mut files);
        }
    }
    files.retain(|file| fs::read_to_string(file).unwrap().lines().any(&is_wanted));
    files.iter().map(|file| file.strip_prefix(tests).unwrap().to_str().unwrap().replace('\\', "/")).collect()
}

/// Checks that the list names exactly these files.
fn are_listed(files: &[String], list: &[(&str, &str)], what: &str) {
    let wrong: Vec<_> = files.iter().filter(|file| list.iter().all(|(listed, _)| listed != file)).collect();
    assert!(wrong.is_empty(), "these {what}: {wrong:#?}");
    let stale: Vec<_> = list.iter().filter(|(listed, _)| !files.iter().any(|file| file == listed)).collect();
    assert!(stale.is_empty(), "take these off the list of files that {what}: {stale:?}");
}

/// A slow machine would fail such tests. Rules about time are in tests/sim.
#[test]
fn tests_of_real_servers_read_no_clock() {
    let reads =
        |line: &str| ["Instant", "SystemTime", "monotonic_ns", ".elapsed("].iter().any(|clock| line.contains(clock));
    are_listed(&files_with(reads), &ALLOWED, "read a clock (move the rule to tests/sim/timing)");
}

/// Finds time limits without a clock type: waits with the test's own limit, times of the server, and deadlines.
#[test]
fn tests_of_real_servers_set_no_time_bounds() {
    let bounds = |line: &str| {
        let sets = ["time::timeout(", ".within(", "cmd(&[\"TIME\"", "deadline(&", ".deadline()"];
        // Harmless on a slow machine: generous limits, and events that must not happen.
        let harmless = ["PATIENCE", "LIMIT", "None", "is_err()", "fn "];
        sets.iter().any(|word| line.contains(word)) && !harmless.iter().any(|word| line.contains(word))
    };
    are_listed(&files_with(bounds), &BOUNDED, "bound a time (wait for an event: bed::ends, bed::becomes)");
}
