//! The copy of the repository in which mutants are planted.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::list::Mutant;

pub(crate) struct Tree {
    root: PathBuf,
}

/// A file that contains a mutant.
pub(crate) struct Planted {
    path: PathBuf,
    original: String,
}

impl Tree {
    /// Copies the tracked files of the working tree. Equal files are not written, so that they keep their times and
    /// cargo does not rebuild them.
    pub(crate) fn copy(source: &Path, root: &Path) -> Result<Self> {
        let files = tracked(source)?;
        fs::create_dir_all(root).map_err(|error| format!("{}: {error}", root.display()))?;
        remove_others(root, root, &files)?;
        for file in &files {
            copy(&source.join(file), &root.join(file))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the mutant's path, and the file without and with the defect. Fails unless `find` occurs exactly once.
    fn read(&self, mutant: &Mutant) -> Result<(PathBuf, String, String)> {
        let path = self.root.join(&mutant.file);
        let original = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let found = original.matches(&mutant.find).count();
        if found != 1 {
            let (name, file) = (&mutant.name, &mutant.file);
            return Err(format!(
                "{name}: its place is in {file} {found} times, not once; adapt `find` in mutants.toml"
            ));
        }
        let mutated = original.replacen(&mutant.find, &mutant.replace, 1);
        if mutated == original {
            return Err(format!("{}: changes nothing", mutant.name));
        }
        Ok((path, original, mutated))
    }

    pub(crate) fn check(&self, mutant: &Mutant) -> Result<()> {
        self.read(mutant).map(drop)
    }

    pub(crate) fn plant(&self, mutant: &Mutant) -> Result<Planted> {
        let (path, original, mutated) = self.read(mutant)?;
        write(&path, &mutated)?;
        Ok(Planted { path, original })
    }
}

impl Planted {
    pub(crate) fn restore(self) -> Result<()> {
        write(&self.path, &self.original)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Lists the tracked files that exist.
fn tracked(source: &Path) -> Result<BTreeSet<PathBuf>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(source).output();
    let listed = listed.map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(files.filter(|file| source.join(file).is_file()).collect())
}

/// Removes files that an earlier run copied and that the repository no longer has.
fn remove_others(root: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    let failed = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(root, &path, files)?;
        } else if path.strip_prefix(root).is_ok_and(|file| !files.contains(file)) {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| format!("{}: {error}", from.display());
    let text = fs::read(from).map_err(failed)?;
    match fs::read(to) {
        Ok(before) if before == text => return Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // `copy` keeps permissions: some files are programs.
    fs::copy(from, to).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A change of the crate may change the text that a mutant replaces. `./x mutants` would notice that too late.
    #[test]
    fn every_mutant_is_found_exactly_once_in_its_file() {
        let tree = Tree { root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../..") };
        let mutants = crate::list::read(&tree.root().join("tests/mutants/mutants.toml")).expect("the list is readable");
        let misplaced: Vec<_> = mutants.iter().filter_map(|mutant| tree.check(mutant).err()).collect();
        assert!(misplaced.is_empty(), "{misplaced:#?}");
    }

    /// A filter without a test would stop `./x mutants` after its builds. The last word of a filter `a::b::c` must be a
    /// part of the name of a function, module or file of the target, and the other words a part of any word.
    #[test]
    fn every_filter_of_a_mutant_names_something_in_its_target() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut unknown, mut names_of) = (Vec::new(), BTreeMap::new());
        for mutant in crate::list::read(&root.join("tests/mutants/mutants.toml")).expect("the list is readable") {
            let folder = match mutant.target() {
                crate::list::Target::Lib => root.join("src"),
                crate::list::Target::Test(name) => root.join("tests").join(name),
            };
            let (words, items) = names_of.entry(folder.clone()).or_insert_with(|| {
                let (mut words, mut items) = (BTreeSet::new(), BTreeSet::new());
                collect_names(&folder, &mut words, &mut items);
                (words, items)
            });
            let is_known = |names: &BTreeSet<String>, part: &str| names.iter().any(|name| name.contains(part));
            for filter in mutant.filters() {
                let (folders, last) = filter.rsplit_once("::").unwrap_or(("", filter));
                if !(is_known(items, last) && folders.split("::").all(|part| is_known(words, part))) {
                    unknown.push(format!("{}: {filter}", mutant.name));
                }
            }
        }
        assert!(unknown.is_empty(), "no test has a name that contains: {unknown:#?}");
    }

    /// Collects all words of the sources in a folder, and the names of its functions, modules and files.
    fn collect_names(folder: &Path, words: &mut BTreeSet<String>, items: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("an entry is readable").path();
            let stem = path.file_stem().map(|name| name.to_string_lossy().into_owned());
            words.extend(stem.clone());
            items.extend(stem);
            if path.is_dir() {
                collect_names(&path, words, items);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let of_file: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let named = of_file.windows(2).filter(|pair| matches!(pair[0], "fn" | "mod"));
            items.extend(named.map(|pair| pair[1].to_owned()));
            words.extend(of_file.into_iter().map(str::to_owned));
        }
    }
}
