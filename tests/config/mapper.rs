//! Name mappers are Java code, so users pass the mapper's effect to the reader.

use distlock::RedissonYaml;
use distlock_support::RedisServer;
use distlock_support::agent::{Agent, AgentOptions, Kind, VERSIONS};

use crate::{answer, attempt};

/// Only with the mapper's prefix does our client exclude a Java client that uses the mapper.
#[tokio::test(flavor = "multi_thread")]
async fn client_with_name_prefix_excludes_redisson_with_name_mapper() {
    let server = RedisServer::start();
    let yaml = format!(
        "singleServerConfig:\n  address: {}\nnameMapper: !<com.example.TenantNameMapper> {{tenant: app}}\n",
        server.url()
    );
    assert!(RedissonYaml::new().lenient(true).read(&yaml).is_err(), "without the mapper each lock would be another");
    let builder = RedissonYaml::new().name_prefix("app:").read(&yaml).expect("it is told").into_builder();
    let client = answer("the server is there", async || builder.clone().connect().await).await;
    let options = AgentOptions { prefix: Some("app:".to_owned()), ..AgentOptions::version(VERSIONS[0]) };
    let agent = Agent::start(&server.url(), options).await;
    let java = agent.at(Kind::Reentrant, "job", 1);
    assert!(java.try_lock().await.expect("an answer"));
    assert!(attempt(&client, "job").await.is_none());
    java.unlock().await.expect("held");
    let guard = attempt(&client, "job").await.expect("free");
    assert!(!java.try_lock().await.expect("an answer"));
    guard.unlock().await.expect("held");
    agent.close().await;
}
