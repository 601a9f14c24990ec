//! Opens a connection: the socket, the login, the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::link::{Place, Reader, Writer, connect};
use super::resp::Input;
use crate::tls::{self, Secured};
use crate::{ConnectError, ConnectFault, Credentials, Demotions, Provider, Secret, Settings};

mod login;
mod pauses;
mod trouble;

pub(super) use pauses::Pauses;
pub(super) use trouble::{Hope, Trouble};

/// A server, and how to log in to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the server listens.
    pub place: Place,
    /// TLS settings; `None` for a connection without TLS.
    pub tls: Option<Secured>,
    /// User name; `None` for the default user.
    pub username: Option<Secret>,
    /// Password; `None` for no login.
    pub password: Option<Secret>,
    /// Called before each login. The returned credentials replace both user and password.
    pub credentials: Option<Provider>,
    /// Number of the database.
    pub database: u8,
}

/// Opens connections to one server.
#[derive(Debug)]
pub(super) struct Dialer {
    target: Target,
    pub(super) settings: Settings,
    /// The server, as errors name it.
    pub(super) server: String,
    /// True once a connection was up.
    has_stood: AtomicBool,
}

impl Dialer {
    pub(super) fn new(target: Target, settings: &Settings) -> Self {
        let (settings, server) = (settings.clone(), target.place.to_string());
        Self { target, settings, server, has_stood: AtomicBool::new(false) }
    }

    /// Tries to connect, with pauses, until an attempt succeeds. Passes each failure to `report`.
    pub(super) async fn persist(
        &self,
        pauses: &mut Pauses,
        demotions: &mut Demotions,
        mut report: impl FnMut(Trouble),
    ) -> Opened {
        loop {
            pauses.pause().await;
            demotions.dials();
            match self.open().await {
                Ok(opened) if !demotions.is_behind() => return opened,
                // A demotion was reported meanwhile. The new connection may lead to the demoted server, so it is
                // dropped.
                Ok(_) => {}
                Err(trouble) => report(trouble),
            }
        }
    }

    pub(super) async fn open(&self) -> Result<Opened, Trouble> {
        let opened = tokio::time::timeout(self.settings.connect_timeout, self.open_unbounded()).await;
        let late = || Trouble { hope: Hope::Late, ..Trouble::new("the server does not answer to a login") };
        opened.unwrap_or_else(|_| Err(late())).map_err(|trouble| match trouble.hope {
            // A refusal has to begin with the server's error code, so no name is put in front.
            Hope::Refused => trouble,
            _ => trouble.at(&self.server),
        })
    }

    async fn open_unbounded(&self) -> Result<Opened, Trouble> {
        let Target { username, password, credentials, database, .. } = &self.target;
        let Settings { connect_timeout: within, user_timeout, client_name, .. } = &self.settings;
        let (username, password) = match credentials {
            // Called before the socket is opened, because the socket would be idle during the call.
            Some(provider) => {
                let Credentials { username, password } = provider.ask(*within).await.map_err(Trouble::new)?;
                (username, Some(password))
            }
            None => (username.clone(), password.clone()),
        };
        let (reader, writer) = connect(&self.target, *user_timeout, *within).await?;
        let mut opened = Opened { reader, writer, input: Input::default() };
        let login = (username.as_ref(), password.as_ref());
        match opened.log_in(login, *database, client_name).await {
            Ok(()) => {
                self.has_stood.store(true, Ordering::Relaxed);
                Ok(opened)
            }
            Err(trouble) => Err(self.with_hint(trouble)),
        }
    }

    /// Adds the hint that the server may want TLS, if it closed the connection and has never accepted a login.
    fn with_hint(&self, mut trouble: Trouble) -> Trouble {
        let has_stood = self.has_stood.load(Ordering::Relaxed);
        if trouble.is_broken_off
            && !has_stood
            && self.target.tls.is_none()
            && matches!(self.target.place, Place::Tcp(..))
        {
            trouble.message = format!("{}: {}", trouble.message, tls::IS_TLS);
        }
        trouble
    }
}

/// A connection that is logged in.
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) input: Input,
}

/// Opens `count` connections. Returns once all are up. Retries until the connect timeout, unless the error is final.
pub(super) async fn open_all(dialer: &Dialer, count: usize) -> Result<Vec<Opened>, ConnectError> {
    let latest = parking_lot::Mutex::new(None);
    let one = async || {
        let mut pauses = Pauses::default();
        loop {
            pauses.pause().await;
            match dialer.open().await {
                Ok(opened) => return Ok(opened),
                Err(trouble) => match trouble.hope {
                    Hope::Some => *latest.lock() = Some(trouble),
                    Hope::Late => {}
                    Hope::None | Hope::Refused => return Err(trouble),
                },
            }
        }
    };
    let all = futures::future::try_join_all((0..count).map(|_| one()));
    let failed = match tokio::time::timeout(dialer.settings.connect_timeout, all).await {
        Ok(Ok(opened)) => return Ok(opened),
        Ok(Err(trouble)) => Some(trouble),
        Err(_) => latest.lock().take(),
    };
    let timed_out = || ConnectError {
        kind: ConnectFault::TimedOut,
        message: format!("{}: no connection in time", dialer.server),
        source: None,
        server: Arc::from(&*dialer.server),
    };
    Err(failed.map_or_else(timed_out, |trouble| trouble.into_error(&dialer.server)))
}
