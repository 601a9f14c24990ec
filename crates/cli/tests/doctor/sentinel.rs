//! Faults of sentinels.

use distlock_support::{Sentinels, SentinelsOptions};

use crate::report::doctor;
use crate::sound::pair;

async fn set(sentinels: &Sentinels, name: &str, value: &str) {
    for sentinel in sentinels.sentinels() {
        sentinel.admin().cmd::<()>(&["SENTINEL", "SET", sentinels.name(), name, value]).await;
    }
}

/// One set of servers for all faults, because sentinels take seconds to start.
#[tokio::test]
async fn faults_of_sentinels_are_found_one_at_a_time() {
    let sentinels = Sentinels::start(SentinelsOptions::default().servers(pair()).swift()).await;
    let report = doctor(&sentinels.url()).await;
    report.assert_finds(&[]);
    assert_eq!(report.status, Some(0), "{report:?}");
    assert_eq!(report.json["sentinels"].as_array().map(Vec::len), Some(3), "{report:?}");

    set(&sentinels, "quorum", "4").await;
    let report = doctor(&sentinels.url()).await;
    report.assert_finds(&["sentinel-quorum"]);
    report.assert_severity("sentinel-quorum", "risk");
    set(&sentinels, "quorum", "2").await;

    set(&sentinels, "down-after-milliseconds", "30000").await;
    let report = doctor(&sentinels.url()).await;
    report.assert_finds(&["sentinel-down-after"]);
    report.assert_severity("sentinel-down-after", "risk");
    set(&sentinels, "down-after-milliseconds", "2000").await;

    sentinels.remove_sentinel(2).await;
    let report = doctor(&sentinels.url()).await;
    report.assert_finds(&["sentinel-count"]);
    report.assert_severity("sentinel-count", "risk");
}
