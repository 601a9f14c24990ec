#![doc = include_str!("../README.md")]

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use distlock::transport::{Arg, Call, Fault, FaultKind, Listener, Reply, Transport};
use distlock::{Client, Error, Options, Origin};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use redis::aio::ConnectionManager;
use redis::{RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use messages::Messages;

mod messages;

/// Returns a client that sends its commands over `manager`, on the current tokio runtime.
///
/// The program may go on using its `ConnectionManager`. Messages need a connection of their own, which `client` makes.
/// Both must be for the same server. The rights of the login are not checked. These options have no effect:
/// [`pool_size`](Options::pool_size), [`client_name`](Options::client_name), [`preflight`](Options::preflight).
///
/// # Cost
///
/// One connection.
///
/// # Cancel safety
///
/// A dropped call leaves nothing behind.
///
/// # Errors
///
/// - [`Error::Config`]: an option cannot work.
/// - [`Error::Connection`], [`Error::Server`]: the connection for messages cannot be made, or its login is refused.
/// - [`Error::Unsupported`]: replicas must acknowledge ([`acks`](Options::acks)). On a shared connection, a `WAIT`
///   would delay the program's own commands.
pub async fn over(client: &redis::Client, manager: ConnectionManager, options: Options) -> distlock::Result<Client> {
    let messages = Messages::new(client.clone(), options.clone());
    let first = messages.connect().await.map_err(|Fault { kind, message, source, .. }| {
        let origin = Origin::default();
        if kind == FaultKind::Refused {
            return Error::Server { message, origin };
        }
        Error::Connection { message, outcome_unknown: false, source, origin }
    })?;
    let (info, mut task) = (client.get_connection_info(), JoinSet::new());
    task.spawn(Arc::clone(&messages).keep(first));
    let transport = Over {
        manager,
        timeout: options.command_timeout,
        script_cache: options.script_cache,
        messages,
        task: Mutex::new(task),
        address: format!("{}/{}", info.addr(), info.redis_settings().db()),
    };
    Client::over_transport(Arc::new(transport), options)
}

struct Over {
    manager: ConnectionManager,
    timeout: Duration,
    script_cache: bool,
    messages: Arc<Messages>,
    /// Keeps the connection for messages. Aborted when it is dropped.
    task: Mutex<JoinSet<()>>,
    address: String,
}

/// Sends a command once. If it runs a script, `script` is the source or the hash.
async fn send(
    manager: &mut ConnectionManager,
    command: &str,
    script: Option<&[u8]>,
    call: &Call,
) -> RedisResult<Value> {
    let mut words = redis::cmd(command);
    if let Some(script) = script {
        words.arg(script).arg(call.keys);
    }
    for word in &call.words {
        match word {
            Arg::Text(text) => words.arg(&text[..]),
            Arg::Int(int) => words.arg(*int),
        };
    }
    manager.send_packed_command(&words).await?.extract_error()
}

async fn run(mut manager: ConnectionManager, call: Call, script_cache: bool) -> RedisResult<Value> {
    if let Some(command) = call.script.command {
        return send(&mut manager, command, None, &call).await;
    }
    if script_cache {
        let outcome = send(&mut manager, "EVALSHA", Some(&call.script.sha()[..]), &call).await;
        if !outcome.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            return outcome;
        }
    }
    send(&mut manager, "EVAL", Some(call.script.source.as_bytes()), &call).await
}

/// Converts an error. An error with a code is the server's answer, so the outcome is known. After any other error, the
/// command may have run.
fn fault(error: &RedisError) -> Fault {
    let Some(code) = error.code() else {
        return Fault { source: Some(Arc::new(error.clone())), ..Fault::new(FaultKind::Lost, error.to_string()) };
    };
    let is_elsewhere = matches!(code, "MOVED" | "ASK" | "TRYAGAIN");
    let kind = if is_elsewhere { FaultKind::Elsewhere } else { FaultKind::Refused };
    Fault::new(kind, error.detail().map_or_else(|| code.to_owned(), |detail| format!("{code} {detail}")))
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(int) => Reply::Int(int),
        Value::BulkString(bytes) => Reply::Text(bytes.into()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text.into()),
        Value::Okay => Reply::Text(Bytes::from_static(b"OK")),
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect()),
        // No command of distlock needs another kind of reply.
        other => Reply::Text(format!("{other:?}").into()),
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Over").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Transport for Over {
    fn run(&self, call: Call) -> BoxFuture<'static, Result<Reply, Fault>> {
        let (manager, limit, script_cache) = (self.manager.clone(), self.timeout, self.script_cache);
        Box::pin(async move {
            match tokio::time::timeout(limit, run(manager, call, script_cache)).await {
                Ok(Ok(value)) => Ok(reply(value)),
                Ok(Err(error)) => Err(fault(&error)),
                Err(_) => Err(Fault::no_answer()),
            }
        })
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<'static, Result<(), Fault>> {
        self.messages.change(channel, true)
    }

    fn unsubscribe(&self, channel: Bytes) -> BoxFuture<'static, ()> {
        let changed = self.messages.change(channel, false);
        // Without a connection, there is no subscription.
        Box::pin(async move { drop(changed.await) })
    }

    fn forget(&self, channel: &Bytes) {
        self.messages.wanted.lock().remove(channel);
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        // Set once, by the client.
        let _ = self.messages.listener.set(listener);
    }

    fn address(&self) -> &str {
        &self.address
    }

    /// Closes the connection for messages only.
    fn close(&self, _within: Duration) -> BoxFuture<'static, ()> {
        let mut task = std::mem::take(&mut *self.task.lock());
        Box::pin(async move { task.shutdown().await })
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn refused(text: &str) -> Fault {
        let value = parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        fault(&value.extract_error().unwrap_err())
    }

    /// The engine reads these texts.
    #[test]
    fn errors_of_the_server_keep_their_text() {
        for text in [
            "READONLY You can't write against a read only replica.",
            "ERR unknown command",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "@user_script: 530: The user executing the script can't run this command or subcommand",
            "MISCONF Redis is configured to save RDB snapshots",
        ] {
            let fault = refused(text);
            assert_eq!((fault.kind, &*fault.message), (FaultKind::Refused, text));
        }
        let moved = refused("MOVED 12182 10.0.0.7:6379");
        assert_eq!((moved.kind, &*moved.message), (FaultKind::Elsewhere, "MOVED 12182 10.0.0.7:6379"));
    }

    #[test]
    fn errors_of_the_connection_leave_the_command_in_doubt() {
        for kind in [std::io::ErrorKind::ConnectionRefused, std::io::ErrorKind::TimedOut] {
            let fault = fault(&RedisError::from(std::io::Error::from(kind)));
            assert!(fault.kind == FaultKind::Lost && fault.source.is_some(), "{fault:?}");
        }
    }
}
