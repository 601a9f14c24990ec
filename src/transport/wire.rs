//! The crate `distlock-wire` as a [`Transport`].

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use distlock_wire::{ConnectError, ConnectFault, Connections, Settings, Target};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Acknowledge, Call, Fault, Listener, Replied, Reply, Transport};
use crate::config::Options;
use crate::error::{Error, Result, Step};

#[derive(Debug)]
pub(crate) struct Wire(Connections);

impl Wire {
    /// Connects, and returns once every connection is up. If `lazily`, returns at once, and the connections come up in
    /// the background. `sharded`: each channel belongs to one slot.
    pub(crate) async fn connect(target: Target, options: &Options, lazily: bool, sharded: bool) -> Result<Self> {
        Connections::connect(target, &options.into(), lazily, sharded).await.map(Self).map_err(to_error)
    }

    /// Connects without a connection for messages. Returns once every connection is up.
    pub(crate) async fn for_commands(target: Target, options: &Options) -> Result<Self> {
        Connections::for_commands(target, &options.into()).await.map(Self).map_err(to_error)
    }
}

impl From<&Options> for Settings {
    fn from(options: &Options) -> Self {
        Self {
            pool_size: options.pool_size,
            connect_timeout: options.connect_timeout,
            command_timeout: options.command_timeout,
            subscribe_timeout: options.subscribe_timeout,
            ping_interval: options.ping_interval,
            deaf_after: options.poll_cap / 10,
            user_timeout: options.user_timeout(),
            client_name: options.client_name.clone(),
            script_cache: options.script_cache,
        }
    }
}

impl From<Call> for distlock_wire::Call {
    fn from(Call { script, keys, words }: Call) -> Self {
        Self { script: &script.wire, keys, words }
    }
}

fn to_error(error: ConnectError) -> Error {
    let ConnectError { kind, message, source, server } = error;
    let error = match kind {
        ConnectFault::Refused => Error::server(message),
        ConnectFault::Unreachable => Error::connection(message, false, source),
        ConnectFault::TimedOut => Error::timeout(Step::Connect),
    };
    error.at(Some(&server))
}

impl Transport for Wire {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        self.0.run(call.into())
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn run_acknowledged(
        &self,
        call: Call,
        how: Acknowledge,
        sent: oneshot::Sender<()>,
    ) -> BoxFuture<'static, Result<Replied, Fault>> {
        self.0.run_acknowledged(call.into(), how, sent)
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.0.subscribe(channel)
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        self.0.unsubscribe(channel)
    }

    fn forget(&self, channel: &Bytes) {
        self.0.forget(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.0.listen(listener);
    }

    fn address(&self) -> &str {
        self.0.address()
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    fn prefers_bare_commands(&self) -> bool {
        true
    }

    fn close(&self, within: Duration) -> BoxFuture<'static, ()> {
        self.0.close(within)
    }
}
