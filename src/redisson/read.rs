//! Builds a builder from the text of a file.

use super::address::{Place, Server};
use super::table::{self, Fate, ROOT, SECTIONS};
use super::take::{Login, Taken, Why};
use super::tree::{self, Fault, Kind, Node, Pair};
use super::variables::Filled;
use super::{LeftOut, RedissonConfig, RedissonYaml};
use crate::client::{Builder, Client};
use crate::config::Tls;
use crate::error::{Error, Result};

/// The given text, and the same text with its variables replaced.
struct Source<'a> {
    text: &'a str,
    filled: Filled,
}

impl Source<'_> {
    /// Line and column in the given text, from 1, of position `at` in the text with replaced variables.
    fn place(&self, at: usize) -> (usize, usize) {
        let (mut line, mut column) = (1, 1);
        for c in self.text.chars().take(self.filled.origin(at)) {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        (line, column)
    }

    fn left_out(&self, at: usize, path: &str, why: String) -> LeftOut {
        let (line, column) = self.place(at);
        LeftOut { path: path.to_owned(), line, column, why }
    }

    fn error(&self, at: usize, what: &str) -> Error {
        let (line, column) = self.place(at);
        Error::config(format!("Redisson's configuration, line {line}, column {column}: {what}"))
    }
}

/// A problem with the option `path`.
struct Problem {
    at: usize,
    path: String,
    why: String,
}

pub(super) fn read(
    text: &str,
    told: &RedissonYaml,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<RedissonConfig> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let too_long = || Error::config(format!("Redisson's configuration is longer than {} KiB", tree::LONGEST / 1024));
    if text.len() > tree::LONGEST {
        return Err(too_long());
    }
    let source = Source { text, filled: Filled::new(text, tree::LONGEST, variables) };
    if source.filled.text.len() > tree::LONGEST {
        return Err(too_long());
    }
    let root = tree::read(&source.filled.text).map_err(|Fault { at, what }| source.error(at, &what))?;
    let mut reading =
        Reading { source: &source, taken: Taken::default(), problems: Vec::new(), of_tls: Vec::new(), tls: None };
    reading.taken.told_prefix = told.name_prefix.clone();
    reading.tls = told.tls.clone();
    let builder = reading.all(&root).map_err(|Problem { at, path, why }| {
        source.error(at, &if path.is_empty() { why } else { format!("{path}: {why}") })
    })?;
    let mut problems = reading.problems;
    problems.sort_by_key(|problem| problem.at);
    let left_out: Vec<_> =
        problems.into_iter().map(|problem| source.left_out(problem.at, &problem.path, problem.why)).collect();
    if !left_out.is_empty() && !told.lenient {
        let all: Vec<_> = left_out.iter().map(ToString::to_string).collect();
        return Err(Error::config(format!(
            "Redisson's configuration has what cannot be taken over: {}. Take it out, or read leniently (RedissonYaml::lenient) to go \
             on without it",
            all.join("; ")
        )));
    }
    Ok(RedissonConfig { builder, left_out })
}

struct Reading<'a> {
    source: &'a Source<'a>,
    taken: Taken,
    problems: Vec<Problem>,
    /// Problems that only matter over TLS.
    of_tls: Vec<Problem>,
    /// TLS configuration that replaces the options for Java's certificates.
    tls: Option<Tls>,
}

impl Reading<'_> {
    fn all(&mut self, root: &Node) -> Result<Builder, Problem> {
        let wrong = |at: usize, path: &str, why: &str| Problem { at, path: path.to_owned(), why: why.to_owned() };
        let Kind::Map(pairs) = &root.kind else {
            return Err(wrong(root.at.start, "", "a map of options is expected here"));
        };
        let mut sections: Vec<(&Pair, u8)> = Vec::new();
        for pair in pairs {
            match SECTIONS.iter().find(|(name, _)| *name == pair.key) {
                Some(_) if is_null(&pair.value) => {}
                Some((_, section)) => sections.push((pair, *section)),
                None => self.option(ROOT, "", pair)?,
            }
        }
        let of_root = std::mem::take(&mut self.taken.login);
        let (pair, section) = match &sections[..] {
            [only] => *only,
            [] => {
                let names: Vec<_> = SECTIONS.iter().map(|(name, _)| *name).collect();
                let why = format!("no servers are named: one of {} is needed", names.join(", "));
                return Err(wrong(root.at.start, "", &why));
            }
            [(first, _), (second, _), ..] => {
                let why = format!("servers are named by {} already, and only one kind of them can be", first.key);
                return Err(wrong(second.at.start, &second.key, &why));
            }
        };
        let Kind::Map(options) = &pair.value.kind else {
            return Err(wrong(pair.value.at.start, &pair.key, "a map of options is expected here"));
        };
        for option in options {
            self.option(section, &pair.key, option)?;
        }
        // Since Redisson 4 the root overrides the section.
        let Login { username, password } = std::mem::take(&mut self.taken.login);
        let login = Login { username: of_root.username.or(username), password: of_root.password.or(password) };
        if self.taken.told_prefix.is_some() && !self.taken.is_mapped {
            let why = "the reader has a name prefix, and the file has no nameMapper: Java uses no prefix";
            return Err(wrong(pair.at.start, "nameMapper", why));
        }
        self.fit_timeout(&pair.key);
        let builder = self.builder(section, pair, login)?;
        Ok(builder)
    }

    /// Limits the command timeout to a third of the watchdog.
    fn fit_timeout(&mut self, section: &str) {
        let options = &mut self.taken.options;
        let most = options.watchdog / 3;
        if options.command_timeout <= most {
            return;
        }
        let Some(at) = self.taken.timeout_at else {
            // Redisson's default timeout, with a short watchdog.
            options.command_timeout = most;
            return;
        };
        let why = format!(
            "a command's {:?} are more than a third of the watchdog's {:?}, in which a renewal has to be tried twice; at most {most:?} \
             are possible",
            options.command_timeout, options.watchdog
        );
        options.command_timeout = most;
        self.problems.push(Problem { at, path: format!("{section}.timeout"), why });
    }

    fn option(&mut self, section: u8, parent: &str, pair: &Pair) -> Result<(), Problem> {
        let Pair { key, value, .. } = pair;
        let path = if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
        let at = value.at.start;
        match table::fate(key, section) {
            None => {
                let path = if is_shown(key) { path } else { parent.to_owned() };
                let why = match table::elsewhere(key) {
                    Some(place) => format!("this option belongs to {place}"),
                    None => "Redisson has no such option".to_owned(),
                };
                self.problems.push(Problem { at: pair.at.start, path, why });
                Ok(())
            }
            Some(Fate::Ignore) => Ok(()),
            Some(Fate::Certificates) if self.tls.is_some() || is_null(value) => Ok(()),
            Some(Fate::Certificates) => {
                let why = "Java key stores are not supported: give the reader PEM files (RedissonYaml::tls)";
                self.of_tls.push(Problem { at, path, why: why.to_owned() });
                Ok(())
            }
            Some(Fate::Take(take)) => {
                if let Some((at, why)) = self.unfilled(value) {
                    return Err(Problem { at, path, why });
                }
                match take(&mut self.taken, value) {
                    Ok(()) => {}
                    Err(Why::WrongAt(at, why)) => return Err(Problem { at, path, why }),
                    Err(Why::Wrong(why)) => return Err(Problem { at, path, why }),
                    Err(Why::Cannot(why)) => self.problems.push(Problem { at, path, why }),
                    Err(Why::CannotOverTls(why)) => self.of_tls.push(Problem { at, path, why }),
                }
                Ok(())
            }
        }
    }

    /// If a variable inside the node has no value: the node's place and a remedy.
    fn unfilled(&self, node: &Node) -> Option<(usize, String)> {
        let unfilled = self.source.filled.unfilled(&node.at)?;
        let name = &unfilled.name;
        let why = if unfilled.is_default_empty {
            format!(
                "Redisson does not read ${{{name}:-}}, a reference with an empty default: use ${{{name}}}, or give a default"
            )
        } else {
            format!("the variable {name} is not set, and has no default: ${{{name}:-default}}")
        };
        Some((node.at.start, why))
    }

    /// Builds the builder from all options read.
    fn builder(&mut self, section: u8, pair: &Pair, of_config: Login) -> Result<Builder, Problem> {
        let (at, path) = (pair.at.start, pair.key.as_str());
        let wrong = |why: &str| Problem { at, path: path.to_owned(), why: why.to_owned() };
        let taken = std::mem::take(&mut self.taken);
        let Some(first) = taken.servers.first() else {
            let name = match section {
                table::SINGLE => "address",
                table::SENTINEL => "sentinelAddresses",
                table::MASTER_SLAVE => "masterAddress",
                _ => "nodeAddresses",
            };
            return Err(wrong(&format!("{name} is missing")));
        };
        let is_like_first = |server: &Server| {
            let login = |server: &Server| {
                [&server.username, &server.password].map(|word| word.as_ref().map(|word| word.0.clone()))
            };
            server.is_secure == first.is_secure && login(server) == login(first)
        };
        if !taken.servers.iter().all(is_like_first) {
            return Err(wrong("all addresses have to have the same scheme, and the same login or none"));
        }
        let hosts: Vec<_> = taken
            .servers
            .iter()
            .map(|server| match &server.place {
                Place::Tcp(address) => address.to_string(),
                Place::Unix(path) => percent_encoding::utf8_percent_encode(path, PATH).to_string(),
            })
            .collect();
        let (hosts, secure) = (hosts.join(","), if first.is_secure { "s" } else { "" });
        let url = match section {
            table::CLUSTER => format!("redis{secure}-cluster://{hosts}"),
            // `redis-replicated://` with this one address, which must be the primary's. In this mode replicas
            // acknowledge acquires, as in Redisson; with `redis://` they would not.
            table::MASTER_SLAVE if matches!(first.place, Place::Unix(_)) => {
                return Err(wrong("masterAddress cannot be a socket of the file system"));
            }
            table::REPLICATED | table::MASTER_SLAVE => format!("redis{secure}-replicated://{hosts}"),
            table::SENTINEL => {
                let name = taken.master_name.as_deref().ok_or_else(|| wrong("masterName is missing"))?;
                format!("redis{secure}-sentinel://{hosts}/{}", percent_encoding::utf8_percent_encode(name, NAME))
            }
            _ if matches!(first.place, Place::Unix(_)) => format!("unix://{hosts}"),
            _ => format!("redis{secure}://{hosts}"),
        };
        if first.is_secure {
            self.problems.append(&mut self.of_tls);
        }
        // The login in an address overrides the options. The login in a sentinel's address is for the sentinels.
        let of_address = Login { username: first.username.clone(), password: first.password.clone() };
        let or = |one: Login, other: Login| Login {
            username: one.username.or(other.username),
            password: one.password.or(other.password),
        };
        let (login, of_sentinels) = match section {
            table::SENTINEL => (of_config, or(of_address, taken.sentinel_login)),
            _ => (or(of_address, of_config), Login::default()),
        };
        let mut options = taken.options;
        options.name_prefix = taken.told_prefix.unwrap_or_default();
        // Each option was checked before, so an error about their combination has no line of its own.
        options.validate().map_err(|error| wrong(&error.to_string()))?;
        let mut builder = Client::builder(&url).options(options).address_map(taken.address_map);
        if let Some(interval) = taken.scan_interval {
            builder = builder.scan_interval(interval);
        }
        if let Some(tls) = self.tls.take() {
            builder = builder.tls(tls);
        }
        if let Some(database) = taken.database {
            builder = builder.database(database);
        }
        for (word, set) in [
            (login.username, Builder::username as fn(Builder, String) -> Builder),
            (login.password, Builder::password),
            (of_sentinels.username, Builder::sentinel_username),
            (of_sentinels.password, Builder::sentinel_password),
        ] {
            if let Some(word) = word {
                builder = set(builder, word.0);
            }
        }
        Ok(builder)
    }
}

/// Characters of a path that are percent-encoded in a URL.
const PATH: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b'@');

/// Characters of a name between slashes that are percent-encoded.
const NAME: &percent_encoding::AsciiSet = &PATH.add(b'/').add(b',').add(b':');

fn is_null(node: &Node) -> bool {
    matches!(&node.kind, Kind::Scalar { text, is_plain: true } if node.tag.is_none() && super::value::is_null(text))
}

/// True if an error may repeat a key: it looks like a name, not like a misplaced secret.
fn is_shown(key: &str) -> bool {
    key.len() <= 64 && key.chars().all(|c| c.is_ascii_alphabetic())
}
