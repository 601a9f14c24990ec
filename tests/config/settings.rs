//! Connects with settings from files and from the environment.

use std::process::Command;
use std::time::Duration;

use distlock::{Client, Settings};
use distlock_support::{RedisServer, reaper};

const PASSWORD: &str = "a-Secret.1";

async fn used(client: Client) {
    assert_eq!((client.options().watchdog, client.options().name_prefix.as_str()), (Duration::from_secs(12), "app:"));
    client.reentrant("x").lock().await.unwrap().unlock().await.unwrap();
    client.shutdown(bed::PATIENCE).await.expect("shutdown of an idle client");
}

#[tokio::test]
async fn client_connects_with_settings_from_file() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let port = server.port();
    let toml = format!(
        "url = \"redis://127.0.0.1:{port}/2\"\npassword = \"{PASSWORD}\"\nwatchdog = \"12s\"\nname_prefix = \"app:\"\n"
    );
    let yaml =
        format!("url: redis://127.0.0.1:{port}/2\npassword: {PASSWORD}\nwatchdog: 12000\nname_prefix: \"app:\"\n");
    for settings in
        [toml::from_str::<Settings>(&toml).expect("settings"), serde_saphyr::from_str(&yaml).expect("settings")]
    {
        used(settings.into_builder().connect().await.expect("the server is there")).await;
    }
}

/// Runs in a separate process with its own environment.
#[test]
fn client_connects_with_settings_from_environment() {
    let server = RedisServer::builder().password(PASSWORD).start();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([
        "settings::inner_client_connects_with_settings_from_environment",
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    command.env("LOCKS_URL", format!("redis://127.0.0.1:{}/2", server.port()));
    command.envs([("LOCKS_PASSWORD", PASSWORD), ("LOCKS_WATCHDOG", "12s"), ("LOCKS_NAME_PREFIX", "app:")]);
    let ran = reaper::output(&mut command);
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "run by another one"]
async fn inner_client_connects_with_settings_from_environment() {
    let settings = Settings::from_env("LOCKS").expect("settings");
    used(settings.into_builder().connect().await.expect("the server is there")).await;
}
