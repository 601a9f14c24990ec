//! Checks the book in `docs/` without mdBook: the summary names each page, links and anchors resolve, code blocks are
//! doctests, and the page on proofs names tests and mutants that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use distlock_support::pages::anchors;

fn root() -> PathBuf {
    clean(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            part => clean.push(part),
        }
    }
    clean
}

/// Adds all files below the folder that have this extension.
fn files(folder: &Path, extension: &str, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|ending| ending == extension) {
            found.insert(path);
        }
    }
}

/// The pages of the book, without the summary.
fn pages() -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    files(&root().join("docs"), "md", &mut pages);
    pages.remove(&root().join("docs/SUMMARY.md"));
    pages
}

/// The text without code blocks and code spans. A span ends with its paragraph at the latest.
fn prose(text: &str) -> String {
    let mut kept = String::new();
    let (mut is_block, mut is_span) = (false, false);
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        is_span &= !is_fence && !line.trim().is_empty();
        if is_fence || is_block {
            continue;
        }
        for (at, part) in line.split('`').enumerate() {
            is_span ^= at > 0;
            if !is_span {
                kept.push_str(part);
            }
        }
        kept.push('\n');
    }
    kept
}

/// The targets of all links and images. A link may be broken over two lines, its target may not.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// Returns why the link of a page leads nowhere.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { clean(&page.parent().unwrap().join(file)) };
    if !path.exists() {
        return Some(format!("{}: {target}: no such file", page.display()));
    }
    let has_headings = path.extension().is_some_and(|ending| ending == "md");
    let is_missing = has_headings && !anchor.is_empty() && !anchors(&read(&path)).contains(anchor);
    is_missing.then(|| format!("{}: {target}: no such heading", page.display()))
}

#[test]
fn summary_names_each_page_once() {
    let summary = root().join("docs/SUMMARY.md");
    let named = links(&read(&summary));
    let paths: BTreeSet<PathBuf> = named.iter().map(|name| root().join("docs").join(name)).collect();
    assert_eq!(paths.len(), named.len(), "the summary names a page twice: {named:?}");
    let pages = pages();
    assert!(pages.len() > 25, "only {} pages were found", pages.len());
    let missing: Vec<_> = pages.difference(&paths).collect();
    let extra: Vec<_> = paths.difference(&pages).collect();
    assert!(missing.is_empty() && extra.is_empty(), "not in docs/SUMMARY.md: {missing:#?}; no such page: {extra:#?}");
}

#[test]
fn links_and_anchors_resolve() {
    let root = root();
    let mut texts = pages();
    for folder in ["crates", "tests"] {
        files(&root.join(folder), "md", &mut texts);
    }
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            texts.insert(path);
        }
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &texts {
        for target in links(&read(page)) {
            count += 1;
            wrong.extend(broken(page, &target));
        }
    }
    assert!(count > 200, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The red control: which links are found, and which are broken.
#[test]
fn broken_links_are_found() {
    let page = root().join("docs/start.md");
    for (text, expected) in [
        ("[a](leases.md)", 0),
        ("[a](leases.md#fenced-locks), [b](nothing.md)", 1),
        ("[a](leases.md#nothing)", 1),
        ("[two\nlines](#nothing)", 1),
        ("[a](#2-hold-a-lock)", 0),
        ("![a](nothing.svg)", 1),
        ("[a](../src/lib.rs#L1)", 0),
        ("[a](https://example.org/nothing)", 0),
        ("`[a](nothing.md)`", 0),
        ("`two\nlines`, [a](nothing.md)", 1),
        ("[`a`](nothing.md)", 1),
        ("```text\n[a](nothing.md)\n```", 0),
    ] {
        let found: Vec<_> = links(text).iter().filter_map(|target| broken(&page, target)).collect();
        assert_eq!(found.len(), expected, "{text:?}: {found:?}");
    }
    let twice = anchors("# One `two`, three?\n## A-b\n## A-b\n```sh\n# no heading\n```\n");
    assert_eq!(twice.into_iter().collect::<Vec<_>>(), ["a-b", "a-b-1", "one-two-three"]);
}

/// A page with Rust code is included in the rustdoc of the crate, which compiles the code.
#[test]
fn rust_code_of_each_page_is_a_doctest() {
    let root = root();
    let included = read(&root.join("src/guide.rs")) + &read(&root.join("src/lib.rs"));
    let mut texts = pages();
    texts.extend(["README.md", "README.zh-CN.md"].map(|name| root.join(name)));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &texts {
        let text = read(page);
        let mut fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```")).step_by(2);
        let name = page.strip_prefix(&root).unwrap().display().to_string();
        let has_rust = fences.clone().any(|fence| fence.starts_with("rust"));
        count += usize::from(has_rust);
        if has_rust && !included.contains(&format!("include_str!(\"../{name}\")")) {
            wrong.push(format!("{name}: neither src/guide.rs nor src/lib.rs includes it"));
        }
        if fences.any(|fence| fence.is_empty() || fence.contains("ignore")) {
            wrong.push(format!("{name}: a code block without a language, or one that is ignored"));
        }
    }
    assert!(count > 20, "only {count} pages with Rust code were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tables of `docs/proven.md` name tests and mutants. A name has two underscores or more.
#[test]
fn tests_and_mutants_named_in_proven_page_exist() {
    let root = root();
    let mut sources = BTreeSet::new();
    for folder in ["src", "tests", "models", "crates"] {
        files(&root.join(folder), "rs", &mut sources);
    }
    let code: String = sources.iter().map(|path| read(path)).collect();
    let mutants = read(&root.join("tests/mutants/mutants.toml"));
    let page = read(&root.join("docs/proven.md"));
    let spans = page.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_name = |span: &&str| {
        span.matches('_').count() >= 2
            && span.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let names: BTreeSet<&str> = spans.filter(is_name).collect();
    assert!(names.len() > 30, "only {} names were found", names.len());
    // A function, a case of `bed::cases!`, or a mutant.
    let exists = |name: &&&str| {
        code.contains(&format!("fn {name}("))
            || code.contains(&format!(" {name} = "))
            || mutants.contains(&format!("name = \"{name}\""))
    };
    let missing: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "docs/proven.md names what does not exist: {missing:#?}");
}
