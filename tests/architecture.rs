//! Checks which room of `src/` may use which other rooms. `docs/architecture.md` describes the rooms.
//!
//! A room is a folder or a file directly below `src/`. A room may use only the rooms before it in [`ROOMS`]. So no
//! import points upwards, and no two rooms use each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// All rooms, from the bottom to the top.
const ROOMS: &[&[&str]] = &[
    // Basics.
    &["world", "hash", "error", "owner", "names", "config", "runtime"],
    // Servers.
    &["transport", "topology"],
    // The engine, and the types that users see.
    &["state", "acquire", "capabilities", "engine", "guard", "client", "lock", "object", "group", "flavour"],
    // The flavours.
    &[
        "reentrant",
        "rwlock",
        "fair",
        "fenced",
        "spin",
        "plain",
        "multi",
        "redlock",
        "striped",
        "permits",
        "semaphore",
        "latch",
        "barrier",
    ],
    // Helpers over the flavours.
    &["lead", "job", "with", "methods"],
    // Configuration from files.
    &["settings", "redisson"],
    // The API without async.
    &["blocking"],
];

/// Libraries that only these rooms may use.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("fred", &["transport"]),
    ("distlock_wire", &["error", "config", "runtime", "transport"]),
    ("distlock_redisson_config", &["redisson"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// The room of a file, by its path below `src/`.
fn room(path: &Path) -> String {
    let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

/// The text without comments and without what is compiled for tests only: a module, or a single line.
fn production(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let mut depth = 0;
        for line in lines.by_ref() {
            depth += line.matches('{').count() as i64 - line.matches('}').count() as i64;
            if depth <= 0 && !line.trim_start().starts_with("#[") {
                break;
            }
        }
    }
    kept
}

/// The first names after each `prefix` in the text: `x` in `crate::x::y`, and both in `crate::{x::y, z}`.
fn named(text: &str, prefix: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            None => drop(names.insert(word(rest))),
            Some(list) => {
                let (mut depth, mut start) = (0, 0);
                for (n, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        ',' | '}' if depth == 0 => {
                            names.insert(word(list[start..n].trim_start()));
                            start = n + 1;
                            if c == '}' {
                                break;
                            }
                        }
                        '}' => depth -= 1,
                        _ => {}
                    }
                }
            }
        }
    }
    names.remove("");
    names
}

/// The rooms of the names that `lib.rs` exports: `Client` is of the room `client`.
fn exports() -> BTreeMap<String, String> {
    let library = production(&fs::read_to_string(root().join("src/lib.rs")).unwrap());
    let mut exports = BTreeMap::new();
    for room in ROOMS.iter().copied().flatten() {
        for name in named(&library, &format!("pub use {room}::")) {
            exports.insert(name, (*room).to_owned());
        }
    }
    exports
}

/// Number of `super::` that lead from the module of this file below `src/` to the root of the crate.
fn depth(path: &Path) -> usize {
    path.components().count() - usize::from(path.file_name().is_some_and(|name| name == "mod.rs"))
}

/// Lists the forbidden imports of a file below `src/`.
fn violations(path: &Path, text: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let rank = |name: &str| ROOMS.iter().copied().flatten().position(|known| *known == name);
    let (room, text) = (room(path), production(text));
    let Some(own) = rank(&room) else { return vec![format!("{room} is no room: put it into ROOMS")] };
    let from_root = named(&text, &"super::".repeat(depth(path)));
    let used = named(&text, "crate::").into_iter().chain(from_root);
    let above = used.filter_map(|name| {
        let used = exports.get(&name).unwrap_or(&name);
        rank(used).filter(|used| *used > own).map(|_| format!("{room} uses {used}, which is above it"))
    });
    let foreign = LIBRARIES.iter().filter_map(|(library, rooms)| {
        let is_used = text.contains(&format!("{library}::"));
        let is_forbidden = is_used && !rooms.contains(&room.as_str());
        is_forbidden.then(|| format!("{room} uses {library}, which is for {}", rooms.join(", ")))
    });
    above.chain(foreign).collect()
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let source = root().join("src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let (mut wrong, exports) = (Vec::new(), exports());
    for file in &files {
        let path = file.strip_prefix(&source).unwrap();
        if is_test(path) || matches!(room(path).as_str(), "lib" | "guide") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        wrong.extend(violations(path, &text, &exports).into_iter().map(|what| format!("{}: {what}", path.display())));
    }
    assert!(files.len() > 100, "only {} files were found", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The red control: what the test must find, and what it must not.
#[test]
fn upward_imports_are_found() {
    let exports = exports();
    assert_eq!(exports.get("Client").map(String::as_str), Some("client"), "{exports:?}");
    for (path, text, expected) in [
        ("engine/mod.rs", "use crate::client::Client;", 1),
        ("engine/mod.rs", "use crate::Client;", 1),
        ("engine/mod.rs", "use super::client::Client;", 1),
        ("engine/wait/mod.rs", "use super::super::client::Client;", 1),
        ("engine/mod.rs", "use crate::{error::Error, fair::{Fair, Queue}, names};", 1),
        ("transport/wire.rs", "fn f() { let x = crate::engine::x(); }", 1),
        ("topology/mod.rs", "use fred::clients::Client;", 1),
        ("pantry.rs", "", 1),
        ("engine/clock.rs", "use crate::error::{Error, Result};\nuse super::client;", 0),
        ("engine/mod.rs", "// crate::client\n#[cfg(test)]\nuse crate::client::Client;", 0),
        ("engine/mod.rs", "#[cfg(test)]\nmod tests {\n    use crate::client::Client;\n}\n", 0),
        ("engine/mod.rs", "#[cfg(test)]\nmod tests {\n}\nuse crate::client::Client;", 1),
        ("transport/node.rs", "use fred::clients::Client;", 0),
        ("client/builder.rs", "use crate::Client;", 0),
    ] {
        let found = violations(Path::new(path), text, &exports);
        assert_eq!(found.len(), expected, "{path}: {text:?}: {found:?}");
    }
}

#[test]
fn crates_below_distlock_do_not_depend_on_it() {
    for name in ["wire", "redisson-config"] {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let used = manifest.lines().any(|line| line.starts_with("distlock =") || line.starts_with("distlock-sim"));
        assert!(!used, "crates/{name} depends on distlock");
    }
}
