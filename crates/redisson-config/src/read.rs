//! Reads a whole file: finds the section of the servers, takes each option, then checks options against each other.

use std::time::Duration;

use crate::address::{Server, is_socket};
use crate::table::{self, Fate, ROOT, SECTIONS, Section};
use crate::take::{Why, over_tls};
use crate::tree::{self, LONGEST, Node, Pair};
use crate::variables::Filled;
use crate::{Config, Error, Kind, LeftOut, Reader};

/// Redisson's default for `lockWatchdogTimeout`.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Redisson's default for `timeout`.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The longest prefix of names that distlock takes, in bytes.
const LONGEST_PREFIX: usize = 2048;

/// The options read so far.
pub(crate) struct Reading<'a> {
    pub(crate) reader: Reader<'a>,
    filled: Filled<'a>,
    /// `config.login` is the login of the section being read: the root, or the section of the servers.
    pub(crate) config: Config,
    pub(crate) servers: Vec<Server>,
    /// True if the file has a name mapper other than Redisson's default.
    pub(crate) has_mapper: bool,
    /// Options that are left out, each with its place in the filled text.
    left_out: Vec<(usize, LeftOut)>,
    /// Options that are left out only if the file uses TLS.
    of_tls: Vec<(usize, LeftOut)>,
}

pub(crate) fn read(text: &str, reader: Reader<'_>) -> Result<Config, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let filled =
        Some(text).filter(|text| text.len() <= LONGEST).map(|text| Filled::new(text, LONGEST, reader.variables));
    let filled = filled.filter(|filled| filled.text.len() <= LONGEST).ok_or(Error::TooLong)?;
    let root = tree::read(&filled)?;
    let (config, servers, left_out, of_tls) = (Config::default(), Vec::new(), Vec::new(), Vec::new());
    let mut reading = Reading { reader, filled, config, servers, has_mapper: false, left_out, of_tls };
    reading.root(&root)?;
    let Reading { config, mut left_out, mut of_tls, .. } = reading;
    if config.is_tls {
        left_out.append(&mut of_tls);
    }
    left_out.sort_by_key(|(at, _)| *at);
    Ok(Config { left_out: left_out.into_iter().map(|(_, option)| option).collect(), ..config })
}

impl Reading<'_> {
    /// Refuses the file because of this option.
    fn wrong(&self, at: usize, path: &str, why: &str) -> Error {
        self.filled.error(at, format!("{path}: {why}"))
    }

    fn left_out(&self, at: usize, path: String, why: impl Into<String>) -> (usize, LeftOut) {
        let (line, column) = self.filled.place(at);
        (at, LeftOut { path, line, column, why: why.into() })
    }

    fn root(&mut self, root: &Node) -> Result<(), Error> {
        let mut sections: Vec<(&Pair, &Section)> = Vec::new();
        let tree::Kind::Map(pairs) = &root.kind else {
            return Err(self.filled.error(root.at.start, "a map of options is expected here"));
        };
        for pair in pairs {
            match SECTIONS.iter().find(|section| section.name == pair.key) {
                Some(_) if pair.value.is_null() => {}
                Some(section) => sections.push((pair, section)),
                None => self.option(ROOT, "", pair)?,
            }
        }
        match sections[..] {
            [(pair, section)] => self.section(pair, section),
            [] => {
                let names = SECTIONS.map(|section| section.name).join(", ");
                Err(self.filled.error(root.at.start, format!("no servers are named: one of {names} is needed")))
            }
            [(first, _), (second, _), ..] => {
                let why = format!("servers are named by {} already, and only one kind of them can be", first.key);
                Err(self.wrong(second.at.start, &second.key, &why))
            }
        }
    }

    fn section(&mut self, pair: &Pair, section: &Section) -> Result<(), Error> {
        let of_root = std::mem::take(&mut self.config.login);
        let tree::Kind::Map(options) = &pair.value.kind else {
            return Err(self.wrong(pair.value.at.start, section.name, "a map of options is expected here"));
        };
        for option in options {
            self.option(section.bit, section.name, option)?;
        }
        // As in Redisson 4, the login at the root overrides the login of the section.
        self.config.login = of_root.or(std::mem::take(&mut self.config.login));
        let at = pair.at.start;
        if self.reader.name_prefix.is_some() && !self.has_mapper {
            let why = "the reader has a name prefix, and the file has no nameMapper: Java uses no prefix";
            return Err(self.wrong(at, "nameMapper", why));
        }
        self.fit_timeout(section, options);
        self.servers(section).map_err(|why| self.wrong(at, section.name, &why))
    }

    fn option(&mut self, section: u8, parent: &str, pair: &Pair) -> Result<(), Error> {
        let Pair { key, value, .. } = pair;
        let path = if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
        let at = value.at.start;
        let Some(fate) = table::fate(key, section) else {
            let why = match table::elsewhere(key) {
                Some(place) => format!("this option belongs to {place}"),
                None => "Redisson has no such option".to_owned(),
            };
            let path = if is_shown(key) { path } else { parent.to_owned() };
            self.left_out.push(self.left_out(pair.at.start, path, why));
            return Ok(());
        };
        let taken = match fate {
            Fate::Ignore => Ok(()),
            Fate::Certificates if self.reader.has_tls || value.is_null() => Ok(()),
            Fate::Certificates => {
                over_tls(false, "Java key stores are not supported: give the reader PEM files (RedissonYaml::tls)")
            }
            Fate::Take(take) => match self.filled.unfilled(&value.at) {
                Some(why) => Err(Why::from(why)),
                None => take(self, value),
            },
        };
        match taken {
            Ok(()) => {}
            Err(Why::Wrong(within, why)) => return Err(self.wrong(within.unwrap_or(at), &path, &why)),
            Err(Why::Cannot(why)) => self.left_out.push(self.left_out(at, path, why)),
            Err(Why::CannotOverTls(why)) => self.of_tls.push(self.left_out(at, path, why)),
        }
        Ok(())
    }

    /// Limits the command timeout to a third of the watchdog.
    fn fit_timeout(&mut self, section: &Section, options: &[Pair]) {
        let watchdog = self.config.lock_watchdog_timeout.unwrap_or(WATCHDOG);
        let (given, most) = (self.config.timeout, watchdog / 3);
        let timeout = given.unwrap_or(TIMEOUT);
        if timeout <= most {
            return;
        }
        self.config.timeout = Some(most);
        // If Redisson's default is shortened, nothing is listed as left out.
        if let Some(option) = options.iter().find(|option| option.key == "timeout" && given.is_some()) {
            let why = format!(
                "a command's {timeout:?} are more than a third of the watchdog's {watchdog:?}, in which a renewal has to be tried twice; \
                 at most {most:?} are possible"
            );
            let path = format!("{}.timeout", section.name);
            self.left_out.push(self.left_out(option.value.at.start, path, why));
        }
    }

    /// Checks the servers against each other, and decides whether the login in their addresses is for servers or
    /// sentinels.
    fn servers(&mut self, section: &Section) -> Result<(), String> {
        let Self { reader, config, servers, .. } = self;
        let Some(first) = servers.first() else { return Err(format!("{} is missing", section.servers)) };
        if servers.iter().any(|server| (server.is_tls, &server.login) != (first.is_tls, &first.login)) {
            return Err("all addresses have to have the same scheme, and the same login or none".to_owned());
        }
        if section.kind == Kind::MasterSlave && is_socket(&first.address) {
            return Err("masterAddress cannot be a socket of the file system".to_owned());
        }
        if section.kind == Kind::Sentinel && config.master_name.is_none() {
            return Err("masterName is missing".to_owned());
        }
        if reader.name_prefix.is_some_and(|prefix| prefix.len() > LONGEST_PREFIX) {
            return Err("the name prefix is longer than half the longest name".to_owned());
        }
        // The login in an address overrides the options. The login in a sentinel's address is for the sentinels.
        let login = if section.kind == Kind::Sentinel { &mut config.sentinel_login } else { &mut config.login };
        *login = first.login.clone().or(std::mem::take(login));
        (config.kind, config.is_tls) = (section.kind, first.is_tls);
        config.addresses = servers.drain(..).map(|server| server.address).collect();
        Ok(())
    }
}

/// True if an error may repeat this key: the key looks like an option, not like a misplaced secret.
fn is_shown(key: &str) -> bool {
    key.len() <= 64 && key.chars().all(|c| c.is_ascii_alphabetic())
}
