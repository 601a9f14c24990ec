//! Sends the spans of a lock to an OpenTelemetry collector over OTLP/HTTP. A trace of an order shows how long the order
//! waited for its lock (span `acquire`), worked, and released (span `unlock`).
//!
//! ```sh
//! docker run --rm -p 4318:4318 -p 16686:16686 jaegertracing/jaeger:latest # shows traces at http://localhost:16686
//! cd examples/opentelemetry && OTEL_SERVICE_NAME=orders cargo run
//! ```
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT` names another collector than `http://localhost:4318`, and `REDIS_URL` another server
//! than `redis://127.0.0.1:6379`.

use std::error::Error;
use std::time::Duration;

use distlock::Client;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    // The spans of locks have level debug. Other crates are left out: the exporter's own requests would be traced too.
    let traced = Targets::new()
        .with_target("distlock", LevelFilter::DEBUG)
        .with_target(env!("CARGO_CRATE_NAME"), LevelFilter::INFO);
    tracing_subscriber::registry()
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("distlock")).with_filter(traced))
        // Events without a span, such as `lock lost`, are in no trace, so they are logged.
        .with(tracing_subscriber::fmt::layer().with_filter(LevelFilter::INFO))
        .init();

    let outcome = tokio::runtime::Runtime::new()?.block_on(sell());
    // Sends the last spans. This blocks, so it runs outside of the runtime.
    let sent = provider.shutdown();
    outcome?;
    Ok(sent?)
}

async fn sell() -> distlock::Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let lock = client.reentrant("orders:42");
    let order = async {
        let guard = lock.lock().await?;
        tokio::time::sleep(Duration::from_millis(20)).await; // the work
        guard.unlock().await
    };
    order.instrument(tracing::info_span!("order", id = 42)).await?;
    client.shutdown(Duration::from_secs(5)).await
}
