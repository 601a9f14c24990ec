use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value};
use tokio::sync::Mutex;

use super::NAME;

/// Time for which a command is retried while the server is unreachable or loads its data.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// Longer than any pause or freeze of a server in a test.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);

/// A connection to one server. Connects on demand, and again after a restart.
#[derive(Debug)]
pub(super) struct Line {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Line {
    pub(super) fn to(url: &str) -> Self {
        let client = Client::open(url).unwrap_or_else(|e| panic!("bad url {url}: {e}"));
        Self { client, connection: Mutex::new(None) }
    }

    pub(super) async fn raw<A: AsRef<[u8]>>(&self, args: &[A]) -> RedisResult<Value> {
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(arg.as_ref());
        }
        let give_up = Instant::now() + RETRY_FOR;
        loop {
            let error = match self.connection().await {
                Ok(mut connection) => match command.query_async(&mut connection).await {
                    Ok(value) => return Ok(value),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let away = error.is_connection_dropped() || error.is_connection_refusal();
            if away {
                *self.connection.lock().await = None;
            }
            let loading = error.code() == Some("LOADING");
            if !(away || loading) || Instant::now() > give_up {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref() {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        redis::cmd("CLIENT").arg(&["SETNAME", NAME]).query_async::<()>(&mut connection).await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }
}
